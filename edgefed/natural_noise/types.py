"""The words of natural noise: arrays, and the names of the generators."""

from __future__ import annotations

from typing import Any, Literal

import numpy.typing as npt

Array = npt.NDArray[Any]

GeneratorName = Literal["oriented", "spectrum", "white"]
"""``oriented``: an untrained StyleGAN; ``spectrum``: pink noise; ``white``: independent pixels."""

SIZES = (32, 64, 128, 256)
"""Sides of the square images that can be drawn."""

COLOURS = 3
