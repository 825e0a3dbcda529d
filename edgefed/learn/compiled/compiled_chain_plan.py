"""Determine whether a model is a chain of layers that the compiled kernels support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from torch import nn

from edgefed.learn.base.torch_private import has_hooks
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.learn.networks.small_conv import MOST_AFTER, MOST_BEFORE
from edgefed.native.convolution import KERNELS

MOST_WEIGHTS = 2**17
"""Weights of a dense layer from which on torch's own products are as quick."""

KNOWN = (ConvPoolReLU, nn.Linear)


@dataclass(frozen=True)
class ChainPart:
    """A layer with weights.

    Attributes:
        name: the module's in the model.
        before: values of its input; of a convolution, its channels.
        after: likewise of its output.
        values: values of its output for one sample.
        image: height, width, filter and padding of a convolution; None for a dense layer.
        relu: whether a dense layer ends in ReLU.
    """

    name: str
    before: int
    after: int
    values: int
    image: tuple[int, int, int, int] | None = None
    relu: bool = False


def plan(model: Model) -> list[ChainPart]:
    """Return a model's layers; none if it is not such a chain.

    A chain has small convolutions with pooling and ReLU, dense layers with ReLU between them, and a
    dense layer at the end, all with bias; dropout is allowed if its probability is 0.
    """
    module, shape, parts = model.module, model.shape, list[ChainPart]()
    if type(module) is not nn.Sequential or has_hooks(module):
        return []
    for name, layer in module.named_children():
        if type(layer) is nn.ReLU and parts and parts[-1].image is None and not parts[-1].relu:
            parts[-1] = replace(parts[-1], relu=True)
        elif type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            shape = (prod(shape),)
        elif type(layer) in KNOWN:
            part = _part(name, layer, shape)
            if part is None:
                return []
            parts.append(part)
            shape = _after(part)
        elif not (type(layer) is nn.Dropout and layer.p == 0):
            return []
    fits = parts and parts[-1].image is None and not parts[-1].relu and shape == (model.classes,)
    # A weight outside of the parts would get no gradient
    return parts if fits and set(_names(parts)) == set(model.names) else []


def _part(name: str, layer: nn.Module, shape: tuple[int, ...]) -> ChainPart | None:
    """Return a layer for inputs of a shape, or None if the kernels cannot do it."""
    if isinstance(layer, nn.Linear):
        small = layer.in_features * layer.out_features <= MOST_WEIGHTS
        fits = shape == (layer.in_features,) and layer.bias is not None and small
        return _dense(name, layer) if fits else None
    assert isinstance(layer, ConvPoolReLU)
    kernel, padding = layer.kernel_size[0], int(layer.padding[0])
    small = layer.in_channels <= MOST_BEFORE and layer.out_channels <= MOST_AFTER
    if len(shape) != 3 or shape[0] != layer.in_channels or layer.bias is None or not small:
        return None
    _, height, width = shape
    if kernel not in KERNELS or min(height, width) + 2 * padding <= kernel:
        return None
    # The convolution leaves size + 2 padding - kernel + 1, which pooling halves, rounded down
    rows, columns = ((size + 2 * padding - kernel + 1) // 2 for size in (height, width))
    values, after = layer.out_channels * rows * columns, layer.out_channels
    return ChainPart(name, shape[0], after, values, (height, width, kernel, padding))


def _dense(name: str, layer: nn.Linear) -> ChainPart:
    return ChainPart(name, layer.in_features, layer.out_features, layer.out_features)


def _after(part: ChainPart) -> tuple[int, ...]:
    """Return the shape of a layer's output."""
    if part.image is None:
        return (part.after,)
    height, width, kernel, padding = part.image
    return (part.after, *((size + 2 * padding - kernel + 1) // 2 for size in (height, width)))


def _names(parts: list[ChainPart]) -> Iterator[str]:
    for part in parts:
        yield from (f"{part.name}.weight", f"{part.name}.bias")
