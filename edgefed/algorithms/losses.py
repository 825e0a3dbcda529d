"""Which loss local training descends, from a recipe's ``[training]`` table."""

from __future__ import annotations

from edgefed.config.recipe import TrainingSection
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.squared_error import SquaredError


def loss_of(training: TrainingSection) -> CrossEntropy | SquaredError:
    """Return the loss: an objective by itself, and what mixing objectives are made of."""
    return SquaredError() if training.loss == "squared_error" else CrossEntropy()
