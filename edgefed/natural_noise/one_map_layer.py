"""A convolution of the untrained StyleGAN, computed as one map instead of one for each channel.

All output channels of a convolution share their kernels up to an amplitude a_o, and demodulation
divides by |a_o| times a factor that they share. A layer therefore computes one map g, and channel o
is √2 · relu(±q g + noise + b_o), with q the same for all channels. The next step needs only
weighted sums over the channels of a layer, for nine taps of the next kernel and three colours. Such
a sum is a piecewise linear function of ±q g + noise whose corners are the channels' biases, and is
looked up in a table of its pieces. No channel is ever computed, except the few whose amplitude is
so small that the 1e-8 of demodulation changes their factor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefed.natural_noise.oriented_draws import LayerDraw
from edgefed.natural_noise.types import Array

TAPS = 9
"""Values of a kernel."""

EPSILON = 1e-8
"""The constant that demodulation adds to a sum of squares."""

_ODD = 1e-5
"""A channel whose factor is by this share further from 0 than q is computed by itself."""


@dataclass(frozen=True)
class OneMapLayer:
    """The output of a layer, without computing its channels.

    Attributes:
        common: g (pixels,), float32.
        noise: added to every channel (pixels,), float32.
        factors: factor of g in each channel (channels,): ±q, except in channels of
            small amplitude.
        common_factor: q.
        biases: (channels,).
    """

    common: Array
    noise: Array
    factors: Array
    common_factor: float
    biases: Array

    def sums(self, weights: Array) -> Array:
        """Return weighted sums over the channels (sums, pixels), float32.

        Args:
            weights: (channels, sums).
        """
        odd = np.abs(self.factors) < (1 - _ODD) * self.common_factor
        total = np.zeros((len(self.common), weights.shape[1]), np.float32)
        for sign in (1, -1):
            members = ~odd & (np.sign(self.factors) == sign)
            values = np.float32(sign * self.common_factor) * self.common + self.noise
            total += _rectified(values, self.biases[members], weights[members])
        for channel in np.flatnonzero(odd):
            values = np.float32(self.factors[channel]) * self.common + self.noise
            positive = np.maximum(values + np.float32(self.biases[channel]), 0)
            total += np.multiply.outer(positive, weights[channel].astype(np.float32))
        total *= np.float32(np.sqrt(2))
        return np.ascontiguousarray(total.T)


def one_map_layer(common: Array, noise: Array, drawn: LayerDraw, taps: Array) -> OneMapLayer:
    """Return a layer.

    Args:
        common: convolution of its input with its kernels, without amplitudes (height, width).
        noise: the pink map at the layer's size, at full strength.
        drawn: the layer's draws.
        taps: its modulated kernels (inputs, 9).
    """
    energy = float(np.square(taps).sum())
    amplitudes = drawn.amplitudes
    factors = amplitudes / np.sqrt(amplitudes**2 * energy + EPSILON)
    strength = np.float32(drawn.strength)
    common_factor = 1 / np.sqrt(energy)
    return OneMapLayer(
        common.ravel(), noise.ravel() * strength, factors, common_factor, drawn.biases
    )


def convolved(taps: Array) -> Array:
    """Return a correlation with 3x3 kernels and zero padding, from its nine products.

    Args:
        taps: the input, summed over channels with the weights of each tap (9, height, width).
    """
    height, width = taps.shape[1:]
    canvas = np.zeros((height + 2, width + 2), taps.dtype)
    for number, tap in enumerate(taps):
        down, across = 2 - number // 3, 2 - number % 3
        canvas[down : down + height, across : across + width] += tap
    return canvas[1:-1, 1:-1]


def convolved_up(taps: Array) -> Array:
    """Return a transposed convolution with stride 2 and its smoothing, from its nine products.

    Args:
        taps: as for ``convolved``; the output has twice their height and width.
    """
    height, width = taps.shape[1:]
    canvas = np.zeros((2 * height + 3, 2 * width + 3), taps.dtype)
    for number, tap in enumerate(taps):
        down, across = 1 + number // 3, 1 + number % 3
        canvas[down : down + 2 * height : 2, across : across + 2 * width : 2] += tap
    return _smoothed(canvas)


def enlarged(image: Array) -> Array:
    """Return an image (channels, height, width) at twice its height and width."""
    channels, height, width = image.shape
    canvas = np.zeros((channels, 2 * height + 3, 2 * width + 3), image.dtype)
    canvas[:, 2 : 2 + 2 * height : 2, 2 : 2 + 2 * width : 2] = image
    return _smoothed(canvas)


def _smoothed(canvas: Array) -> Array:
    """Return (…, h, w) after the filter [1, 3, 3, 1] / 4 in both directions: (…, h - 3, w - 3)."""
    rows = (canvas[..., :-3, :] + canvas[..., 3:, :]) + 3 * (
        canvas[..., 1:-2, :] + canvas[..., 2:-1, :]
    )
    both = (rows[..., :-3] + rows[..., 3:]) + 3 * (rows[..., 1:-2] + rows[..., 2:-1])
    return np.asarray(both * np.float32(1 / 16))


def _rectified(values: Array, biases: Array, weights: Array) -> Array:
    """Return Σ_o weights[o] · relu(value + biases[o]) for each value: (values, sums).

    Of channels in falling order of bias, a prefix is active; the sum over a prefix is linear.
    """
    order = np.argsort(-biases, kind="stable")
    chosen, offsets = weights[order], biases[order]
    pieces = np.zeros((len(order) + 1, 2 * weights.shape[1]))
    np.cumsum(np.concatenate([chosen, chosen * offsets[:, None]], axis=1), axis=0, out=pieces[1:])
    active = np.searchsorted((-offsets).astype(np.float32), values)
    slopes, constants = np.split(pieces.astype(np.float32)[active], 2, axis=1)
    return np.asarray(slopes * values[:, None] + constants)
