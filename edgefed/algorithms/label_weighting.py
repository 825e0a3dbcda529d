"""What algorithms share whose local loss depends on a device's numbers of samples of each label."""

from __future__ import annotations

from dataclasses import replace

from edgefed.algorithms.base import Answer, DeviceView, Work
from edgefed.config.recipe import TrainingSection
from edgefed.errors import RecipeError
from edgefed.learn.objectives.label_counts import COUNTS, label_counts
from edgefed.learn.types import Job


def with_label_counts(work: Work | Answer, device: DeviceView) -> Work | Answer:
    """Return a training job with the numbers of the device's own samples among its extras."""
    assert isinstance(work, Job)
    counts = label_counts(device.train, device.model.classes)
    return replace(work, extra={**work.extra, COUNTS: counts})


def check_labels(algorithm: str, training: TrainingSection) -> None:
    """Check that a run has labels.

    Args:
        algorithm: its name, for the message.
        training: the recipe's.

    Raises:
        RecipeError: ``algorithm.labels``: the loss is squared error.
    """
    if training.loss == "squared_error":
        raise RecipeError(
            f"{algorithm} weighs labels, and squared error has none.",
            code="algorithm.labels",
            hint='set training.loss = "cross_entropy", or choose fedavg',
        )
