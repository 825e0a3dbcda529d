"""Train many virtual devices in one batch; faster on a GPU, which one small model underuses.

A device's reply equals the reply of a device that trains alone up to rounding; see
``edgefed.learn.training.stacked_trainer``. Which devices share a batch depends only on the orders
of the
exchange and the chunk size, so a run gives the same bits whether it was killed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from edgefed.data.base.types import Shard
from edgefed.data.devices.dealt_shards import outlines
from edgefed.errors import UsageError
from edgefed.learn.base.types import Job, Tensors
from edgefed.learn.training.stacked_trainer import CHUNK, StackedTrainer
from edgefed.learn.training.trainer import Stopped, Trainer
from edgefed.learn.training.warm_trainers import UNBOUNDED
from edgefed.process.clock import Clock, SystemClock
from edgefed.simulator.executors import WorkOrder, arrays_of, kept_workers
from edgefed.worker.completion import Prepared, complete, finish
from edgefed.worker.private_randomness import PrivateRandomness, from_operating_system
from edgefed.worker.replies import Outcome
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


class StackedExecutor:
    """Trains the devices of an exchange together; does all other tasks one after another.

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
        self._told: set[str] = set()
        self._stacks: dict[Trainer, StackedTrainer | None] = {}

    def outcomes(
        self,
        orders: Sequence[WorkOrder],
        read: Callable[[str], bytes],
        stop: Callable[[], bool],
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Yield outcomes, those of the largest devices first; see ``Executor``."""
        decoded: dict[str, Tensors] = {}
        waiting: list[_WaitingOrder] = []
        try:
            # Devices of one size take all their steps together.
            for order in sorted(orders, key=lambda order: -self._sizes[order.device]):
                if stop():
                    return
                start = self._clock.monotonic()
                begun = self._worker(order.device).begin(
                    order.task,
                    arrays_of(order, read, decoded),
                    order.private,
                    order.persistent,
                    read,
                )
                if isinstance(begun, Outcome):
                    yield order, self._timed(begun, start)
                elif not isinstance(begun.work, Job):
                    yield order, self._timed(complete(begun, stop=stop), start)
                else:
                    spent = self._clock.monotonic() - start
                    waiting.append(_WaitingOrder(order, begun, begun.work, spent))
                if len(waiting) == self._chunk:
                    yield from self._train(waiting, stop)
                    waiting = []
            yield from self._train(waiting, stop)
        except Stopped:
            return

    def close(self) -> None:
        """Do nothing: no process was started."""

    def _train(
        self, waiting: Sequence[_WaitingOrder], stop: Callable[[], bool]
    ) -> Iterator[tuple[WorkOrder, Outcome]]:
        """Train the waiting devices, those with one model together."""
        for trainer in dict.fromkeys(device.prepared.trainer for device in waiting):
            part = [device for device in waiting if device.prepared.trainer is trainer]
            stack = None if self._carries(part) else self._stack(trainer)
            start = self._clock.monotonic()
            done = None if stack is None else self._together(stack, part, stop)
            share = (self._clock.monotonic() - start) / len(part)
            for place, device in enumerate(part):
                if done is None:
                    start = self._clock.monotonic()
                    outcome = self._timed(complete(device.prepared, stop=stop), start)
                else:
                    outcome = replace(done[place], seconds=share)
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
    ) -> list[Outcome] | None:
        """Train devices at once; None where that fails, which one of them may be the cause of."""
        jobs = [device.job for device in part]
        samples = [device.prepared.view.train for device in part]
        try:
            results = stack.attempt(jobs, samples, stop)
        except Stopped:
            raise
        except (Exception, SystemExit) as error:
            # An objective, or a model of a user's own, that torch cannot batch, or that one
            # device's samples break; alone, each device tells its own reason.
            self._say(f"not trained at once, but one device after another: {_brief(error)}")
            return None
        return [
            finish(device.prepared, result) for device, result in zip(part, results, strict=True)
        ]

    def _stack(self, trainer: Trainer) -> StackedTrainer | None:
        """Return the trainer of this model for many devices; None where it is not possible."""
        if trainer not in self._stacks:
            device = str(trainer.device)
            try:
                self._stacks[trainer] = StackedTrainer(trainer.model, device, self._chunk)
                self._say(f"trains up to {self._chunk} devices at once on {device}")
            except UsageError as error:
                self._stacks[trainer] = None
                self._say(f"trains one device after another on {device}: {error.message}")
        return self._stacks[trainer]

    def _say(self, text: str) -> None:
        """Tell something once."""
        if text not in self._told:
            self._told.add(text)
            self._tell(text)


def _brief(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
