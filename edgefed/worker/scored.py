"""The outcome of a device's test of the model."""

from __future__ import annotations

from edgefed.algorithms.device_side import MODE, Result
from edgefed.algorithms.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    DENOMINATOR,
    LOSS_BEFORE,
    NUMERATOR,
    TOP_K_HITS,
    confusion_group,
)
from edgefed.learn.types import Score
from edgefed.sharing.policy import Policy
from edgefed.wire.messages import Task
from edgefed.worker.outcome import Outcome
from edgefed.worker.uplink import encode_groups


def scored(task: Task, result: Result, mode: str, policy: Policy) -> Outcome:
    """Return what a device sends of a test.

    Counts by label tell which labels it holds out; one that does not share its labels sends none.

    Args:
        task: the test's.
        result: of the test.
        mode: the test's mode, or nothing.
        policy: what the device's owner shares.
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
