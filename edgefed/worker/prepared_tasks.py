"""Do a prepared task and encode its outcome; every error becomes a refusal or a failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from traceback import format_exception
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from edgefed.algorithms.composed.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    DENOMINATOR,
    LOSS_BEFORE,
    NUMERATOR,
    TOP_K_HITS,
    confusion_group,
    measures_of_task,
)
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.interface.device_side import MODE, DeviceTask, DeviceView, Result, Work
from edgefed.errors import DIVERGED, EdgeFedError, PluginError, WireError
from edgefed.files.plugin_failures import plugin_failure
from edgefed.learn.base.types import Score, Tensors
from edgefed.learn.modeling.model_memory import ModelTooLargeError
from edgefed.learn.training.trainer import Stopped, Trainer
from edgefed.process.memory import LARGE, return_freed
from edgefed.sharing.policy import Policy, Withheld
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import (
    Outcome,
    PersistentState,
    checked_changes,
    encode_groups,
    errors_after,
    errors_before,
)
from edgefed.worker.run_work import mode_of, run_work

ReadRelay = Callable[[str], bytes]
"""Returns the bytes of a blob that another device sent, by digest."""


def no_relays(digest: str) -> bytes:
    """Refuse to read, because no blob was sent."""
    raise WireError(f"Blob {digest[:12]} is not here.", code="wire.blob")


def relays_by_sender(task: Task, read: ReadRelay) -> dict[str, tuple[bytes, ...]]:
    """Return the blobs that a task delivers, by sender, in the order of the task."""
    by_sender: dict[str, tuple[bytes, ...]] = {}
    for relay in task.relays:
        by_sender[relay.sender] = (*by_sender.get(relay.sender, ()), read(relay.digest))
    return by_sender


def without_relays(task: Task, kept: Collection[str]) -> Task:
    """Return a task that delivers these blobs only, by digest."""
    if all(relay.digest in kept for relay in task.relays):
        return task
    relays = tuple(relay for relay in task.relays if relay.digest in kept)
    return task.model_copy(update={"relays": relays})


def check_relays(task: Task, answer: Answer) -> None:
    """Check the blobs of an answer for other devices, as the coordinator does.

    Raises:
        ValueError: the task does not allow it.
    """
    for receiver, data in answer.relays.items():
        if receiver not in task.receivers:
            raise ValueError(f"relays: the task does not name {receiver} as a receiver")
        if not 0 < len(data) <= task.max_relay_bytes:
            most = task.max_relay_bytes
            raise ValueError(f"relays: {len(data)} bytes for {receiver}; it may be 1 to {most}")


Done = TypeVar("Done")

UNKNOWN = ("algorithm.unknown", "model.unknown")
"""Codes of errors about a task that names objects that this device does not have."""

MAX_REASON = 1000
"""Most characters of the reason of a failure."""

INSTALL = "if a package offers it, install that package on this device"
"""Advice for them."""


@dataclass(frozen=True)
class Prepared:
    """A task before its training or test.

    Attributes:
        trainer: has the task's model.
        work: the trainer's.
        view: the device's samples, of which a ``Job`` trains on ``view.train``.
        private: the device's private state of this run, all of it.
        persistent: the device's state across runs.
    """

    task: Task
    algorithm: Algorithm[Any]
    trainer: Trainer
    seen: DeviceTask
    view: DeviceView
    private: Mapping[str, Tensors]
    persistent: PersistentState
    work: Work


def complete(
    begun: Prepared | Outcome,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Outcome:
    """Train or test, and return the outcome; see ``Worker.work``.

    Raises:
        Stopped: ``stop`` returned True.
    """
    if isinstance(begun, Outcome):
        return begun
    encode = _encoder(begun)
    answer = guarded(partial(_worked, begun, progress, stop))
    # The weights from before and after the training have a model's size each; encoding needs none.
    del begun
    if isinstance(answer, Answer) and _nbytes(answer) >= LARGE:
        return_freed()
    return encode(answer)


def _nbytes(answer: Answer) -> int:
    arrays = (array for group in answer.groups.values() for array in group.arrays.values())
    return sum(array.nbytes for array in arrays)


def finish(prepared: Prepared, result: Result | EdgeFedError) -> Outcome:
    """Return the outcome of a task whose work was done elsewhere, or failed there; never raises."""
    if isinstance(result, EdgeFedError):
        return _outcome_of(result)
    return _encoder(prepared)(guarded(lambda: _answer(prepared, result)))


def _worked(
    prepared: Prepared,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
) -> Answer | Outcome:
    """Do the work and return its answer, or the outcome of a test."""
    return _answer(prepared, _result(prepared, progress, stop))


def _result(
    prepared: Prepared,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
) -> Result:
    measures = measures_of_task(prepared.task)
    trainer, own = prepared.trainer, prepared.view.train
    return run_work(trainer, prepared.work, own, progress, stop, measures)


def _answer(prepared: Prepared, result: Result) -> Answer | Outcome:
    if prepared.task.question == "evaluate":
        mode, policy = mode_of(prepared.work), prepared.view.policy
        return _finite(scored(prepared.task, result, mode, policy))
    return prepared.algorithm.answer(prepared.seen, prepared.view, result)


def _encoder(prepared: Prepared) -> Callable[[Answer | Outcome], Outcome]:
    """Return a function that encodes the task's answer, and refers to no weights of the task."""
    task, own = prepared.task, prepared.view.private
    private, persistent = prepared.private, prepared.persistent

    def encode(answer: Answer | Outcome) -> Outcome:
        if isinstance(answer, Outcome):
            return answer
        return guarded(lambda: answered(answer, task, own, private, persistent))

    return encode


def answered(
    answer: Answer,
    task: Task,
    own: Mapping[str, Tensors],
    private: Mapping[str, Tensors],
    persistent: PersistentState,
) -> Outcome:
    """Return the encoded answer, the private state after it, and its changes across runs.

    ``own`` is the algorithm's part of ``private``.
    """
    if answer.if_accepted:
        raise ValueError("if_accepted: the algorithm does not declare keeps_if_accepted")
    ledger = checked_changes(persistent, answer)
    check_relays(task, answer)
    memory = errors_before(task, private) if task.error_feedback else None
    pending = task.number >= 0  # then the errors stay beside those of this answer
    before = dict(memory) if memory is not None and pending else memory
    blobs, dropped = encode_groups(answer.groups, task.codec, task.seed, before)
    kept = errors_after(task, memory or {}, dropped)
    return _finite(
        Outcome(
            status="ok",
            samples=answer.samples,
            metrics=answer.metrics,
            blobs=blobs,
            private={**own, **answer.private, **kept},
            device_state=answer.device_state,
            ledger=ledger,
            relays=answer.relays,
        )
    )


def guarded(step: Callable[[], Done]) -> Done | Outcome:
    """Return the result of a step, or the failure that it ends in."""
    try:
        return step()
    except Stopped:
        raise
    except EdgeFedError as error:
        return _outcome_of(error)
    except (Exception, SystemExit) as error:
        # Neither a task that only the sender can have got wrong nor the code of a user's own model
        # must end the thread that works.
        failure = plugin_failure(error)
        reason = _brief(error) if failure is None else failure.as_line()
        trace = "".join(format_exception(error))
        return Outcome(status="failed", reason=reason[:MAX_REASON], trace=trace)


def _outcome_of(error: EdgeFedError) -> Outcome:
    """Return a refusal or a failure, with advice in its reason where there is any."""
    if isinstance(error, Withheld):
        return Outcome(status="refused", reason=error.message)
    if error.code in UNKNOWN:
        error = PluginError(error.message, code=error.code, hint=INSTALL)
    refused = isinstance(error, (ModelTooLargeError, PluginError))
    trace = "".join(format_exception(error)) if error.__cause__ else ""
    status: Literal["refused", "failed"] = "refused" if refused else "failed"
    return Outcome(status=status, reason=error.as_line(), trace=trace)


def _brief(error: BaseException) -> str:
    """Return an error that is not ours as one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return " ".join(f"{type(error).__name__}: {error}".split())


def _finite(outcome: Outcome) -> Outcome:
    """Return an outcome, or a failure when a metric is a number that no message carries."""
    for name, value in outcome.metrics.items():
        if not math.isfinite(value):
            return Outcome(status="failed", reason=f"{DIVERGED}: its {name} is {value}")
    return outcome


def scored(task: Task, result: Result, mode: str, policy: Policy) -> Outcome:
    """Return the outcome of a device's test.

    Counts by label disclose the labels that it holds out; a device that does not share its labels
    sends none.

    Args:
        task: the test's.
        result: of the test.
        mode: the test's mode, or nothing.
        policy: of the device's owner.
    """
    if not isinstance(result, Score) or result.samples == 0:
        return Outcome(status="refused", reason="the device holds out no samples for evaluation")
    metrics = {"loss": result.loss}
    if result.accuracy is not None:
        metrics["accuracy"] = result.accuracy
    if result.top_k_hits is not None:
        metrics[TOP_K_HITS] = float(result.top_k_hits)
    if result.before is not None:
        metrics[LOSS_BEFORE] = result.before.loss
        if result.before.accuracy is not None:
            metrics[ACCURACY_BEFORE] = result.before.accuracy
    for name, (numerator, denominator) in result.fractions.items():
        metrics |= {NUMERATOR + name: numerator, DENOMINATOR + name: denominator}
    if mode:
        metrics[MODE + mode] = 1.0
    groups = {}
    if result.confusion is not None and policy.share_labels:
        groups[CONFUSION] = confusion_group(result.confusion)
    blobs, _ = encode_groups(groups, "fp32", task.seed, None)
    return Outcome(status="ok", samples=result.samples, metrics=metrics, blobs=blobs)
