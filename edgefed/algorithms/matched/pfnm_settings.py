"""Settings of PFNM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edgefed.algorithms.averaging.class_shares import ShareOf
from edgefed.algorithms.matched.matching_settings import MatchingSettings


class PfnmSettings(MatchingSettings):
    """Settings of ``pfnm``."""

    initial: Literal["shared", "independent"] = "shared"
    """Whether devices start the first round from the same initial weights, or each from weights of
    its own."""

    mu: Annotated[float, Field(ge=0, le=100)] = 1e-5
    """Strength of the L2 term that pulls a device's weights towards its part of the global network,
    from the second round on."""

    bias_mean: Annotated[float, Field(ge=-100, le=100)] = 0.1
    """Prior mean of biases; that of weights is 0."""

    last_layer: ShareOf = "classes"
    """The weight of a device in the output layer: for each class its share of the samples of that
    class, where its owner shares label counts; its share of all ``samples``; or the same for all
    (``uniform``)."""
