"""Modules around a trained network: pixels to inputs before it, probabilities after it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from edgefed.files.samples import PixelScale
from edgefed.prediction.resizing import resized


class Outputs(nn.Module):
    """Maps inputs of the models to probabilities (n, classes), or to numbers (n, outputs).

    Args:
        networks: the models; several predict together.
        shares: weight of each; in total 1.
        is_classifier: whether the outputs are scores of classes.
    """

    def __init__(
        self, networks: Sequence[nn.Module], shares: Sequence[float], is_classifier: bool
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.shares = tuple(shares)
        self.is_classifier = is_classifier

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the weighted mean of the networks' predictions."""
        outputs = [self._of(network, inputs) for network in self.networks]
        if len(outputs) == 1:
            return outputs[0]
        terms = (share * output for share, output in zip(self.shares, outputs, strict=True))
        return torch.stack(list(terms)).sum(dim=0)

    def _of(self, network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = network(inputs)
        return torch.softmax(outputs, dim=1) if self.is_classifier else outputs


class ImageOutputs(nn.Module):
    """Maps uint8 images (n, channels, height, width) to outputs."""

    def __init__(self, outputs: nn.Module, scale: PixelScale) -> None:
        super().__init__()
        self.outputs = outputs
        self.is_scaled = bool(scale.mean)
        for name, constant in zip(("mean", "std"), scale.constants(), strict=True):
            self.register_buffer(name, torch.from_numpy(constant), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the networks' predictions for pixels."""
        inputs = images.to(torch.float32) / 255
        if self.is_scaled:
            inputs = (inputs - self.get_buffer("mean")) / self.get_buffer("std")
        outputs: torch.Tensor = self.outputs(inputs)
        return outputs


class PhotoOutputs(nn.Module):
    """uint8 images (n, height, width, channels), as image decoders return them, to outputs.

    Args:
        images: takes images of the models' size, channels first.
        size: height and width to scale to; None for images that have the models' size.
    """

    def __init__(self, images: nn.Module, size: tuple[int, int] | None) -> None:
        super().__init__()
        self.images = images
        self.size = size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the networks' predictions for photos."""
        pixels = images.permute(0, 3, 1, 2)
        if self.size is not None:
            pixels = resized(pixels, *self.size)
        outputs: torch.Tensor = self.images(pixels)
        return outputs
