"""What the compiled kernels compute, in numpy's float64: by matrix products, one for each place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from edgefed.native.convolution import Sizes

Array = npt.NDArray[Any]

DEAD = 4


def padded(sizes: Sizes, x: Array) -> Array:
    """Return inputs (batch, channels, height, width) with zeros around, in float64."""
    around = (sizes[6], sizes[6])
    return np.pad(x.astype(np.float64), ((0, 0), (0, 0), around, around))


def windows(sizes: Sizes, x: Array) -> Array:
    """Return what each place of the kernel sees: (batch, channels * kernel², tall * across)."""
    seen = sliding_window_view(padded(sizes, x), (sizes[5], sizes[5]), (2, 3))  # type: ignore[call-overload]
    batch, channels, tall, across, kernel, _ = seen.shape
    rows: Array = seen.transpose(0, 1, 4, 5, 2, 3)
    return rows.reshape(batch, channels * kernel**2, tall * across)


def four_places(sizes: Sizes, x: Array, weight: Array) -> Array:
    """Return the convolution at the four places of each window: (4, batch, out, rows, columns)."""
    tall, across = (size + 2 * sizes[6] - sizes[5] + 1 for size in sizes[2:4])
    flat = weight.astype(np.float64).reshape(sizes[4], -1)
    full = (flat @ windows(sizes, x)).reshape(sizes[0], sizes[4], tall, across)
    rows, columns = tall // 2, across // 2
    return np.stack(
        [full[:, :, k // 2 : 2 * rows : 2, k % 2 : 2 * columns : 2] for k in range(DEAD)]
    )


def taken(places: Array, codes: Array) -> Array:
    """Return the values that codes tell of; 0 where they say that ReLU was."""
    found: Array = np.take_along_axis(places, np.minimum(codes, 3)[None].astype(np.intp), 0)[0]
    return np.where(codes == DEAD, 0, found)


def spread(sizes: Sizes, gradient: Array, codes: Array) -> Array:
    """Return a gradient of the outputs as one of the whole convolution (batch, out, tall, wide)."""
    _, _, height, width, _, kernel, padding = sizes
    full = np.zeros((*gradient.shape[:2], *(n + 2 * padding - kernel + 1 for n in (height, width))))
    rows, columns = gradient.shape[2:]
    for k in range(DEAD):
        part = np.where(codes == k, gradient.astype(np.float64), 0)
        full[:, :, k // 2 : 2 * rows : 2, k % 2 : 2 * columns : 2] += part
    return full


def weights_gradient(sizes: Sizes, x: Array, gradient: Array, codes: Array) -> Array:
    """Return the gradient of the weights."""
    full = spread(sizes, gradient, codes)
    flat = full.reshape(*full.shape[:2], -1) @ windows(sizes, x).transpose(0, 2, 1)
    found: Array = flat.sum(0).reshape(sizes[4], sizes[1], sizes[5], sizes[5])
    return found


def inputs_gradient(sizes: Sizes, weight: Array, gradient: Array, codes: Array) -> Array:
    """Return the gradient of the inputs, (batch, channels, height, width)."""
    _, _, height, width, _, kernel, padding = sizes
    full = spread(sizes, gradient, codes)
    tall, across = full.shape[2:]
    flat = full.reshape(*full.shape[:2], -1)
    found = np.zeros((sizes[0], sizes[1], height + 2 * padding, width + 2 * padding))
    for ky in range(kernel):
        for kx in range(kernel):
            part = weight[:, :, ky, kx].T.astype(np.float64) @ flat
            shape = (*found.shape[:2], tall, across)
            found[:, :, ky : ky + tall, kx : kx + across] += part.reshape(shape)
    return found[:, :, padding : padding + height, padding : padding + width]


@dataclass(frozen=True)
class Layer:
    """A layer of a chain: sizes of a convolution, or None for a dense one, with or without ReLU."""

    sizes: Sizes | None
    relu: bool
    weight: Array
    bias: Array


def outputs(layers: list[Layer], x: Array, change: Array) -> tuple[Array, Array]:
    """Return the logits of a chain, and their change."""
    change = np.broadcast_to(change, x.shape)
    for layer in layers:
        if layer.sizes is not None:
            places = four_places(layer.sizes, x, layer.weight)
            places = places + layer.bias.astype(np.float64)[:, None, None]
            codes = np.where(places.max(0) > 0, places.argmax(0), DEAD)
            x = taken(places, codes)
            change = taken(four_places(layer.sizes, change, layer.weight), codes)
            continue
        weight = layer.weight.astype(np.float64).T
        x, change = x.reshape(len(x), -1) @ weight, change.reshape(len(x), -1) @ weight
        x = x + layer.bias
        if layer.relu:
            x, change = np.maximum(x, 0), np.where(x > 0, change, 0)
    return x, change


def loss(layers: list[Layer], x: Array, change: Array, own: Array, mixed: Array) -> float:
    """Return the cross-entropy against mixed targets, and the derivative of that against own."""
    logits, along = outputs(layers, x, change)
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    slope = np.exp(logs) * own.sum(1, keepdims=True) - own
    return float((-(mixed * logs).sum() + (slope * along).sum()) / len(x))
