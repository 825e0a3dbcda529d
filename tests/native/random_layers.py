"""Random layers and inputs, and memory of exact sizes for them, for the fuzzers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.native import chain, convolution
from edgefed.native.convolution import KERNELS, Sizes

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A layer of a chain: sizes of a convolution, or None for a dense one, with or without ReLU."""

    sizes: Sizes | None
    relu: bool
    weight: Array
    bias: Array


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def sizes_of(rng: np.random.Generator, batch: int) -> Sizes:
    kernel, padding = int(rng.choice(KERNELS)), int(rng.integers(4))
    least = max(1, kernel + 1 - 2 * padding)
    height, width = (int(rng.integers(least, least + 40)) for _ in range(2))
    inputs, outputs = int(rng.choice([1, 2, 3, 5, 16, 32])), int(rng.integers(1, 65))
    return batch, inputs, height, width, outputs, kernel, padding


def laid_out(rng: np.random.Generator, x: Array) -> Array:
    """Return the same images in some order of memory: planes, pixels, or a part of a larger one."""
    kind = rng.integers(4)
    if kind == 0:
        return np.ascontiguousarray(x)
    if kind == 1:
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if kind == 2:
        return np.ascontiguousarray(x.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    # The part ends where the memory does.
    larger = np.zeros((len(x), *(size + 2 for size in x.shape[1:])), np.float32)
    part = larger[:, 2:, 2:, 2:]
    part[:] = x
    return part


def at(x: Array) -> tuple[int, tuple[int, ...]]:
    """Return where images are, and their strides in values."""
    return x.ctypes.data, tuple(step // 4 for step in x.strides)


def near(found: Array, wanted: Array, what: str) -> None:
    largest = max(1.0, float(np.abs(wanted).max(initial=0)))
    error = float(np.abs(found - wanted).max(initial=0))
    assert error <= 2e-4 * largest, f"{what}: {error} of {largest}"


def assert_written(*arrays: Array) -> None:
    """Assert that arrays which were NaN before a call are numbers after it."""
    assert all(np.isfinite(each).all() for each in arrays)


def layers_of(rng: np.random.Generator, batch: int) -> tuple[list[Layer], tuple[int, ...]]:
    """Return a random chain, and the shape of one input."""
    layers = list[Layer]()
    shape = int(rng.integers(1, 4)), int(rng.integers(6, 20)), int(rng.integers(6, 20))
    first = shape
    for _ in range(rng.integers(3)):
        kernel, padding = int(rng.choice(KERNELS)), int(rng.integers(3))
        after = int(rng.integers(1, 20))
        if min(shape[1:]) + 2 * padding <= kernel:
            break
        sizes = (batch, *shape, after, kernel, padding)
        weight = numbers(rng, sizes[4], shape[0], kernel, kernel) / (kernel * shape[0] ** 0.5)
        layers.append(Layer(sizes, True, weight, numbers(rng, sizes[4])))
        rows, columns = ((size + 2 * padding - kernel + 1) // 2 for size in shape[1:])
        shape = after, rows, columns
    before, dense = int(np.prod(shape)), int(rng.integers(1, 4))
    for number in range(dense):
        after = int(rng.integers(1, 40))
        weight = numbers(rng, after, before) / np.float32(before**0.5)
        layers.append(Layer(None, number < dense - 1, weight, numbers(rng, after)))
        before = after
    return layers, first if layers[0].sizes else (int(np.prod(first)),)


class Rooms:
    """Memory of exactly the sizes that a chain's layers are to have, until this is forgotten."""

    def __init__(self) -> None:
        self.held: list[Array] = []

    def new(self, size: int, kind: Any = np.float32) -> int:
        self.held.append(np.empty(size, kind))
        return int(self.held[-1].ctypes.data)


def links_of(
    layers: list[Layer], room: int, rooms: Rooms, gradients: list[Array], times: int = 2
) -> list[chain.ChainLink]:
    """Return a chain with room as ``learn/compiled/compiled_chain_layers.py`` gives it.

    ``times`` is 1 where there are no changes beside the values.
    """
    links, rows = list[chain.ChainLink](), times * room
    turned = -(-rows // chain.SAMPLES) * chain.SAMPLES
    for number, layer in enumerate(layers):
        after, before = layer.weight.shape[:2]
        image, values, dense = None, after, layer.sizes is None
        if layer.sizes is not None:
            image, shape = (*layer.sizes[2:4], *layer.sizes[5:]), convolution.shape(layer.sizes)
            values = after * shape.rows * shape.columns
        links.append(
            chain.ChainLink(
                before=before,
                after=after,
                image=image,
                relu=layer.relu and dense,
                weight=layer.weight.ctypes.data,
                bias=layer.bias.ctypes.data,
                weight_gradient=gradients[2 * number].ctypes.data,
                bias_gradient=gradients[2 * number + 1].ctypes.data,
                output=rooms.new(rows * values),
                gradient=rooms.new(rows * values),
                codes=0 if dense else rooms.new(room * values, np.uint8),
                turned=rooms.new(before * turned) if dense else 0,
                work=rooms.new(after * turned) if dense else 0,
            )
        )
    return links
