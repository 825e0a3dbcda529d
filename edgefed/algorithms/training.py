"""The schedule, augmentation and loss of a job, from a recipe's ``[training]`` table."""

from __future__ import annotations

from dataclasses import fields

from edgefed.config.recipe import ImagesSection, TrainingSection
from edgefed.learn.augment import Augment
from edgefed.learn.image_transforms import ImageTransforms
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.types import Schedule


def schedule_of(training: TrainingSection, number: int) -> Schedule:
    """Return the schedule of a round, counted from 1.

    The learning rate of round t is ``learning_rate * learning_rate_decay ** (t - 1)``, the same for
    all of its steps.
    """
    values = {field.name: getattr(training, field.name) for field in fields(Schedule)}
    decay = training.learning_rate_decay ** (number - 1)
    return Schedule(**{**values, "learning_rate": training.learning_rate * decay})


def augment_of(training: TrainingSection, images: ImagesSection) -> Augment | None:
    """Return what is done to the images of each batch; None for nothing.

    A key that is left out does nothing here: a task says in plain values what the run's data set
    declares.
    """
    transforms = transforms_of(images)
    if not training.crop and not training.flip and transforms is None:
        return None
    fill = training.crop_fill or "reflect"
    return Augment(training.crop or 0, fill, bool(training.flip), transforms)


def transforms_of(images: ImagesSection) -> ImageTransforms | None:
    """Return what torchvision does to each image; None for nothing."""
    values = {field.name: getattr(images, field.name) for field in fields(ImageTransforms)}
    transforms = ImageTransforms(**values)
    return transforms if transforms.wanted else None


def loss_of(training: TrainingSection) -> CrossEntropy | SquaredError:
    """Return the loss: an objective by itself, and what mixing objectives are made of."""
    return SquaredError() if training.loss == "squared_error" else CrossEntropy()
