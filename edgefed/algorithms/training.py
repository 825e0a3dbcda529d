"""The schedule, augmentation and loss of a job, from a recipe's ``[training]`` table."""

from __future__ import annotations

from dataclasses import fields

from edgefed.config.recipe import TrainingSection
from edgefed.errors import RecipeError
from edgefed.learn.augment import Augment
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.types import Schedule
from edgefed.learn.user_losses import UserLoss, is_user_loss


def schedule_of(training: TrainingSection, number: int) -> Schedule:
    """Return the schedule of a round, counted from 1.

    The learning rate of round t is ``learning_rate * learning_rate_decay ** (t - 1)``, the same for
    all of its steps.
    """
    values = {field.name: getattr(training, field.name) for field in fields(Schedule)}
    decay = training.learning_rate_decay ** (number - 1)
    return Schedule(**{**values, "learning_rate": training.learning_rate * decay})


def augment_of(training: TrainingSection) -> Augment | None:
    """Return what is done to the images of each batch; None for nothing.

    A key that is left out does nothing here: a task says in plain values what the run's data set
    declares.
    """
    if not training.crop and not training.flip:
        return None
    return Augment(training.crop or 0, training.crop_fill or "reflect", bool(training.flip))


def objective_of(training: TrainingSection) -> CrossEntropy | SquaredError | UserLoss:
    """Return the loss, which may be a user's own, as an objective by itself."""
    return UserLoss(training.loss) if is_user_loss(training.loss) else loss_of(training)


def loss_of(training: TrainingSection) -> CrossEntropy | SquaredError:
    """Return the loss: an objective by itself, and what mixing objectives are made of.

    Raises:
        RecipeError: ``algorithm.loss``: it is a user's own, of which nothing more is known.
    """
    if is_user_loss(training.loss):
        raise RecipeError(
            f"The loss {training.loss} cannot be mixed: only its values are known.",
            code="algorithm.loss",
            hint='set training.loss = "cross_entropy", or choose fedavg',
        )
    return SquaredError() if training.loss == "squared_error" else CrossEntropy()
