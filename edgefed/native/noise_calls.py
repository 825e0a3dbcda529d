"""Call the compiled kernels of natural noise (``natural_noise/oriented.py``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.native.library import native

Array = npt.NDArray[Any]

MAP_SIDE = 512
"""Side of the maps of pink noise that there is code for."""


@dataclass(frozen=True)
class NoiseLayer:
    """A convolution of the untrained StyleGAN; arrays are contiguous float64, but for ``kernels``.

    Attributes:
        side: of its output.
        up: whether that is twice the side of its input.
        strength: of the pink noise.
        kernels: int64 (inputs,): the kernel of each input channel, a number in the bank.
        style: (inputs,).
        amplitudes: (outputs,).
        biases: (outputs,).
        to_colours: weights (3, outputs) of the conversion to colours behind it; None for none.
        colour_style: (outputs,), likewise.
    """

    side: int
    up: bool
    strength: float
    kernels: Array
    style: Array
    amplitudes: Array
    biases: Array
    to_colours: Array | None = None
    colour_style: Array | None = None


class _Layer(ctypes.Structure):
    """A layer, as the kernels take it."""

    _fields_ = [
        *((name, c_int64) for name in ("side", "up", "inputs", "outputs")),
        ("strength", c_double),
        *((name, c_void_p) for name in ("kernels", "style", "amplitudes", "biases")),
        *((name, c_void_p) for name in ("to_colours", "colour_style")),
    ]


def pink_means(
    logarithms: Array, phases: Array, alpha: float, weights: Array, bumps: Array, side: int
) -> Array:
    """Return the means of the blocks of a map of pink noise (side, side), float32.

    Args:
        logarithms: of the distances of frequencies, float32 (513, 257).
        phases: float32 (513, 257), in units of 2π.
        alpha: exponent of the spectrum.
        weights: of an envelope's values along each side of the map, float32 (512, 4).
        bumps: the envelope's values, float32 (4, 4).
        side: of the result; it divides 512.

    Raises:
        MemoryError: there was too little for the work.
    """
    means = np.empty((side, side), np.float32)
    arrays = [np.ascontiguousarray(array, np.float32) for array in (logarithms, phases)]
    envelope = [np.ascontiguousarray(array, np.float32) for array in (weights, bumps)]
    assert arrays[0].shape == arrays[1].shape == (MAP_SIDE + 1, MAP_SIDE // 2 + 1)
    assert envelope[0].shape == (MAP_SIDE, 4) and envelope[1].shape == (4, 4)
    assert MAP_SIDE % side == 0
    where = [array.ctypes.data for array in (*arrays, *envelope)]
    _call("edgefed_pink_means", *where[:2], alpha, *where[2:], side, means.ctypes.data)
    return means


def noise_image(layers: Sequence[NoiseLayer], bank: Array, constant: Array, noise: Array) -> Array:
    """Return an image (3, side, side) before its colours are set, float32.

    Args:
        layers: each one's outputs are the next one's inputs.
        bank: the kernels (kernels, 3, 3), float64.
        constant: the first layer's input (inputs, side, side), float64.
        noise: the pink map (side, side) at the last layer's side, float32.

    Raises:
        MemoryError: there was too little for the work.
    """
    chain = (_Layer * len(layers))(*map(_layer, layers))
    side = layers[-1].side
    image = np.empty((3, side, side), np.float32)
    assert noise.shape == (side, side) and noise.dtype == np.float32
    assert bank.dtype == constant.dtype == np.float64
    held = [np.ascontiguousarray(array) for array in (bank, constant, noise)]
    addresses = [array.ctypes.data for array in held]
    _call("edgefed_noise_image", chain, len(layers), *addresses, image.ctypes.data)
    return image


def _layer(layer: NoiseLayer) -> _Layer:
    """Return a layer as the kernels take it; its arrays must outlive it."""
    arrays = (layer.kernels, layer.style, layer.amplitudes, layer.biases)
    sizes = layer.side, layer.up, len(layer.style), len(layer.biases)
    colours = (layer.to_colours, layer.colour_style)
    for array in (*arrays, *colours):
        assert array is None or (array.flags.c_contiguous and array.dtype.itemsize == 8)
    ends = (None if colour is None else colour.ctypes.data for colour in colours)
    return _Layer(*sizes, layer.strength, *(array.ctypes.data for array in arrays), *ends)


def _call(name: str, *arguments: Any) -> None:
    if getattr(native().library, name)(*arguments):
        raise MemoryError(f"There is not enough memory for {name}.")
