"""What the kernels of natural noise compute, in numpy's float64: every channel, every frequency."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.native.noise_calls import MAP_SIDE, NoiseLayer
from tests.native.random_layers import Array

FILTER = np.array([1.0, 3, 3, 1]) / 4


def smoothed(canvas: Array) -> Array:
    """Return planes after the filter in both directions, three values smaller each way."""
    for axis in (1, 2):
        size = canvas.shape[axis] - 3
        parts = [canvas.take(range(k, k + size), axis) * FILTER[k] for k in range(4)]
        canvas = np.sum(parts, axis=0)
    return canvas


def spaced(x: Array, before: int) -> Array:
    """Return planes with zeros between their values, and ``before`` zeros and more around."""
    channels, side, _ = x.shape
    canvas = np.zeros((channels, 2 * side + 3, 2 * side + 3))
    canvas[:, before : before + 2 * side : 2, before : before + 2 * side : 2] = x
    return canvas


def convolved(x: Array, weights: Array, up: bool) -> Array:
    """Return planes (outputs, h, w) of a convolution with weights (outputs, inputs, 3, 3)."""
    side = x.shape[1]
    if not up:
        wide = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        parts = [
            np.einsum(
                "oi,iyx->oyx",
                weights[:, :, ky, kx],
                wide[:, ky : ky + side, kx : kx + side],
            )
            for ky in range(3)
            for kx in range(3)
        ]
        return np.asarray(np.sum(parts, axis=0))
    canvas = np.zeros((len(weights), 2 * side + 3, 2 * side + 3))
    for ky in range(3):
        for kx in range(3):
            part = np.einsum("oi,iyx->oyx", weights[:, :, ky, kx], x)
            canvas[:, 1 + ky : 1 + ky + 2 * side : 2, 1 + kx : 1 + kx + 2 * side : 2] += part
    return smoothed(canvas)


def image(layers: Sequence[NoiseLayer], bank: Array, constant: Array, noise: Array) -> Array:
    """Return what ``noise_image`` does."""
    x, colours = constant, None
    for layer in layers:
        modulated = bank[layer.kernels] * layer.style[:, None, None]
        weights = layer.amplitudes[:, None, None, None] * modulated
        lengths = np.sqrt(np.square(weights).sum(axis=(1, 2, 3), keepdims=True) + 1e-8)
        x = convolved(x, weights / lengths, layer.up)
        step = len(noise) // layer.side
        small = noise.astype(np.float64).reshape(layer.side, step, layer.side, step).mean((1, 3))
        x = np.maximum(x + layer.strength * small + layer.biases[:, None, None], 0) * np.sqrt(2)
        if layer.to_colours is None or layer.colour_style is None:
            continue
        added = np.tensordot(layer.to_colours * layer.colour_style, x, axes=1)
        colours = added if colours is None else smoothed(spaced(colours, 2)) + added
    assert colours is not None
    return colours


def pink_means(
    logarithms: Array, phases: Array, alpha: float, weights: Array, bumps: Array, side: int
) -> Array:
    """Return what ``native.noise_calls.pink_means`` does."""
    angles = 2 * np.pi * phases.astype(np.float64)
    angles[MAP_SIDE // 2 + 1 :, 0] = -angles[MAP_SIDE // 2 : 0 : -1, 0]
    spectrum = np.exp(-alpha * logarithms.astype(np.float64)) * np.exp(1j * angles)
    spectrum[0, 0] = 0
    whole = np.fft.irfft2(spectrum, s=(MAP_SIDE + 1, MAP_SIDE + 1))[:-1, :-1]
    whole -= whole.mean()
    whole *= weights.astype(np.float64) @ bumps.astype(np.float64) @ weights.T
    whole /= whole.std(ddof=1)
    step = MAP_SIDE // side
    return np.asarray(whole.reshape(side, step, side, step).mean((1, 3)))
