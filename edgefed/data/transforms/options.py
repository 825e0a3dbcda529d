"""The keys of the recipe's data section for transforms of the devices' samples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.config.recipes.sections import Section

Share = Annotated[float, Field(ge=0, le=1)]


class TransformOptions(Section):
    """Keys that make virtual devices see the same things differently."""

    transform: Literal[
        "none", "rotation", "greyscale", "permutation", "scaling", "offset", "drift"
    ] = "none"
    """How the devices' samples differ in addition to the partition: each device has its own mix of
    angles (``rotation``), its fraction of ``greyscale`` images, a ``permutation`` of the labels, or
    its own ``scaling``, ``offset`` or ``drift`` of the inputs."""

    angles: Annotated[int, Field(ge=1, le=360)] = 8
    """With ``rotation``: number of angles, evenly spaced over the circle."""

    rotation_alpha: Annotated[float, Field(gt=0)] = 1.0
    """With ``rotation``: concentration of each device's mix of angles."""

    grey_shares: Annotated[tuple[Share, ...], Field(min_length=1)] = (0.95, 0.05)
    """With ``greyscale``: fraction of each label's images that become grey: on the first device,
    the second, and so on cyclically."""

    grey_test_share: Share = 0.5
    """With ``greyscale``: this fraction of the coordinator's test images."""

    grey_oversample: bool = False
    """With ``greyscale``: whether images of each label are repeated, drawn at random, until a
    device has as many grey images of the label as colour images."""

    feature_strength: Annotated[float, Field(ge=0, le=10)] = 0.5
    """With ``scaling``: standard deviation of the logarithm of a device's factor. With ``offset``
    or ``drift``: standard deviation of a device's offset, in standard deviations of the prepared
    inputs."""

    permutations: Annotated[int, Field(ge=1)] = 4
    """With ``permutation``: number of permutations of the labels; each device gets one."""
