"""Maps of pink noise: random phases under a spectrum that falls as a power of the frequency.

The amplitude at distance r from the zero frequency is r^-alpha, on an odd grid whose last row and
column are cut off, as in the code of Baradad et al., NeurIPS 2021. Phases are antisymmetric, so the
map is real and half of the grid determines it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from edgefed.natural_noise.types import Array

ENVELOPE = 4
"""Values of an envelope along each side."""


@dataclass(frozen=True)
class PinkDraw:
    """The draws of a map.

    Attributes:
        alpha: exponent of the spectrum.
        phases: float32 (side + 1, side / 2 + 1): for frequencies 0 to side/2, then -side/2 to -1
            down, and 0 to side/2 across, in units of 2π. The first column's negative frequencies
            are not used.
        envelope: float32 (4, 4), enlarged to the map and multiplied with it; None for none.
    """

    alpha: float
    phases: Array
    envelope: Array | None


def draw_pink(generator: np.random.Generator, side: int, *, envelope: bool) -> PinkDraw:
    """Draw the values for a map of ``side`` pixels; alpha is uniform from 0.5 to 1.5."""
    alpha = generator.random() + 0.5
    phases = generator.random((side + 1, side // 2 + 1), dtype=np.float32)
    bumps = generator.laplace(size=(ENVELOPE, ENVELOPE)) if envelope else None
    return PinkDraw(alpha, phases, None if bumps is None else bumps.astype(np.float32))


def pink_map(drawn: PinkDraw) -> Array:
    """Return the map (side, side), float32, of standard deviation 1.

    Its mean is 0 without an envelope, and not with one.
    """
    half = drawn.phases.shape[1] - 1
    side = 2 * half
    angles = np.multiply(drawn.phases, np.float32(2 * np.pi))
    angles[half + 1 :, 0] = -angles[half:0:-1, 0]
    amplitudes = np.exp(logarithms(side) * np.float32(-drawn.alpha))
    amplitudes[0, 0] = 0
    spectrum = np.empty(angles.shape, np.complex64)
    np.multiply(amplitudes, np.cos(angles), out=spectrum.real)
    np.multiply(amplitudes, np.sin(angles), out=spectrum.imag)
    whole = np.fft.irfft2(spectrum, s=(side + 1, side + 1))
    noise = whole[:-1, :-1].astype(np.float32)
    noise -= noise.mean()
    if drawn.envelope is not None:
        noise *= _enlarged(drawn.envelope, side)
    noise /= noise.std(ddof=1)
    return noise


def area_means(noise: Array, side: int, smallest: int) -> dict[int, Array]:
    """Return a square map at ``side`` and at each half of it down to ``smallest``.

    A value is the mean of a block of the map; each side divides the one before it.
    """
    step = len(noise) // side
    rows = noise.reshape(side, step, -1).sum(axis=1)
    means = {side: rows.reshape(side, side, step).sum(axis=2) / np.float32(step * step)}
    while side > smallest:
        side //= 2
        blocks = means[2 * side].reshape(side, 2, side, 2)
        rows = blocks[:, 0] + blocks[:, 1]
        means[side] = (rows[..., 0] + rows[..., 1]) / 4
    return means


@lru_cache(maxsize=4)
def logarithms(side: int) -> Array:
    """Return log r over the half grid, float32; 0 at the zero frequency."""
    half = side // 2
    down = np.concatenate([np.arange(half + 1), np.arange(-half, 0)]) / half
    across = np.arange(half + 1) / half
    distance = np.hypot(down[:, None], across[None])
    distance[0, 0] = 1
    return np.asarray(np.log(distance), np.float32)


def _enlarged(envelope: Array, side: int) -> Array:
    """Return an envelope at a map's size, by Lanczos interpolation."""
    matrix = lanczos(side)
    rows = np.einsum("ya,ab->yb", matrix, envelope)
    # Products with each column in turn: one order of summation, whatever the number of threads.
    whole = np.multiply(rows[:, :1], matrix[:, 0])
    product = np.empty_like(whole)
    for column in range(1, ENVELOPE):
        np.multiply(rows[:, column, None], matrix[:, column], out=product)
        whole += product
    return np.asarray(whole)


@lru_cache(maxsize=4)
def lanczos(side: int) -> Array:
    """Return the weights (side, 4) of an envelope's values along one side."""
    unit = Image.fromarray(np.eye(ENVELOPE, dtype=np.float32))
    return np.asarray(unit.resize((ENVELOPE, side), Image.Resampling.LANCZOS))
