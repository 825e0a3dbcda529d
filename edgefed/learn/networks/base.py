"""An entry of the network registry: a name, its settings, and a factory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from torch import nn

from edgefed.errors import DataError
from edgefed.learn.base.permutation_groups import PermutationGroups

Shape = tuple[int, ...]
"""Shape of one input, without the batch: (channels, height, width) for images."""


class NetworkSettings(BaseModel):
    """A network's own keys of the recipe's ``[model]`` table: described, ranged, frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True)
class Network:
    """One entry of the registry.

    Attributes:
        name: as the recipe names it.
        summary: one line for lists.
        settings: the class of its settings.
        make: settings, input shape and number of classes to a freshly initialised module; draws
            from torch's global CPU generator, which the caller seeds. Raises DataError for a shape
            that it cannot take.
        vocabulary: settings and number of classes to how many different tokens the inputs are made
            of; None for a network that takes real numbers.
        groups: settings, input shape and number of classes to the network's permutation groups;
            None for a network whose units cannot be matched.
        resized: settings and widths of all groups to the settings of the same network with these
            widths.
    """

    name: str
    summary: str
    settings: type[NetworkSettings]
    make: Callable[[Any, Shape, int], nn.Module]
    vocabulary: Callable[[Any, int], int] | None = None
    groups: Callable[[Any, Shape, int], PermutationGroups] | None = None
    resized: Callable[[Any, Mapping[str, int]], NetworkSettings] | None = None


def image_shape(network: str, shape: Shape, smallest: int) -> tuple[int, int, int]:
    """Return an input shape as channels, height and width.

    Args:
        network: whose input it is, for the error.
        shape: the shape of one input.
        smallest: least height and width, in pixels.

    Raises:
        DataError: it is not an image, or too small a one.
    """
    text = "×".join(str(size) for size in shape) or "a single number"
    if len(shape) != 3:
        raise DataError(
            f"The model {network} takes images (channels×height×width), but one input is {text}.",
            code="model.input",
            hint='choose model "mlp", which takes any shape',
        )
    channels, height, width = shape
    if min(height, width) < smallest:
        raise DataError(
            f"The model {network} needs images of at least {smallest}×{smallest} pixels,"
            f" but one input is {text}.",
            code="model.input",
            hint='choose model "mlp", which takes any shape, or larger images',
        )
    return channels, height, width
