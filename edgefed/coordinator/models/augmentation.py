"""How a run prepares images: as the recipe says, else as its data set declares.

Tasks carry them as plain values, because a real device has its own data. Virtual and real devices
therefore do the same.
"""

from __future__ import annotations

from dataclasses import replace

from edgefed.algorithms.averaging.training import augment_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.types import Dataset, Preparation
from edgefed.data.devices.run_scale import with_scale
from edgefed.errors import DataError, RecipeError
from edgefed.files.samples import PixelScale
from edgefed.learn.base.augment import check_augment
from edgefed.learn.networks.torchvision_classifiers import IMAGENET, is_torchvision


def with_augmentation(recipe: Recipe, declared: Preparation) -> Recipe:
    """Return the recipe, with the data set's declarations for the keys that it leaves out.

    These are crops and flips of ``[training]``, and ``mean`` and ``std`` of ``[images]``. If
    neither states a scale, images for a network of torchvision are scaled as its weights expect.
    Settings without effect are left out, so that tasks do not carry them.
    """
    training = recipe.training
    crop = declared.crop if training.crop is None else training.crop
    flip = declared.flip if training.flip is None else training.flip
    fill = (training.crop_fill or declared.crop_fill) if crop else None
    stated = {"crop": crop or None, "crop_fill": fill, "flip": flip or None}
    images = recipe.images
    if not images.mean:
        scale = PixelScale(declared.mean, declared.std)
        if not declared.mean and is_torchvision(recipe.model.name):
            scale = IMAGENET
        images = images.model_copy(update={"mean": scale.mean, "std": scale.std})
    return recipe.model_copy(
        update={"training": training.model_copy(update=stated), "images": images}
    )


def with_run_scale(recipe: Recipe, dataset: Dataset) -> Dataset:
    """Return a data set whose images are scaled as those of all devices of a run.

    Raises:
        RecipeError: the data set was scaled otherwise, or has other channels.
    """
    images = with_augmentation(recipe, dataset.preparation).images
    try:
        train, test, preparation = with_scale(
            dataset.train, dataset.test, dataset.preparation, PixelScale(images.mean, images.std)
        )
    except DataError as error:
        raise RecipeError(
            f"The recipe's [images] table does not fit data set '{recipe.data.name}': it"
            f" {error.message}.",
            code="recipe.images",
            hint="leave out normalize of [data], or mean and std of [images]",
        ) from error
    return replace(dataset, train=train, test=test, preparation=preparation)


def check_augmentation(recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Check that inputs of ``shape`` can be augmented as the recipe says.

    Raises:
        DataError: they are no images, or too small for the crop.
    """
    augment = augment_of(recipe.training, recipe.images)
    if augment is not None:
        check_augment(augment, shape)
