"""Execute a task; device agents and virtual devices use the same code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from edgefed.algorithms.base import (
    Algorithm,
    Answer,
    DeviceTask,
    DeviceView,
    Result,
    Work,
)
from edgefed.algorithms.evaluation_reply import measures_of_task
from edgefed.algorithms.exchange import FROZEN
from edgefed.data.class_names import in_words, numbered, renumbered, unlisted
from edgefed.data.run_scale import with_scale
from edgefed.data.types import UNPREPARED, Preparation
from edgefed.errors import DIVERGED, DataError, EdgeFedError, PluginError
from edgefed.learn.model_memory import ModelTooLargeError
from edgefed.learn.targets import misfit
from edgefed.learn.training import Stopped, Trainer
from edgefed.learn.types import Array, Samples, Tensors
from edgefed.learn.user_losses import is_user_loss
from edgefed.learn.user_models import is_user_model
from edgefed.learn.warm_trainers import FrozenBlob
from edgefed.natural_noise.draw import DrawNoise, draw_noise
from edgefed.samples import PixelScale
from edgefed.sharing.policy import ANYTHING, Policy, Withheld
from edgefed.wire.messages import Task
from edgefed.wire.tensors import unpack
from edgefed.worker.outcome import Outcome
from edgefed.worker.persistent_state import PersistentState, checked_changes
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system
from edgefed.worker.relays import ReadRelay, check_relays, no_relays, relays_by_sender
from edgefed.worker.run_work import mode_of, run_work
from edgefed.worker.scored import scored
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.uplink import FEEDBACK, encode_groups

Done = TypeVar("Done")

UNKNOWN = ("algorithm.unknown", "model.unknown")
"""Codes of errors about a task that names what this device does not have."""

INSTALL = "if a package offers it, install that package on this device"

NOTHING_KEPT = PersistentState()
"""Of a device that has kept nothing across runs yet."""


@dataclass(frozen=True)
class Prepared:
    """A task that waits for its training or testing.

    Attributes:
        trainer: has the task's model.
        work: what it shall do.
        view: the device's samples, of which a ``Job`` trains on ``view.train``.
        private: the device's private state of this run, all of it.
        persistent: what the device keeps across runs.
    """

    task: Task
    algorithm: Algorithm[Any]
    trainer: Trainer
    seen: DeviceTask
    view: DeviceView
    private: Mapping[str, Tensors]
    persistent: PersistentState
    work: Work


@dataclass(frozen=True)
class _Numbered:
    """A device's samples with their labels numbered after a run's list of classes."""

    listed: tuple[str, ...]
    train: Samples
    test: Samples


@dataclass(frozen=True)
class _Scaled:
    """A device's samples with their images scaled as a run says.

    Attributes:
        of: the samples before.
        scale: of the run.
        preparation: what has been done to them in all.
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
        policy: what its owner lets it give away beside its model.
        class_names: what its labels are called; a task may number them otherwise.
        private_randomness: gives the generator of a task's privacy noise.
        preparation: what was done to the samples.
        noise: draws natural noise.
        pool: pixels from 0 to 1 of all devices; None where there is no simulation.
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
        self._numbered: _Numbered | None = None
        self._scaled: _Scaled | None = None

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
        """Do a task and return what came of it; never raises but when stopped.

        Args:
            task: the task.
            read: arrays of a blob by role.
            private: this device's private state of this run.
            progress: told the share done, 0 to 1.
            stop: asked before each step; True gives up.
            persistent: what this device keeps across runs.
            read_relay: bytes of a blob that another device sent, by digest.

        Raises:
            Stopped: ``stop`` said so.
        """
        begun = self.begin(task, read, private, persistent, read_relay)
        return begun if isinstance(begun, Outcome) else complete(begun, progress, stop)

    def begin(
        self,
        task: Task,
        read: Callable[[str], Tensors],
        private: Mapping[str, Tensors],
        persistent: PersistentState = NOTHING_KEPT,
        read_relay: ReadRelay = no_relays,
    ) -> Prepared | Outcome:
        """Return a task ready for its trainer, or at once what comes of it; never raises.

        ``complete`` does the rest; or whoever trains many devices together does, and ``finish``.
        """
        reject_reason = self._misnamed(task)
        if reject_reason:
            return Outcome(status="refused", reason=reject_reason)
        own = self._numbered_after(task.class_names)
        reject_reason = self._refusal(task, own.train)
        if reject_reason:
            return Outcome(status="refused", reason=reject_reason)
        return _guarded(lambda: self._begin(task, own, read, private, persistent, read_relay))

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
        sent = task.blobs.get(FROZEN)
        frozen = None if sent is None else FrozenBlob(sent.digest, lambda: read(FROZEN))
        trainer = self._trainer_cache.trainer(task.model, task.shape, task.classes, frozen)
        seen = DeviceTask(
            question=task.question,
            round=task.round,
            device=task.device,
            seed=task.seed,
            groups={role: read(role) for role in task.blobs if role != FROZEN},
            params=task.params,
            receivers=task.receivers,
            max_relay_bytes=task.max_relay_bytes,
            relays=relays_by_sender(task, read_relay),
            rounds=task.rounds,
        )
        state = {key: value for key, value in private.items() if not key.startswith(FEEDBACK)}
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
        )
        if task.question == "evaluate":
            eval_job = algorithm.eval_job(seen, view)
            return Prepared(task, algorithm, trainer, seen, view, private, persistent, eval_job)
        work = algorithm.prepare(seen, view)
        if isinstance(work, Answer):
            return _answered(work, task, state, private, persistent)
        return Prepared(task, algorithm, trainer, seen, view, private, persistent, work)

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

    def _refusal(self, task: Task, train: Samples) -> str:
        """Return why this device cannot do the task, or nothing."""
        if len(train) == 0:
            return "the device has no data"
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


def _user_code(task: Task) -> Iterator[str]:
    """Yield the names of users' own code in a task: model, loss and metrics."""
    if is_user_model(name := str(task.model.get("name", ""))):
        yield name
    if is_user_loss(loss := str(task.training.get("loss", ""))):
        yield loss
    yield from map(str, task.evaluation.get("metrics", ()))


def complete(
    prepared: Prepared,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Train or test, and return what came of it; see ``Worker.work``.

    Raises:
        Stopped: ``stop`` said so.
    """
    return _guarded(lambda: _finished(prepared, _result(prepared, progress, stop)))


def finish(prepared: Prepared, result: Result | EdgeFedError) -> Outcome:
    """Return what comes of a task whose work somebody has done, or failed to do; never raises."""
    if isinstance(result, EdgeFedError):
        return _outcome_of(result)
    return _guarded(lambda: _finished(prepared, result))


def _result(
    prepared: Prepared,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
) -> Result:
    measures = measures_of_task(prepared.task)
    trainer, own = prepared.trainer, prepared.view.train
    return run_work(trainer, prepared.work, own, progress, stop, measures)


def _finished(prepared: Prepared, result: Result) -> Outcome:
    if prepared.task.question == "evaluate":
        mode, policy = mode_of(prepared.work), prepared.view.policy
        return _finite(scored(prepared.task, result, mode, policy))
    answer = prepared.algorithm.answer(prepared.seen, prepared.view, result)
    own, private, persistent = prepared.view.private, prepared.private, prepared.persistent
    return _answered(answer, prepared.task, own, private, persistent)


def _answered(
    answer: Answer,
    task: Task,
    own: Mapping[str, Tensors],
    private: Mapping[str, Tensors],
    persistent: PersistentState,
) -> Outcome:
    """Return an answer encoded, the private state that it leaves, and what it changes for good.

    Of ``private``, all that there was, ``own`` is the algorithm's part.
    """
    ledger = checked_changes(persistent, answer)
    check_relays(task, answer)
    memory = private if task.error_feedback else None
    blobs, dropped = encode_groups(answer.groups, task.codec, task.seed, memory)
    kept = {key: value for key, value in (memory or {}).items() if key.startswith(FEEDBACK)}
    return _finite(
        Outcome(
            status="ok",
            samples=answer.samples,
            metrics=answer.metrics,
            blobs=blobs,
            private={**own, **answer.private, **kept, **dropped},
            device_state=answer.device_state,
            ledger=ledger,
            relays=answer.relays,
        )
    )


def _guarded(step: Callable[[], Done]) -> Done | Outcome:
    """Return what a step comes to, or the failure that it ends in."""
    try:
        return step()
    except Stopped:
        raise
    except EdgeFedError as error:
        return _outcome_of(error)
    except (Exception, SystemExit) as error:
        # Neither a task that only the sender can have got wrong nor the code of a user's own model
        # must end the thread that works.
        return Outcome(status="failed", reason=_brief(error))


def _outcome_of(error: EdgeFedError) -> Outcome:
    """Return a refusal or a failure, whose reason says what to do where there is something."""
    if isinstance(error, Withheld):
        return Outcome(status="refused", reason=error.message)
    if error.code in UNKNOWN:
        error = PluginError(error.message, code=error.code, hint=INSTALL)
    refused = isinstance(error, (ModelTooLargeError, PluginError))
    return Outcome(status="refused" if refused else "failed", reason=error.as_line())


def _brief(error: BaseException) -> str:
    """Return an error that is not ours as one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:1000]
    return " ".join(f"{type(error).__name__}: {error}".split())[:1000]


def _finite(outcome: Outcome) -> Outcome:
    """Return an outcome, or a failure when a metric is a number that no message carries."""
    for name, value in outcome.metrics.items():
        if not math.isfinite(value):
            return Outcome(status="failed", reason=f"{DIVERGED}: its {name} is {value}")
    return outcome


def _times(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape) or "scalars"


def read_blob(data: bytes) -> Tensors:
    """Return the arrays of a canonical blob that was checked against its digest."""
    return unpack(data, None, max_bytes=len(data))
