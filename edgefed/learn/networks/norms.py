"""The normalisation layers of residual networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from torch import nn

from edgefed.errors import RecipeError

NormName = Literal["batch", "group"]


def norm_layer(name: NormName, groups: int) -> Callable[[int], nn.Module]:
    """Return a factory of normalisation layers, with scale and shift, by number of channels.

    Args:
        name: ``batch``, whose running statistics are averaged with the weights, or ``group``, which
            has none (Wu, He: Group Normalization, ECCV 2018).
        groups: groups of channels; it divides every number of channels of the network.
    """
    return nn.BatchNorm2d if name == "batch" else partial(nn.GroupNorm, groups)


def check_groups(network: str, groups: int, widths: Sequence[int]) -> None:
    """Check that groups of channels divide all widths.

    Raises:
        RecipeError: ``model.setting``.
    """
    for width in widths:
        if width % groups:
            raise RecipeError(
                f"The model {network} cannot normalise {width} channels in {groups} groups.",
                code="model.setting",
                hint='choose widths that model.groups divides, or model.norm = "batch"',
            )


def kaiming(module: nn.Module) -> None:
    """Draw the convolutions of a module for ReLU.

    He, Zhang, Ren, Sun: Delving Deep into Rectifiers, ICCV 2015, equation 14.
    """
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
