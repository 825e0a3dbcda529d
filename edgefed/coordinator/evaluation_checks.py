"""Validate a device's test of the model: its samples, its scores, and its counts by label."""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.algorithms.answer import Group
from edgefed.algorithms.evaluation_reply import (
    ACCURACY_BEFORE,
    CONFUSION,
    COUNTS,
    DENOMINATOR,
    LOSS_BEFORE,
    NUMERATOR,
    TOP_K_HITS,
    measures_of_task,
)
from edgefed.config.user_functions import metric_name
from edgefed.evaluation.confusion import MAX_SAMPLES, Confusion, counts_problem
from edgefed.learn.user_losses import is_user_loss
from edgefed.units import counted
from edgefed.wire.messages import Reply, Task


def evaluation_problem(
    reply: Reply, groups: Mapping[str, Group], task: Task, held_out: int | None = None
) -> str:
    """Return why the numbers of a test do not fit together, or nothing.

    Args:
        reply: the device's.
        groups: its decoded arrays, of the shapes that were asked for.
        task: what was asked.
        held_out: how many samples the device had announced to hold out; None if nobody knows.
    """
    if reply.samples > MAX_SAMPLES:
        return f"it tested {reply.samples} samples"
    if held_out is not None and reply.samples > held_out:
        announced = counted(held_out, "held-out sample")
        return f"it tested {reply.samples} samples, and its device announced {announced}"
    return _scores_problem(reply, groups, task)


def _scores_problem(reply: Reply, groups: Mapping[str, Group], task: Task) -> str:
    """Return why the scores of a test do not fit together or to what was asked, or nothing."""
    absent = [name for name in _asked_scores(task) if name not in reply.metrics]
    if absent:
        return f"it lacks the {absent[0].replace('_', ' ')}"
    if problem := _metrics_problem(reply, task):
        return problem
    accuracy = reply.metrics.get("accuracy")
    if accuracy is None:
        return "it has counts but no accuracy" if CONFUSION in groups else ""
    if not 0 <= accuracy <= 1:
        return f"its accuracy is {accuracy:.3g}"
    hits = round(accuracy * reply.samples)
    if measures_of_task(task).top_k:
        top = reply.metrics.get(TOP_K_HITS)
        if top is None or top != int(top) or not hits <= top <= reply.samples:
            return f"it has {top} top-k hits of {reply.samples} samples, {hits} of them right"
    if CONFUSION not in groups:
        return ""
    return counts_problem(Confusion(groups[CONFUSION].arrays[COUNTS]), reply.samples, hits)


def _metrics_problem(reply: Reply, task: Task) -> str:
    """Return why a user's own metric, or the accuracy before fine-tuning, is none; or nothing."""
    for name in map(metric_name, measures_of_task(task).metrics):
        whole = reply.metrics.get(DENOMINATOR + name)
        if NUMERATOR + name not in reply.metrics or whole is None or whole < 0:
            return f"its metric {name} is no fraction"
    if not 0 <= reply.metrics.get(ACCURACY_BEFORE, 0) <= 1:
        return f"its accuracy before fine-tuning is {reply.metrics[ACCURACY_BEFORE]:.3g}"
    return ""


def _asked_scores(task: Task) -> tuple[str, ...]:
    """Return the scores without which a test counts for nothing; a missing one would be a zero.

    Of a user's own loss only the device's targets tell whether there is an accuracy.
    """
    loss = task.training.get("loss", "cross_entropy")
    tuned = task.personal.get("fine_tune_epochs", 0) > 0
    labelled = loss != "squared_error" and not is_user_loss(loss)
    losses = ("loss", LOSS_BEFORE) if tuned else ("loss",)
    accuracies = ("accuracy", ACCURACY_BEFORE) if tuned else ("accuracy",)
    return (*losses, *accuracies) if labelled else losses
