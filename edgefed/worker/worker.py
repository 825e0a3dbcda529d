"""Execute a task; device agents and virtual devices use the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.interface.exchange import FROZEN
from edgefed.algorithms.secure.secure_device_record import PRIVATE as MASKED_RUN
from edgefed.data.base.class_names import in_words, numbered, renumbered, unlisted
from edgefed.data.base.types import UNPREPARED, DeviceData, Preparation
from edgefed.data.devices.run_scale import with_scale
from edgefed.errors import DataError, EdgeFedError, WireError
from edgefed.files.samples import PixelScale
from edgefed.learn.base.types import Array, Samples, Tensors
from edgefed.learn.modeling.user_models import is_user_model
from edgefed.learn.training.targets import misfit
from edgefed.learn.training.trainer import Trainer
from edgefed.learn.training.user_losses import is_user_loss
from edgefed.learn.training.warm_trainers import FrozenBlob
from edgefed.natural_noise.draw import DrawNoise, draw_noise
from edgefed.sharing.policy import ANYTHING, Policy
from edgefed.wire.messages import Task
from edgefed.wire.task_digest import task_digest
from edgefed.wire.tensors import unpack
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.outcomes import FEEDBACK, Outcome, PersistentState
from edgefed.worker.prepared_tasks import (
    Prepared,
    ReadRelay,
    answered,
    complete,
    guarded,
    no_relays,
    relays_by_sender,
    without_relays,
)
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system, words_of
from edgefed.worker.trainer_cache import TrainerCache

NOTHING_KEPT = PersistentState()
"""Of a device that has kept nothing across runs yet."""


@dataclass(frozen=True)
class _Numbered:
    """A device's samples with their labels numbered after a run's list of classes."""

    listed: tuple[str, ...]
    train: Samples
    test: Samples


@dataclass(frozen=True)
class _Scaled:
    """A device's samples with their images scaled as a run requires.

    Attributes:
        of: the samples before.
        scale: of the run.
        preparation: the total one.
    """

    of: _Numbered
    scale: PixelScale
    train: Samples
    test: Samples
    preparation: Preparation


class Worker:
    """Executes the tasks of one device, with its data and trainers that devices may share.

    Args:
        trainers: warm trainers.
        train, test: the device's samples.
        policy: its owner's, for data beside the model.
        class_names: names of its labels; a task may number them otherwise.
        private_randomness: gives the generator of a task's privacy noise.
        preparation: of the samples.
        noise: draws natural noise.
        pool: pixels from 0 to 1 of all devices; None where there is no simulation.
        credentials: sign for the device, and seal data for others; None where there are none.
    """

    def __init__(
        self,
        trainers: TrainerCache,
        train: Samples,
        test: Samples,
        policy: Policy = ANYTHING,
        class_names: tuple[str, ...] = (),
        private_randomness: PrivateRandomness = from_operating_system,
        preparation: Preparation = UNPREPARED,
        noise: DrawNoise = draw_noise,
        pool: Array | None = None,
        credentials: DeviceCredentials | None = None,
    ) -> None:
        self._trainer_cache = trainers
        self._train = train
        self._test = test
        self._policy = policy
        self._class_names = class_names
        self._private_randomness = private_randomness
        self._preparation = preparation
        self._noise = noise
        self._pool = pool
        self._credentials = credentials
        self._numbered: _Numbered | None = None
        self._scaled: _Scaled | None = None

    def renew(self, data: DeviceData) -> None:
        """Use other samples from now on; not while a task is at work."""
        self._train, self._test = data.train, data.test
        self._class_names, self._preparation = data.class_names, data.preparation
        self._numbered = self._scaled = None

    def work(
        self,
        task: Task,
        read: Callable[[str], Tensors],
        private: Mapping[str, Tensors],
        progress: Callable[[float], None] | None = None,
        stop: Callable[[], bool] | None = None,
        *,
        persistent: PersistentState = NOTHING_KEPT,
        read_relay: ReadRelay = no_relays,
    ) -> Outcome:
        """Do a task and return the outcome; never raises, except when stopped.

        Args:
            task: the task.
            read: arrays of a blob by role.
            private: this device's private state of this run.
            progress: called with the share done, 0 to 1.
            stop: called before each step; True ends the task.
            persistent: this device's state across runs.
            read_relay: bytes of a blob from another device, by digest.

        Raises:
            Stopped: ``stop`` returned True.
        """
        own = self._credentials
        if own is not None and task.relays:
            try:
                opened = own.opened(task, read_relay)
            except EdgeFedError as error:
                return Outcome(status="failed", reason=error.as_line())
            task, read_relay = without_relays(task, opened), opened.__getitem__
        done = complete(self.begin(task, read, private, persistent, read_relay), progress, stop)
        return done if own is None else own.sealed(task, done)

    def begin(
        self,
        task: Task,
        read: Callable[[str], Tensors],
        private: Mapping[str, Tensors],
        persistent: PersistentState = NOTHING_KEPT,
        read_relay: ReadRelay = no_relays,
    ) -> Prepared | Outcome:
        """Return a task ready for its trainer, or its outcome at once; never raises.

        ``complete`` does the rest; a trainer of many devices does it itself, and calls ``finish``.
        """
        reject_reason = self._misnamed(task)
        if reject_reason:
            return Outcome(status="refused", reason=reject_reason)
        own = self._numbered_after(task.class_names)
        reject_reason = self._refusal(task, own.train, private)
        if reject_reason:
            return Outcome(status="refused", reason=reject_reason)
        return guarded(lambda: self._begin(task, own, read, private, persistent, read_relay))

    def _begin(
        self,
        task: Task,
        numbered_samples: _Numbered,
        read: Callable[[str], Tensors],
        private: Mapping[str, Tensors],
        persistent: PersistentState,
        read_relay: ReadRelay,
    ) -> Prepared | Outcome:
        algorithm = self._trainer_cache.algorithm(task)
        images = algorithm.images
        try:
            own = self._scaled_as(numbered_samples, PixelScale(images.mean, images.std))
        except DataError as error:
            return Outcome(status="refused", reason=f"it {error.as_line()}")
        wrong = misfit(algorithm.training.loss, own.train)
        if wrong:
            return Outcome(status="refused", reason=f"its targets {wrong} (training.loss)")
        trainer = self._trainer(task, read)
        seen = _seen(task, read, read_relay)
        state = {key: private[key] for key in private if not key.startswith(FEEDBACK)}
        view = DeviceView(
            own.train,
            own.test,
            state,
            self._policy,
            trainer.model,
            persistent.read_only(),
            persistent.ledger,
            self._private_randomness(task),
            task.class_names,
            own.preparation,
            self._noise,
            self._pool,
            self._trainer_cache.most_bytes(),
            self._credentials,
            words_of(self._private_randomness),
        )
        if task.question == "evaluate":
            eval_job = algorithm.eval_job(seen, view)
            return Prepared(task, algorithm, trainer, seen, view, private, persistent, eval_job)
        work = algorithm.prepare(seen, view)
        if isinstance(work, Answer):
            return answered(work, task, state, private, persistent)
        return Prepared(task, algorithm, trainer, seen, view, private, persistent, work)

    def _trainer(self, task: Task, read: Callable[[str], Tensors]) -> Trainer:
        """Return the trainer of the task's model, with the frozen weights that the task names."""
        sent = task.blobs.get(FROZEN)
        frozen = None if sent is None else FrozenBlob(sent.digest, lambda: read(FROZEN))
        return self._trainer_cache.trainer(task.model, task.shape, task.classes, frozen)

    def _misnamed(self, task: Task) -> str:
        """Return why this device's classes are not the task's, or nothing."""
        strange = unlisted(self._class_names, task.class_names)
        if task.class_names and strange:
            return f"it has classes that the run does not list: {in_words(strange)}"
        if not task.class_names and not numbered(self._class_names):
            return "it names its classes, and the run has plain numbers"
        return ""

    def _numbered_after(self, listed: tuple[str, ...]) -> _Numbered:
        """Return this device's samples with the labels of a run; kept for the run's next task."""
        if self._numbered is None or self._numbered.listed != listed:
            self._numbered = _Numbered(listed, self._train, self._test)
            if listed and self._class_names:
                names = self._class_names
                train, test = (
                    renumbered(part, names, listed) for part in (self._train, self._test)
                )
                self._numbered = _Numbered(listed, train, test)
        return self._numbered

    def _scaled_as(self, own: _Numbered, scale: PixelScale) -> _Scaled:
        """Return this device's samples with the images of a run; kept for the run's next task.

        Raises:
            DataError: they were scaled otherwise, or have other channels.
        """
        kept = self._scaled
        if kept is None or kept.of is not own or kept.scale != scale:
            done = with_scale(own.train, own.test, self._preparation, scale)
            kept = self._scaled = _Scaled(own, scale, *done)
        return kept

    def _refusal(self, task: Task, train: Samples, private: Mapping[str, Tensors]) -> str:
        """Return why this device cannot do the task, or nothing."""
        if len(train) == 0:
            return "the device has no data"
        if reason := _unlimited_update(task, self._policy):
            return reason
        if reason := _unmasked(task, self._policy, private):
            return reason
        code = next(_user_code(task), "")
        if code and not self._trainer_cache.user_models:
            return f"it does not run {code}: user_models is off in its settings"
        shape = tuple(train.inputs.shape[1:])
        if shape != tuple(task.shape):
            return f"its inputs are {_times(shape)}, the run trains {_times(tuple(task.shape))}"
        if train.targets.ndim > 1 and train.targets.shape[1] != task.classes:
            return f"its targets have {train.targets.shape[1]} numbers, the run's {task.classes}"
        if train.targets.ndim == 1 and int(train.targets.max()) >= task.classes:
            return f"it has label {int(train.targets.max())}, the run has {task.classes} classes"
        return ""


def _seen(task: Task, read: Callable[[str], Tensors], read_relay: ReadRelay) -> DeviceTask:
    """Return a task as its algorithm sees it, with the arrays that it was sent."""
    return DeviceTask(
        question=task.question,
        round=task.round,
        device=task.device,
        seed=task.seed,
        groups=SentGroups({role: read(role) for role in task.blobs if role != FROZEN}),
        params=task.params,
        receivers=task.receivers,
        max_relay_bytes=task.max_relay_bytes,
        relays=relays_by_sender(task, read_relay),
        rounds=task.rounds,
        run=task.run,
        task_digest=task_digest(task) if task.secure_aggregation else b"",
    )


def _unlimited_update(task: Task, policy: Policy) -> str:
    """Return why the owner's limit on updates forbids a task without noise of the device's own."""
    local = task.privacy.get("mechanism") == "local"
    if policy.update_epsilon is None or local or task.question == "evaluate":
        return ""
    return (
        "its owner limits the epsilon of updates (update_epsilon), and this run has no"
        ' privacy.mechanism = "local"'
    )


def _unmasked(task: Task, policy: Policy, private: Mapping[str, Tensors]) -> str:
    """Return why a task of which the coordinator would see the update is refused, or nothing."""
    if task.question == "evaluate" or task.secure_aggregation.get("enabled"):
        return ""
    if MASKED_RUN in private:
        return "it has masked updates in this run, and was asked for one without a mask"
    for name in ("least_cohort", "least_threshold"):
        if getattr(policy, name) > 0:
            return f"its owner demands secure aggregation ({name}), and this run has none"
    return ""


def _user_code(task: Task) -> Iterator[str]:
    """Yield the names of users' own code in a task: model, loss and metrics."""
    if is_user_model(name := str(task.model.get("name", ""))):
        yield name
    if is_user_loss(loss := str(task.training.get("loss", ""))):
        yield loss
    yield from map(str, task.evaluation.get("metrics", ()))


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape) or "scalars"


def read_blob(data: bytes) -> Tensors:
    """Return the arrays of a canonical blob that was checked against its digest."""
    return unpack(data, None, max_bytes=len(data))


class SentGroups(dict[str, Tensors]):
    """Arrays by role, as a task brought them."""

    def __missing__(self, role: str) -> Tensors:
        """Raise for a role that the algorithm needs.

        Raises:
            WireError: ``wire.missing_group``.
        """
        raise WireError(
            f"The task came without the arrays {role!r} that its algorithm needs.",
            code="wire.missing_group",
            hint="install the same version of EdgeFed on the coordinator and the device",
        )
