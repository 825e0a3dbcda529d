"""Compute the loss of a chain of layers and its gradient in one call of the compiled kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import Array, c_int64, c_void_p
from dataclasses import dataclass
from typing import Any, NamedTuple

from edgefed.native.convolution import Shape, shape, strides_of
from edgefed.native.library import native

SAMPLES = 16
"""A turned row has room for a multiple of so many samples."""

OTHER_CONDITION = 2
"""The result of a kernel for a condition outside of the range."""


@dataclass(frozen=True)
class ChainLink:
    """A layer: addresses of float32 arrays (codes: uint8), all contiguous.

    Attributes:
        before: values of its input; of a convolution, its channels.
        after: likewise of its output.
        image: height, width, filter and padding of a convolution; None for a dense layer.
        relu: whether a dense layer ends in ReLU; a convolution always does, after pooling.
        weight: as torch lays it out.
        bias: (after,).
        weight_gradient: takes the gradient of the weight.
        bias_gradient: takes that of the bias.
        output: room for (samples, …), and as many again for changes of the inputs.
        gradient: as ``output``.
        codes: room for (samples, …) of a convolution; else 0.
        turned: of a dense layer, room for (before, samples), and for changes; else 0.
        work: likewise, (after, samples).
    """

    before: int
    after: int
    image: tuple[int, int, int, int] | None
    relu: bool
    weight: int
    bias: int
    weight_gradient: int
    bias_gradient: int
    output: int
    gradient: int
    codes: int
    turned: int
    work: int


class Targets(NamedTuple):
    """The targets of a batch: addresses of labels or of soft targets.

    Attributes:
        labels: int64 (batch,), or None.
        soft: float32 (batch, classes), or None.
        apart: values from one sample's soft targets to the next one's, where other targets are
            mixed in: the classes, or 0 if all samples have the same.
    """

    labels: int | None = None
    soft: int | None = None
    apart: int = 0


class _ChainLayer(ctypes.Structure):
    """A layer, as the kernels take it."""

    _fields_ = [
        ("sizes", Shape),
        ("dense", c_int64),
        ("relu", c_int64),
        *(
            (name, c_void_p)
            for name in (
                *("weight", "bias", "weight_gradient", "bias_gradient"),
                *("output", "gradient", "turned", "work", "codes"),
            )
        ),
    ]


Layers = Array[_ChainLayer]


def layers(links: Sequence[ChainLink]) -> Layers:
    """Return a chain as the kernels take it."""
    return (_ChainLayer * len(links))(*(_layer(link) for link in links))


def gradients(
    chain: Layers, batch: int, x: int, strides: tuple[int, ...], labels: int, loss: int
) -> None:
    """Write the mean cross-entropy of a batch against labels, and all gradients.

    Args:
        chain: the layers.
        batch: samples; no more than there is room for.
        x: address of the inputs.
        strides: theirs, for batch, channel, row and column; a dense layer needs dense rows.
        labels: address of int64 (batch,).
        loss: address of one float32.

    Raises:
        ValueError: a label is none of the classes.
        MemoryError: there was too little for the work.
    """
    call("edgefed_gradients", chain, len(chain), batch, x, strides_of(strides), labels, loss)


def mixed_gradients(
    chain: Layers,
    batch: int,
    x: int,
    strides: tuple[int, ...],
    own: Targets,
    other: Targets,
    share: float,
    change: int,
    change_strides: tuple[int, ...],
    factor: float,
    loss: int,
) -> None:
    """Write the loss of a batch against mixed targets, and all gradients.

    It is the mean cross-entropy against (1 - share) own + share other, and ``factor`` times the
    derivative of that against ``own`` along a change of the inputs.

    Args:
        chain: the layers.
        batch: samples; no more than there is room for.
        x: address of the inputs.
        strides: as for ``gradients``.
        own: own targets.
        other: targets that are mixed in.
        share: of ``other``, which is not read if it is 0.
        change: address of one input, a change that is the same for all samples; 0 for none.
        change_strides: its strides, 0 for the batch.
        factor: of the derivative.
        loss: address of one float32.

    Raises:
        ValueError: a label is none of the classes.
        MemoryError: there was too little for the work.
    """
    inputs = (chain, len(chain), batch, x, strides_of(strides))
    answers = (own.labels, own.soft, other.labels, other.soft, other.apart, share)
    ways = (change or None, strides_of(change_strides), factor)
    call("edgefed_mixed_gradients", *inputs, *answers, *ways, loss)


def call(name: str, *arguments: Any) -> None:
    """Call a kernel.

    Raises:
        ValueError: a label, or a condition, is outside of its range.
        MemoryError: there was too little for the work.
    """
    code = getattr(native().library, name)(*arguments)
    if code == OTHER_CONDITION:
        raise ValueError("A condition is not one of the table's.")
    if code > 0:
        raise ValueError("A label is not one of the classes.")
    if code:
        raise MemoryError("There is not enough memory for the gradient of a chain.")


def _layer(link: ChainLink) -> _ChainLayer:
    height, width, kernel, padding = link.image or (1, 1, 1, 0)
    sizes = shape((0, link.before, height, width, link.after, kernel, padding))
    ends = (link.weight, link.bias, link.weight_gradient, link.bias_gradient)
    rooms = (link.output, link.gradient, link.turned, link.work, link.codes)
    return _ChainLayer(sizes, link.image is None, link.relu, *ends, *rooms)
