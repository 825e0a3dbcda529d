"""Train many virtual devices in one batch; faster on a GPU, which one small model underuses.

A device's reply equals the reply of a device that trains alone up to rounding; see
``edgefed.learn.training.stacked_trainer``. Which devices share a batch depends only on the orders
of the
exchange and the chunk size, so a run gives the same bits whether it was killed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event

from edgefed.data.base.types import Shard
from edgefed.data.devices.dealt_shards import outlines
from edgefed.errors import DataError, UsageError
from edgefed.learn.base.transfers import is_remote
from edgefed.learn.base.types import Job, Tensors, Trained
from edgefed.learn.training.stacked_trainer import CHUNK, StackedTrainer
from edgefed.learn.training.trainer import Stopped, Trainer
from edgefed.learn.training.warm_trainers import UNBOUNDED
from edgefed.process.clock import Clock, SystemClock
from edgefed.simulator.executors import WorkOrder, arrays_of, kept_workers
from edgefed.worker.outcomes import Outcome
from edgefed.worker.prepared_tasks import Prepared, complete, finish
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system
from edgefed.worker.trainer_cache import TrainerCache


@dataclass(frozen=True)
class _WaitingOrder:
    """An order that waits for others to be trained with.

    Attributes:
        seconds: that its preparation took.
    """

    order: WorkOrder
    prepared: Prepared
    job: Job
    seconds: float


@dataclass(frozen=True)
class _Together:
    """The results of devices that trained at once; None where they could not.

    Attributes:
        seconds: that their training took.
    """

    results: list[Trained | DataError] | None
    seconds: float


Outcomes = Iterator[tuple[WorkOrder, Outcome]]


class StackedExecutor:
    """Trains the devices of an exchange together; does all other tasks one after another.

    On a GPU, the outcomes of one chunk are coded, and checked by the caller, while the next chunk
    trains. Their order and bits are the same.

    Args:
        shards: the devices' data.
        chunk: most devices that train at once, at least 1; memory grows with it. At most so many
            orders are prepared ahead.
        tell: called once with how a model is trained, and why not as requested.
        trainers: warm trainers.
        clock: measures each device's work; devices trained together get equal shares. None for the
            machine's.
        private_randomness: gives the generator of a task's privacy noise.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        chunk: int = CHUNK,
        tell: Callable[[str], None] = lambda text: None,
        trainers: TrainerCache | None = None,
        clock: Clock | None = None,
        private_randomness: PrivateRandomness = from_operating_system,
    ) -> None:
        shared = trainers or TrainerCache(user_models=True, memory=UNBOUNDED)
        self._clock = clock or SystemClock()
        self._worker = kept_workers(shards, shared, private_randomness)
        self._sizes = [len(shard.train) for shard in outlines(shards)]
        self._chunk = chunk
        self._tell = tell
        self._explained: set[str] = set()
        self._stacks: dict[Trainer, StackedTrainer | None] = {}

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Outcomes:
        """Yield outcomes, those of the largest devices first; see ``Executor``."""
        decoded: dict[str, Tensors] = {}
        waiting: list[_WaitingOrder] = []
        coding: Outcomes = iter(())
        try:
            # Devices of one size take all their steps together.
            for order in sorted(orders, key=lambda order: -self._sizes[order.device]):
                if stop():
                    yield from coding
                    return
                start = self._clock.monotonic()
                begun = self._worker(order.device).begin(
                    order.task,
                    arrays_of(order, read, decoded),
                    order.private,
                    order.persistent,
                    read,
                )
                if isinstance(begun, Prepared) and isinstance(begun.work, Job):
                    spent = self._clock.monotonic() - start
                    waiting.append(_WaitingOrder(order, begun, begun.work, spent))
                else:
                    outcome = self._timed(complete(begun, stop=stop), start)
                    yield from coding
                    yield order, outcome
                if len(waiting) == self._chunk:
                    coding = yield from self._train(waiting, coding, stop)
                    waiting = []
            coding = yield from self._train(waiting, coding, stop)
            yield from coding
        except Stopped:
            return

    def close(self) -> None:
        """Do nothing: no process was started."""

    def _train(
        self, waiting: Sequence[_WaitingOrder], coding: Outcomes, stop: Callable[[], bool]
    ) -> Generator[tuple[WorkOrder, Outcome], None, Outcomes]:
        """Train the waiting devices, those with one model together.

        Yield the outcomes ``coding`` of those before, and return those that are still to be coded.
        """
        # Not a set, whose order may differ between processes
        for trainer in dict.fromkeys(device.prepared.trainer for device in waiting):
            part = [device for device in waiting if device.prepared.trainer is trainer]
            stack = None if self._carries(part) else self._stack(trainer)
            if stack is None:
                yield from coding
                coding = self._coded(part, None, stop)
            elif is_remote(stack.device):
                done = yield from self._beside(stack, part, coding, stop)
                coding = self._coded(part, done, stop)
                if done.results is not None:
                    continue
            else:
                coding = self._coded(part, self._together(stack, part, stop), stop)
            yield from coding
            coding = iter(())
        return coding

    def _beside(
        self,
        stack: StackedTrainer,
        part: Sequence[_WaitingOrder],
        coding: Outcomes,
        stop: Callable[[], bool],
    ) -> Generator[tuple[WorkOrder, Outcome], None, _Together]:
        """Train devices in a thread; code the outcomes before here, where the caller checks them.

        Coding uses no random generator of torch's, which belong to the training meanwhile.
        """
        unread = Event()
        with ThreadPoolExecutor(1, "training") as pool:
            training = pool.submit(self._together, stack, part, lambda: unread.is_set() or stop())
            try:
                yield from coding
            except GeneratorExit:
                # Without a reader the training ends too; the end of the block waits for it
                unread.set()
                raise
        return training.result()

    def _coded(
        self, part: Sequence[_WaitingOrder], done: _Together | None, stop: Callable[[], bool]
    ) -> Outcomes:
        """Yield outcomes of devices, which train one after another if they did not together."""
        for place, device in enumerate(part):
            if done is None or done.results is None:
                start = self._clock.monotonic()
                outcome = self._timed(complete(device.prepared, stop=stop), start)
            else:
                outcome = finish(device.prepared, done.results[place])
                outcome = replace(outcome, seconds=done.seconds / len(part))
            yield device.order, replace(outcome, seconds=outcome.seconds + device.seconds)

    def _carries(self, part: Sequence[_WaitingOrder]) -> bool:
        """Return whether a recurrent state is carried, which no stack does; say so."""
        carried = any(device.job.schedule.carry_state for device in part)
        if carried:
            self._say("trains one device after another: training.carry_state is set")
        return carried

    def _timed(self, outcome: Outcome, start: float) -> Outcome:
        """Return an outcome with the time since ``start``."""
        return replace(outcome, seconds=self._clock.monotonic() - start)

    def _together(
        self, stack: StackedTrainer, part: Sequence[_WaitingOrder], stop: Callable[[], bool]
    ) -> _Together:
        """Train devices at once; no results where that fails, which one may be the cause of."""
        jobs = [device.job for device in part]
        samples = [device.prepared.view.train for device in part]
        start = self._clock.monotonic()
        try:
            results = stack.attempt(jobs, samples, stop)
        except Stopped:
            raise
        except (Exception, SystemExit) as error:
            # An objective, or a model of a user's own, that torch cannot batch, or that one
            # device's samples break; alone, each device tells its own reason.
            self._say(f"not trained at once, but one device after another: {_brief(error)}")
            return _Together(None, self._clock.monotonic() - start)
        return _Together(results, self._clock.monotonic() - start)

    def _stack(self, trainer: Trainer) -> StackedTrainer | None:
        """Return the trainer of this model for many devices; None where it is not possible."""
        if trainer not in self._stacks:
            device = str(trainer.device)
            try:
                self._stacks[trainer] = StackedTrainer(
                    trainer.model, device, self._chunk, sum(self._sizes)
                )
                self._say(f"trains up to {self._chunk} devices at once on {device}")
            except UsageError as error:
                self._stacks[trainer] = None
                self._say(f"trains one device after another on {device}: {error.message}")
        return self._stacks[trainer]

    def _say(self, text: str) -> None:
        """Tell something once."""
        if text not in self._explained:
            self._explained.add(text)
            self._tell(text)


def _brief(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
