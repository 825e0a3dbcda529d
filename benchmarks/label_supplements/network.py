"""LeNet-5 with batch normalisation, whose running statistics are averaged like weights."""

from __future__ import annotations

from torch import nn


def normalised_lenet5(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Return the network for 28×28 pixels."""
    return nn.Sequential(
        *_halved(shape[0], 6),
        *_halved(6, 16),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


def _halved(before: int, after: int) -> list[nn.Module]:
    return [nn.Conv2d(before, after, 5), nn.BatchNorm2d(after), nn.MaxPool2d(2), nn.ReLU()]
