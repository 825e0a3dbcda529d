"""How long and how fast a device trains in a given round."""

from __future__ import annotations

from dataclasses import fields

from edgefed.config.recipe import TrainingSection
from edgefed.learn.types import Schedule


def schedule_of(training: TrainingSection, number: int) -> Schedule:
    """Return the schedule of a round, counted from 1.

    The learning rate of round t is ``learning_rate * learning_rate_decay ** (t - 1)``, the same for
    all of its steps.
    """
    values = {field.name: getattr(training, field.name) for field in fields(Schedule)}
    decay = training.learning_rate_decay ** (number - 1)
    return Schedule(**{**values, "learning_rate": training.learning_rate * decay})
