"""Call the compiled kernels for fused convolution, 2×2 max-pooling and ReLU.

All arrays are float32 and contiguous unless strides are given; strides count values, for batch,
channel, row and column. Codes (uint8, in the output's shape) name the value of its window that an
output is: 2 · row + column, or 4 if ReLU made it 0.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int64
from functools import lru_cache
from typing import Any

from edgefed.native.library import native

KERNELS = (3, 5)
"""Sizes of filters that there is code for."""

Sizes = tuple[int, int, int, int, int, int, int]
"""Batch, input channels, height, width, output channels, filter size, padding."""

FIELDS = "batch inputs height width outputs kernel padding tall wide rows columns"


class Shape(ctypes.Structure):
    """A layer's sizes, as the kernels take them."""

    _fields_ = [(name, c_int64) for name in FIELDS.split()]


def shape(sizes: Sizes) -> Shape:
    """Return a layer's sizes and those that follow from them."""
    _, _, height, width, _, kernel, padding = sizes
    tall, wide = height + 2 * padding, width + 2 * padding
    return Shape(*sizes, tall, wide, (tall - kernel + 1) // 2, (wide - kernel + 1) // 2)


def forward(
    sizes: Sizes, x: int, strides: tuple[int, ...], weight: int, bias: int, out: int, codes: int
) -> None:
    """Write the output and its codes.

    Raises:
        MemoryError: there was too little for the work.
    """
    _call("edgefed_forward", _at(sizes), x, strides_of(strides), weight, bias, out, codes)


def weights_gradient(
    sizes: Sizes,
    x: int,
    strides: tuple[int, ...],
    gradient: int,
    gradient_strides: tuple[int, ...],
    codes: int,
    weight: int,
    bias: int,
) -> None:
    """Write the gradients of weights and bias, from the output's.

    Raises:
        MemoryError: there was too little for the work.
    """
    steps = strides_of(gradient_strides)
    here = (_at(sizes), x, strides_of(strides))
    _call("edgefed_weights_gradient", *here, gradient, steps, codes, weight, bias)


def inputs_gradient(
    sizes: Sizes,
    weight: int,
    gradient: int,
    gradient_strides: tuple[int, ...],
    codes: int,
    out: int,
) -> None:
    """Write the gradient of the inputs, channels last, from the output's.

    Raises:
        MemoryError: there was too little for the work.
    """
    steps = strides_of(gradient_strides)
    _call("edgefed_inputs_gradient", _at(sizes), weight, gradient, steps, codes, out)


def tangent(
    sizes: Sizes, x: int, strides: tuple[int, ...], weight: int, codes: int, out: int
) -> None:
    """Write the convolution without bias at the positions in the codes; 0 where ReLU was active.

    Raises:
        MemoryError: there was too little for the work.
    """
    _call("edgefed_tangent", _at(sizes), x, strides_of(strides), weight, codes, out)


def _call(name: str, *arguments: Any) -> None:
    """Call a kernel."""
    if getattr(native().library, name)(*arguments):
        raise MemoryError(f"There is not enough memory for {name}.")


@lru_cache(maxsize=256)
def _at(sizes: Sizes) -> Any:
    """Return a layer's sizes, by reference."""
    return byref(shape(sizes))


@lru_cache(maxsize=256)
def strides_of(strides: tuple[int, ...]) -> Any:
    """Return strides, by reference."""
    return byref((c_int64 * 4)(*strides))
