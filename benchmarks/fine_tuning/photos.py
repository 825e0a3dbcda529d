"""Photos of shapes on noise, whose colour, place and size say nothing, and a network that saw some.

No weights have to be downloaded: they are trained here on other shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import cos, pi, sin
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torchvision
from PIL import Image, ImageDraw
from torch.nn import functional

from edgefed.learn.networks.torchvision_classifiers import IMAGENET

SIDE = 96
"""Height and width of a photo."""

SEEN_SIDE = 64
"""Height and width at which the network is trained before, which makes that twice as fast."""

NETWORK = "mobilenet_v3_small"

Corners = Sequence[tuple[float, float]]
Photos = npt.NDArray[np.uint8]
"""Photos (n, height, width, 3)."""


def star(points: int, inner: float) -> Corners:
    """Return a star of radius 1; ``inner`` is the radius between its points."""
    turns = (pi * k / points for k in range(2 * points))
    radii = (1.0, inner) * points
    return [(r * cos(turn), r * sin(turn)) for r, turn in zip(radii, turns, strict=True)]


SEEN: Mapping[str, Corners] = {
    "square": star(2, 1.0),
    "triangle": [(cos(2 * pi * k / 3), sin(2 * pi * k / 3)) for k in range(3)],
    "hexagon": star(3, 1.0),
    "bar": [(-1, -0.18), (1, -0.18), (1, 0.18), (-1, 0.18)],
    "rectangle": [(-1, -0.45), (1, -0.45), (1, 0.45), (-1, 0.45)],
    "star of 4": star(4, 0.35),
    "star of 6": star(6, 0.5),
    "tee": [
        *((-1, -1), (1, -1), (1, -0.5), (0.25, -0.5)),
        *((0.25, 1), (-0.25, 1), (-0.25, -0.5), (-1, -0.5)),
    ],
    "ell": [(-0.8, -1), (-0.3, -1), (-0.3, 0.5), (0.8, 0.5), (0.8, 1), (-0.8, 1)],
    "zigzag": [
        *((-1, -0.5), (-0.3, -0.5), (0.1, 0.1), (0.4, -0.5)),
        *((1, 0.5), (0.3, 0.5), (-0.1, -0.1), (-0.5, 0.5)),
    ],
}
"""Shapes that the network is trained on before."""

NEW: Mapping[str, Corners] = {
    "circle": star(20, 1.0),
    "cross": [
        *((-0.33, -1), (0.33, -1), (0.33, -0.33), (1, -0.33), (1, 0.33), (0.33, 0.33)),
        *((0.33, 1), (-0.33, 1), (-0.33, 0.33), (-1, 0.33), (-1, -0.33), (-0.33, -0.33)),
    ],
    "star": star(5, 0.4),
}
"""Shapes that a fleet learns to tell apart."""


def photo(rng: np.random.Generator, corners: Corners, side: int = SIDE) -> Photos:
    """Return a photo (side, side, 3) of a shape."""
    coarse = rng.normal(0, 1, (side // 12 + 2, side // 12 + 2, 3)).astype(np.float32)
    clouds = [
        np.asarray(
            Image.fromarray(coarse[..., channel]).resize((side, side), Image.Resampling.BICUBIC)
        )
        for channel in range(3)
    ]
    ground, ink = rng.uniform(40, 215, 3), rng.uniform(0, 255, 3)
    while abs(ink.mean() - ground.mean()) < 70:
        ink = rng.uniform(0, 255, 3)
    inside = _mask(rng, corners, side)[..., None]
    grain = rng.normal(0, 15, (side, side, 3))
    pixels = (ground + 22 * np.stack(clouds, -1)) * (1 - inside) + ink * inside + grain
    taken: Photos = np.clip(pixels, 0, 255).astype(np.uint8)
    return taken


def _mask(rng: np.random.Generator, corners: Corners, side: int) -> npt.NDArray[np.float64]:
    """Return where a shape of random place, size and turn is: 0 to 1 (side, side)."""
    large = 3 * side
    size, turn = rng.uniform(0.24, 0.4) * large, rng.uniform(0, 2 * pi)
    across, down = rng.uniform(size, large - size, 2)
    placed = [
        (
            across + size * (cos(turn) * x - sin(turn) * y),
            down + size * (sin(turn) * x + cos(turn) * y),
        )
        for x, y in corners
    ]
    mask = Image.new("L", (large, large))
    ImageDraw.Draw(mask).polygon(placed, fill=255)
    return np.asarray(mask.resize((side, side), Image.Resampling.BOX)) / 255.0


def photos(
    rng: np.random.Generator, shapes: Mapping[str, Corners], count: int, side: int = SIDE
) -> tuple[Photos, npt.NDArray[np.int64]]:
    """Return so many photos of random shapes, and the number of each one's shape."""
    corners = list(shapes.values())
    labels = rng.integers(0, len(corners), count)
    return np.stack([photo(rng, corners[label], side) for label in labels]), labels


def write_photos(folder: Path, seed: int, names: Iterable[str], count: int) -> Path:
    """Write so many photos of each of the ``NEW`` shapes named, one folder a shape."""
    rng = np.random.default_rng(seed)
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.fromarray(photo(rng, NEW[name])).save(folder / name / f"{number:03d}.png")
    return folder


def write_pretrained(path: Path, *, count: int, epochs: int) -> Path:
    """Train the network on photos of ``SEEN`` shapes, and write its ``state_dict``.

    Without epochs it is random.
    """
    pixels, labels = photos(np.random.default_rng(0), SEEN, count, SEEN_SIDE)
    inputs = IMAGENET.inputs(pixels.transpose(0, 3, 1, 2))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = torchvision.models.get_model(NETWORK, num_classes=len(SEEN))
        if epochs:
            _train(network, torch.from_numpy(inputs), torch.from_numpy(labels), epochs)
        torch.save(network.state_dict(), path)
    return path


def _train(network: Any, inputs: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    batch, steps = 32, epochs * (len(labels) // 32)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 0.1  # so few steps would not fill a slower average
    network.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(epochs):
        for index in torch.split(torch.randperm(len(labels)), batch)[: len(labels) // batch]:
            turned = torch.rot90(inputs[index], int(torch.randint(4, ())), (2, 3))
            outputs = network(turned.contiguous(memory_format=torch.channels_last))
            optimizer.zero_grad()
            functional.cross_entropy(outputs, labels[index]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
