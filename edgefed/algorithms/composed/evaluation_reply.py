"""The parts of a device's reply to an ``evaluate`` task beside loss and accuracy."""

from __future__ import annotations

from dataclasses import replace

from edgefed.algorithms.interface.answer import Group
from edgefed.algorithms.interface.exchange import Exchange, ReplyRole
from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.evaluation.confusion import Confusion, counts_shape
from edgefed.learn.training.measures import NOTHING_MORE, Measures, measures_of
from edgefed.wire.messages import Task
from edgefed.wire.tensors import TensorSpec

CONFUSION = "confusion"
"""Role of a device's counts by true and predicted label."""

COUNTS = "counts"
"""Name of their array."""

NUMERATOR, DENOMINATOR = "numerator_", "denominator_"
"""Before the name of a user's own metric in the names of its two numbers."""

ACCURACY_BEFORE, LOSS_BEFORE = "accuracy_before", "loss_before"
"""Names of the scores before a device fine-tuned the model."""

TOP_K_HITS = "top_k_hits"
"""Name of the metric that is the number of top-k hits."""


def measures_of_task(task: Task) -> Measures:
    """Return the measurements that a task requests beside loss and accuracy.

    Raises:
        ValidationError: its sections are not valid.
    """
    if not task.evaluation:
        return NOTHING_MORE
    section = EvaluationSection.model_validate(task.evaluation)
    loss = TrainingSection.model_validate(task.training).loss
    return measures_of(section, loss, task.classes)


def with_confusion(asked: Exchange, measures: Measures, classes: int) -> Exchange:
    """Return a test's exchange whose answers may hold counts, if the run measures them.

    They are optional, because a device that does not share its labels sends none.
    """
    shape = counts_shape(classes)
    if asked.name != "evaluate" or not measures.confusion or shape is None:
        return asked
    role = ReplyRole({COUNTS: TensorSpec("int64", shape)}, largest=0.0, optional=True)
    return replace(asked, reply_roles={**asked.reply_roles, CONFUSION: role})


def confusion_group(confusion: Confusion) -> Group:
    """Return counts as a reply sends them, exactly."""
    return Group({COUNTS: confusion.counts}, "fp32")
