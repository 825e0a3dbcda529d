"""The keys of the recipe's data section for transforms of the devices' samples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.config.recipe import Section

Share = Annotated[float, Field(ge=0, le=1)]


class TransformOptions(Section):
    """Keys that make virtual devices see the same things differently."""

    transform: Literal["none", "rotation", "greyscale", "permutation"] = "none"
    """What sets the devices' samples apart beside the partition: each device's own mix of
    ``rotation``s, its share of ``greyscale`` images, a ``permutation`` of the labels."""

    angles: Annotated[int, Field(ge=1, le=360)] = 8
    """With ``rotation``: how many angles there are, evenly spread over the circle."""

    rotation_alpha: Annotated[float, Field(gt=0)] = 1.0
    """With ``rotation``: concentration of each device's mix of angles."""

    grey_shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.95, 0.05)
    """With ``greyscale``: share of each label's images that lose their colour: on the first
    device, the second, and so on, then from the start again."""

    grey_test_share: Share = 0.5
    """With ``greyscale``: the same share of the coordinator's test images."""

    permutations: Annotated[int, Field(ge=1)] = 4
    """With ``permutation``: how many orders of the labels there are; each device gets one."""
