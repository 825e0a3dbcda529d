"""Folders of generated photos for the devices of a fleet, and weights of a network for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image

NETWORK = "shufflenet_v2_x0_5"
CLASSES = ("ants", "bees", "cats")
SIDE = 32


def write_photos(
    folder: Path, seed: int, classes: Iterable[str] = CLASSES, count: int = 5, mode: str = "RGB"
) -> Path:
    """Write so many photos of each class, which differ in the channel that is bright."""
    rng = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for each in range(count):
            pixels = rng.integers(0, 128, (SIDE + 8, SIDE, 3), np.uint8)
            pixels[..., number % 3] += 100
            Image.fromarray(pixels).convert(mode).save(folder / name / f"{each:02d}.png")
    return folder


def write_weights(path: Path, network: str = NETWORK, seed: int = 1) -> Path:
    """Write the ``state_dict`` of a network for ten classes, as a training program does."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.save(torchvision.models.get_model(network, num_classes=10).state_dict(), path)
    return path
