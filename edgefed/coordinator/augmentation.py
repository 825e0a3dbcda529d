"""How a run prepares images: as the recipe says, else as its data set declares.

Tasks carry them as plain values, because a real device has its own data. Virtual and real devices
therefore do the same.
"""

from __future__ import annotations

from edgefed.algorithms.training import augment_of
from edgefed.config.recipe import Recipe
from edgefed.data.types import Preparation
from edgefed.learn.augment import check_augment


def with_augmentation(recipe: Recipe, declared: Preparation) -> Recipe:
    """Return the recipe with what the data set declares in every key that it leaves out.

    These are crops and flips of ``[training]``, and ``mean`` and ``std`` of ``[images]``. What
    comes to nothing is left out after all, so that tasks do not carry it.
    """
    training = recipe.training
    crop = declared.crop if training.crop is None else training.crop
    flip = declared.flip if training.flip is None else training.flip
    fill = (training.crop_fill or declared.crop_fill) if crop else None
    stated = {"crop": crop or None, "crop_fill": fill, "flip": flip or None}
    images = recipe.images
    if not images.mean:
        images = images.model_copy(update={"mean": declared.mean, "std": declared.std})
    return recipe.model_copy(
        update={"training": training.model_copy(update=stated), "images": images}
    )


def check_augmentation(recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Check that inputs of ``shape`` can be augmented as the recipe says.

    Raises:
        DataError: they are no images, or too small for the crop.
    """
    augment = augment_of(recipe.training, recipe.images)
    if augment is not None:
        check_augment(augment, shape)
