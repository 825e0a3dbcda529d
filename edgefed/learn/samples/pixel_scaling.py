"""Inputs of a model to the pixels that they were scaled from, and back, on the training device."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch

from edgefed.files.samples import PixelScale
from edgefed.learn.base.transfers import upload

BRIGHTEST = 255
"""The largest pixel of a uint8 image."""


class PixelScaling:
    """A pixel scale in both directions.

    Args:
        scale: how pixels from 0 to 1 became inputs.
        scaled: makes uint8 images inputs by that scale.
        kind: the model's kind of number.
        device: where the images are.
    """

    def __init__(
        self,
        scale: PixelScale,
        scaled: Callable[[torch.Tensor], torch.Tensor],
        kind: torch.dtype,
        device: torch.device,
    ) -> None:
        self.inputs = scaled
        self._mean, self._std = constants(scale, device, kind)
        self._plain = not scale.mean
        self.neutral = _whole(self._mean)
        """The uint8 pixel (channels or 1, 1, 1) whose input is nearest 0."""

    def pixels(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs as the nearest uint8 images."""
        return _whole(self.shares(inputs))

    def shares(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return inputs as pixels from 0 to 1."""
        return inputs if self._plain else inputs * self._std + self._mean


@lru_cache(maxsize=16)
def constants(
    scale: PixelScale, device: torch.device, kind: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and deviation (channels or 1, 1, 1) on a device, uploaded once for all clients.

    Callers do not change them.
    """
    mean, std = (torch.from_numpy(constant) for constant in scale.constants())
    return upload(mean, device, "scales", kind), upload(std, device, "scales", kind)


def _whole(shares: torch.Tensor) -> torch.Tensor:
    """Return shares of the largest pixel as uint8; those outside of 0 to 1 are clipped."""
    return (shares * BRIGHTEST).round_().clamp_(0, BRIGHTEST).to(torch.uint8)
