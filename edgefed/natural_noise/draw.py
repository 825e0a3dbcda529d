"""The function that draws natural noise for training, which a cache can replace."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.natural_noise.types import Array, GeneratorName

DrawNoise = Callable[[int, int, tuple[int, ...], GeneratorName], Array]
"""Returns images 0 to ``count`` of a seed in a shape, uint8 (count, *shape): seed, count, shape,
generator."""


def draw_noise(seed: int, count: int, shape: tuple[int, ...], kind: GeneratorName) -> Array:
    """Draw the images each time."""
    from edgefed.natural_noise.shapes import noise_samples  # imports Pillow

    return noise_samples(seed, count, shape, kind=kind)
