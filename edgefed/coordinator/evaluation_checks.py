"""Validate a device's test of the model: its accuracy, its top-k hits, and its counts by label."""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.algorithms.base import Group
from edgefed.algorithms.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    COUNTS,
    DENOMINATOR,
    NUMERATOR,
    TOP_K_HITS,
    measures_of_task,
)
from edgefed.config.user_functions import metric_name
from edgefed.evaluation.confusion import MAX_SAMPLES, Confusion, counts_problem
from edgefed.wire.messages import Reply, Task


def evaluation_problem(reply: Reply, groups: Mapping[str, Group], task: Task) -> str:
    """Return why the numbers of a test do not fit together, or nothing.

    Args:
        reply: the device's.
        groups: its decoded arrays, of the shapes that were asked for.
        task: what was asked.
    """
    if reply.samples > MAX_SAMPLES:
        return f"it tested {reply.samples} samples"
    measures = measures_of_task(task)
    for name in map(metric_name, measures.metrics):
        whole = reply.metrics.get(DENOMINATOR + name)
        if NUMERATOR + name not in reply.metrics or whole is None or whole < 0:
            return f"its metric {name} is no fraction"
    if not 0 <= reply.metrics.get(ACCURACY_BEFORE, 0) <= 1:
        return f"its accuracy before fine-tuning is {reply.metrics[ACCURACY_BEFORE]:.3g}"
    accuracy = reply.metrics.get("accuracy")
    if accuracy is None:
        return "it has counts but no accuracy" if CONFUSION in groups else ""
    if not 0 <= accuracy <= 1:
        return f"its accuracy is {accuracy:.3g}"
    hits = round(accuracy * reply.samples)
    if measures.top_k:
        top = reply.metrics.get(TOP_K_HITS)
        if top is None or top != int(top) or not hits <= top <= reply.samples:
            return f"it has {top} top-k hits of {reply.samples} samples, {hits} of them right"
    if CONFUSION not in groups:
        return ""
    return counts_problem(Confusion(groups[CONFUSION].arrays[COUNTS]), reply.samples, hits)
