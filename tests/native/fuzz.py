"""Call the kernels of one library with random shapes.

Sums and natural noise are compared with numpy. The gradients are compared with torch's by the tests
of ``learn``: here they have to be written, all of them and nothing beside them.

``python -m tests.native.fuzz LIBRARY SEED [NAME …]``, with the sanitizers' runtime loaded before
all else. Names are those of functions below; without one, all run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.native import chain, convolution, library, merging
from tests.native.fuzz_experts import fuzz_experts
from tests.native.fuzz_noise import fuzz_noise_image, fuzz_pink
from tests.native.random_layers import (
    Array,
    Rooms,
    assert_written,
    at,
    laid_out,
    layers_of,
    links_of,
    numbers,
    sizes_of,
)

Inputs = tuple[Any, int, int, tuple[int, ...]]
"""A chain, the samples of a batch, where its inputs are, and their strides."""

CONVOLUTIONS, CHAINS, MIXTURES, SUMS, IMAGES, MAPS = 15, 20, 12, 20, 12, 2


def main(path: Path, seed: int, names: list[str]) -> None:
    """Fuzz the library at ``path``: all functions, or those of some names."""
    library.find = lambda folder, name="": path
    assert library.native().library is not None, library.native().reason
    fuzzed: tuple[tuple[int, Callable[[np.random.Generator], None]], ...] = (
        (CONVOLUTIONS, fuzz_convolution),
        (CHAINS, fuzz_chain),
        (MIXTURES, fuzz_experts),
        (SUMS, fuzz_merging),
        (IMAGES, fuzz_noise_image),
        (MAPS, fuzz_pink),
    )
    for count, fuzz in fuzzed:
        if names and fuzz.__name__ not in names:
            continue
        for number in range(count):
            fuzz(np.random.default_rng([seed, number]))
        sys.stdout.write(f"{count} {fuzz.__name__}\n")


def fuzz_convolution(rng: np.random.Generator) -> None:
    sizes = sizes_of(rng, int(rng.integers(1, 8)))
    batch, before, height, width, after, kernel, _ = sizes
    shape = convolution.shape(sizes)
    x = laid_out(rng, numbers(rng, batch, before, height, width))
    weight, bias = numbers(rng, after, before, kernel, kernel), numbers(rng, after)
    place = weight.ctypes.data
    out, tangent = np.full((2, batch, after, shape.rows, shape.columns), np.nan, np.float32)
    codes = np.full(out.shape, 9, np.uint8)
    ends = bias.ctypes.data, out.ctypes.data, codes.ctypes.data
    convolution.forward(sizes, *at(x), place, *ends)
    shared = rng.random() < 0.5
    change = laid_out(rng, numbers(rng, 1 if shared else batch, before, height, width))
    wide = np.broadcast_to(change, x.shape)
    convolution.tangent(sizes, *at(wide), place, codes.ctypes.data, tangent.ctypes.data)
    gradient = laid_out(rng, numbers(rng, *codes.shape))
    of_weight, of_bias = np.full_like(weight, np.nan), np.full_like(bias, np.nan)
    ends = codes.ctypes.data, of_weight.ctypes.data, of_bias.ctypes.data
    convolution.weights_gradient(sizes, *at(x), *at(gradient), *ends)
    pixels = np.full((batch, height, width, before), np.nan, np.float32)
    ways = (*at(gradient), codes.ctypes.data, pixels.ctypes.data)
    convolution.inputs_gradient(sizes, place, *ways)
    assert_written(out, tangent, of_weight, of_bias, pixels)


def fuzz_chain(rng: np.random.Generator) -> None:
    batch, room = int(rng.integers(1, 24)), int(rng.integers(0, 9))
    layers, shape = layers_of(rng, batch)
    classes, rooms, found = len(layers[-1].bias), Rooms(), np.full(1, np.nan, np.float32)
    gradients = [np.full_like(part, np.nan) for each in layers for part in (each.weight, each.bias)]
    links = chain.layers(links_of(layers, batch + room, rooms, gradients))
    x, change = numbers(rng, batch, *shape), numbers(rng, 1, *shape)
    if len(shape) == 3:
        x, change = laid_out(rng, x), laid_out(rng, change)
    strides, along = ((*at(each)[1], 0, 0)[:4] for each in (x, change))
    labels = rng.integers(classes, size=batch)
    inputs: Inputs = (links, batch, x.ctypes.data, strides)
    if rng.random() < 0.3:
        chain.gradients(*inputs, labels.ctypes.data, found.ctypes.data)
        refuse_other_labels(rng, inputs, labels, classes, found)
    else:
        share, factor = float(rng.random()), float(rng.choice([0, rng.random()]))
        own, soft = (
            rng.dirichlet(np.ones(classes), size).astype(np.float32)
            for size in (batch, int(rng.choice([1, batch])))
        )
        mine = chain.Targets(labels.ctypes.data)
        other = chain.Targets(soft=soft.ctypes.data, apart=classes if len(soft) == batch else 0)
        if rng.random() < 0.5:
            mine = chain.Targets(soft=own.ctypes.data, apart=classes)
        where = (change.ctypes.data, (0, *along[1:])) if factor else (0, strides)
        chain.mixed_gradients(*inputs, mine, other, share, *where, factor, found.ctypes.data)
    assert_written(found, *gradients)


def refuse_other_labels(
    rng: np.random.Generator, inputs: Inputs, labels: Array, classes: int, found: Array
) -> None:
    wrong = labels.copy()
    wrong[rng.integers(len(wrong))] = rng.choice([-1, classes, 2**62])
    try:
        chain.gradients(*inputs, wrong.ctypes.data, found.copy().ctypes.data)
    except ValueError:
        return
    raise AssertionError("a label that is none of the classes was taken")


def fuzz_merging(rng: np.random.Generator) -> None:
    kind = np.float32 if rng.random() < 0.5 else np.float64
    values: Array = rng.standard_normal(int(rng.integers(0, 70))).astype(kind)
    before = rng.integers(2**63, size=len(values), dtype=np.uint64)
    cells, scale = before.copy(), 2.0**40
    weight = int(rng.integers(-(2**40), 2**40))
    assert merging.add(cells, values, scale, weight, 64.0)
    bits = ((values * kind(scale)).astype(np.float64) + 1.5 * 2.0**52).view(np.uint64)
    with np.errstate(over="ignore"):
        assert np.array_equal(cells, before + bits * np.uint64(weight % 2**64))
    if len(values):
        kept = cells.copy()
        values[rng.integers(len(values))] = rng.choice([np.nan, np.inf, -65.0, 1e30])
        assert not merging.add(cells, values, scale, weight, 64.0)
        assert np.array_equal(cells, kept)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
