"""The schedule, augmentation and loss of a job, from a recipe's ``[training]`` table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

from edgefed.config.recipes.images_section import ImagesSection
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.errors import RecipeError, UsageError
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.image_transforms import ImageTransforms
from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Schedule
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.samples.sample_order import batch_sizes, planned_steps
from edgefed.learn.training.user_losses import UserLoss, is_user_loss
from edgefed.seeds import generator
from edgefed.wire.messages import Task

EPOCHS, STEPS = "work_epochs", "work_steps"
"""Parameters of a question: the most epochs, and the most steps, that its device does."""


def schedule_of(training: TrainingSection, number: int, rounds: int = 0) -> Schedule:
    """Return the schedule of a round, counted from 1, of so many.

    The learning rate of round t is ``learning_rate * learning_rate_decay ** (t - 1)``, times the
    factor of its place in the run where ``schedule_over`` is ``run``. Over the round, the rate of
    each step follows from the schedule's ``rates``.

    Args:
        training: the recipe's table.
        number: of the round.
        rounds: planned rounds of the run, as a task carries them.

    Raises:
        UsageError: ``train.schedule``: the schedule spans a run whose rounds are unknown.
    """
    names = {field.name for field in fields(Schedule)} - {"rates"}
    values = {name: getattr(training, name) for name in names}
    rates = _rates(training)
    rate = training.learning_rate * training.learning_rate_decay ** (number - 1)
    if training.schedule_over == "run" and not rates.is_constant:
        if not rounds:
            raise UsageError(
                "The learning rate follows the rounds of the run, whose number is unknown.",
                code="train.schedule",
                hint='set training.schedule_over = "round", or pass the rounds of the task',
            )
        rate *= rates.factor(min(number, rounds) - 1, rounds)
        # The rate contains the place in the run, so it is constant over the round
        rates = RateSchedule()
    return Schedule(**{**values, "learning_rate": rate}, rates=rates)


def shortened(
    schedule: Schedule, training: TrainingSection, params: Mapping[str, Any], seed: int
) -> Schedule:
    """Return the part of a schedule that a task asks for.

    Args:
        schedule: of the round.
        training: the recipe's table; with ``least_epochs``, its epochs are drawn from the task's
            seed. A schedule with other epochs, of a second work, has no draw.
        params: of the task, with ``EPOCHS`` and ``STEPS`` where they are limited.
        seed: of the task.
    """
    epochs = min(schedule.epochs, params.get(EPOCHS, schedule.epochs))
    if training.least_epochs and schedule.epochs == training.epochs:
        draws = generator(seed, "epochs")
        epochs = min(epochs, int(draws.integers(training.least_epochs, training.epochs + 1)))
    # A limit of 0 is none
    limits = [limit for limit in (schedule.max_steps, params.get(STEPS, 0)) if limit]
    return replace(schedule, epochs=epochs, max_steps=min(limits, default=0))


def trained_samples(task: Task, samples: int) -> int:
    """Return on how many samples a device with so many trains for a task, each once an epoch."""
    if not task.training:
        return samples
    training = _section(json.dumps(task.training))
    schedule = schedule_of(training, task.round, task.rounds)
    schedule = shortened(schedule, training, task.params, task.seed)
    per_epoch = max(1, len(batch_sizes(samples, schedule)))
    epochs, more = divmod(planned_steps(samples, schedule), per_epoch)
    return epochs * samples + more * schedule.batch_size


@lru_cache(maxsize=16)
def _section(packed: str) -> TrainingSection:
    """Return the section of a task's training in JSON, which all tasks of an exchange share."""
    return TrainingSection.model_validate(json.loads(packed))


def _rates(training: TrainingSection) -> RateSchedule:
    """Return how the rate changes."""
    return RateSchedule(
        training.schedule,
        training.warm_up,
        training.final_rate,
        training.step_every,
        training.step_factor,
    )


def augment_of(training: TrainingSection, images: ImagesSection) -> Augment | None:
    """Return the augmentation of the images of each batch; None for none.

    A key that is left out has no effect here: a task carries the declarations of the run's data set
    as plain values.
    """
    transforms = transforms_of(images)
    if not training.crop and not training.flip and transforms is None:
        return None
    fill = training.crop_fill or "reflect"
    return Augment(training.crop or 0, fill, bool(training.flip), transforms)


def transforms_of(images: ImagesSection) -> ImageTransforms | None:
    """Return torchvision's transforms of each image; None for none."""
    values = {field.name: getattr(images, field.name) for field in fields(ImageTransforms)}
    transforms = ImageTransforms(**values)
    return transforms if transforms.wanted else None


def objective_of(training: TrainingSection) -> CrossEntropy | SquaredError | UserLoss:
    """Return the loss, which may be a user's own, as an objective by itself."""
    return UserLoss(training.loss) if is_user_loss(training.loss) else loss_of(training)


def loss_of(training: TrainingSection) -> CrossEntropy | SquaredError:
    """Return the loss: an objective by itself, and the basis of mixing objectives.

    Raises:
        RecipeError: ``algorithm.loss``: it is a user's own, of which only the values are known.
    """
    if is_user_loss(training.loss):
        raise RecipeError(
            f"The loss {training.loss} cannot be mixed: only its values are known.",
            code="algorithm.loss",
            hint='set training.loss = "cross_entropy", or choose fedavg',
        )
    if training.loss == "squared_error":
        return SquaredError()
    return CrossEntropy(training.label_smoothing, training.class_weights)


def adjusts_labels(training: TrainingSection) -> bool:
    """Return whether labels are smoothed or classes weighted in training."""
    return training.label_smoothing > 0 or training.class_weights != "none"


def check_label_settings(training: TrainingSection) -> None:
    """Check that label smoothing and class weights can be used with the loss.

    Raises:
        UsageError: ``train.labels``.
    """
    if not adjusts_labels(training):
        return
    key = "label_smoothing" if training.label_smoothing else "class_weights"
    if training.loss != "cross_entropy":
        raise UsageError(
            f"training.{key} belongs to cross-entropy, and the loss is {training.loss}.",
            code="train.labels",
            hint=f'leave out training.{key}, or set training.loss = "cross_entropy"',
        )


def refuse_label_settings(training: TrainingSection, who: str) -> None:
    """Refuse label smoothing and class weights for an algorithm whose loss has no place for them.

    Args:
        training: the recipe's table.
        who: the algorithm and its effect on labels, as the beginning of a sentence.

    Raises:
        RecipeError: ``algorithm.labels``.
    """
    if adjusts_labels(training):
        raise RecipeError(
            f"{who}, and cannot be combined with label smoothing or class weights.",
            code="algorithm.labels",
            hint='set training.label_smoothing = 0 and training.class_weights = "none"',
        )
