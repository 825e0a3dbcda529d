"""Image classifiers of torchvision by name: ``torchvision:mobilenet_v3_small``.

They are built without weights, with an output layer for the run's classes. Weights that were
trained elsewhere are the recipe's ``model.weights``.
"""

from __future__ import annotations

import atexit
import difflib
import gc
from functools import cache
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import nn

from edgefed.errors import DataError, RecipeError
from edgefed.files.samples import PixelScale
from edgefed.learn.base.torch_private import BatchNorm
from edgefed.learn.networks.base import Network, NetworkSettings, Shape

PREFIX = "torchvision:"
"""The prefix of the names of these networks."""

SMALLEST = 32
"""Height and width from which on torchvision's classifiers can be tried."""

IMAGENET = PixelScale((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The pixel scale of torchvision's published weights for ImageNet."""


class ClassifierSettings(NetworkSettings):
    """Settings of torchvision's classifiers."""

    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of features that are left out before the output layer in training, for a network that
    has such a setting. Unset: torchvision's default."""

    norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the last batch in the running statistics of batch normalisation, which tests use.
    torchvision's networks for phones have 0.01 or less, which is for tens of thousands of steps:
    after a few rounds, their statistics would still be nearly those of the initial weights."""


def is_torchvision(name: str) -> bool:
    """Return whether a model's name means a classifier of torchvision."""
    return name.startswith(PREFIX)


def torchvision_network(name: str) -> Network:
    """Return the entry of a classifier.

    Args:
        name: with its prefix.

    Raises:
        RecipeError: ``model.unknown``: torchvision has no such classifier.
    """
    known, plain = classifier_names(), name.removeprefix(PREFIX)
    if plain not in known:
        near = difflib.get_close_matches(plain, known, n=1)
        hint = f"did you mean '{PREFIX}{near[0]}'?" if near else f"known: {', '.join(known)}"
        raise RecipeError(
            f"There is no classifier '{plain}' in this version of torchvision.",
            code="model.unknown",
            hint=hint,
        )

    def make(settings: ClassifierSettings, shape: Shape, classes: int) -> nn.Module:
        return _classifier(plain, settings, shape, classes)

    return Network(name, f"torchvision's {plain}", ClassifierSettings, make)


@cache
def classifier_names() -> tuple[str, ...]:
    """Return the names of torchvision's classifiers, in order."""
    models = _models()
    return tuple(sorted(models.list_models(module=models)))


def _models() -> Any:
    """Return torchvision's networks. Importing them takes seconds, which no other model pays."""
    from torchvision import models

    # A package of torch's compiler, which they import, complains of objects that are left.
    atexit.unregister(gc.freeze)
    return models


def _classifier(name: str, settings: ClassifierSettings, shape: Shape, classes: int) -> nn.Module:
    """Return a classifier for colour images, with weights from torch's generator."""
    if len(shape) != 3 or shape[0] != 3:
        raise _unfit(name, f"takes colour images (3, height, width), not inputs of {shape}")
    if min(shape[1:]) < SMALLEST:
        raise _unfit(name, f"takes images from {SMALLEST}x{SMALLEST}, not {shape[1]}x{shape[2]}")
    stated = {} if settings.dropout is None else {"dropout": settings.dropout}
    if name in ("googlenet", "inception_v3"):
        # Their auxiliary classifiers give several outputs in training.
        stated |= {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        if shape[1] != shape[2]:
            raise _unfit(name, f"takes square images, not {shape[1]}x{shape[2]}")
        stated["image_size"] = shape[1]
    try:
        module: nn.Module = _models().get_model(name, weights=None, num_classes=classes, **stated)
    except (TypeError, ValueError) as error:
        raise RecipeError(
            f"torchvision's {name} cannot be built: {' '.join(str(error).split())[:200]}.",
            code="model.setting",
            hint="omit dropout, or choose a size of images that the network takes",
        ) from error
    for part in module.modules():
        if isinstance(part, BatchNorm):
            part.momentum = settings.norm_momentum
    return module


def try_classifier(name: str, module: nn.Module, shape: Shape) -> None:
    """Put two images of zeros through a classifier; networks of windows refuse some sizes.

    Raises:
        DataError: ``model.input``: it cannot take them.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            module(torch.zeros(2, *shape))
    except (RuntimeError, AssertionError, ValueError) as error:
        raise _unfit(
            name.removeprefix(PREFIX), f"takes no images of {shape[1]}x{shape[2]}"
        ) from error
    finally:
        module.train(was_training)


def _unfit(name: str, what: str) -> DataError:
    return DataError(
        f"torchvision's {name} {what}.",
        code="model.input",
        hint="set size, and not greyscale, where the images are loaded:"
        " folder:FOLDER?size=224 on a device, size = 224 in a recipe's [data]",
    )
