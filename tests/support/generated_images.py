"""Folders of tiny images that show their class: one bright quarter each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

QUARTERS = {
    "ants": (slice(0, 4), slice(0, 4)),
    "bees": (slice(0, 4), slice(4, 8)),
    "cats": (slice(4, 8), slice(0, 4)),
    "dogs": (slice(4, 8), slice(4, 8)),
    "wasps": (slice(2, 6), slice(2, 6)),
}
"""Where the images of each class are bright."""


def write_pictures(
    folder: Path,
    classes: Iterable[str],
    count: int = 12,
    *,
    order: Iterable[str] = (),
    seed: int = 0,
) -> Path:
    """Write so many images of each class, and ``classes.txt`` where an order is given."""
    rng = np.random.default_rng(seed)
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(0, 90, (8, 8), np.uint8)
            pixels[QUARTERS[name]] += 150
            Image.fromarray(pixels).save(folder / name / f"{number:02d}.png")
    if order:
        (folder / "classes.txt").write_text("\n".join(order) + "\n")
    return folder
