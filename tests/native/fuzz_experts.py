"""Call the kernel of a mixture of experts with random shapes: all gradients have to be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from edgefed.native import chain, experts
from tests.native.random_layers import (
    Array,
    Layer,
    Rooms,
    assert_written,
    at,
    laid_out,
    layers_of,
    links_of,
    numbers,
)

SMALL = ("phi", "gate_weight", "gate_bias", "bias")
"""Arrays of a mixture that have a gradient."""


def fuzz_experts(rng: np.random.Generator) -> None:
    batch, every = int(rng.integers(1, 24)), int(rng.integers(1, 6))
    layers, shape = layers_of(rng, batch)
    here = np.sort(rng.choice(every, int(rng.integers(1, every + 1)), replace=False))
    copies = [[moved(rng, layer) for layer in layers] for _ in here]
    classes, width = layers[-1].weight.shape
    by_column, soft, by_device = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.2
    conditions = int(rng.integers(2, 7)) if by_column else classes
    labels = rng.integers(classes, size=batch)
    targets = rng.dirichlet(np.ones(classes), batch).astype(np.float32)
    arrays = {"gate_weight": numbers(rng, width, every), "gate_bias": numbers(rng, every)}
    if rng.random() < 0.5:
        arrays["bias"] = numbers(rng, classes)
    if by_device:
        arrays["shares"] = rng.dirichlet(np.ones(every)).astype(np.float32)
    else:
        arrays["phi"] = 2 * numbers(rng, conditions, every)
        arrays["frequencies"] = rng.dirichlet(np.ones(conditions)).astype(np.float32)
    rows = rng.integers(conditions, size=batch) if by_column else None if soft else labels
    x = numbers(rng, batch, *shape)
    x = laid_out(rng, x) if x.ndim == 4 else x
    place, strides = at(x)
    room, rooms = int(rng.integers(0, 9)), Rooms()
    gradients = [
        [np.full_like(part, np.nan) for each in layers for part in (each.weight, each.bias)]
        for layers in copies
    ]
    links = [
        link
        for layers, own in zip(copies, gradients, strict=True)
        for link in links_of(layers, batch + room, rooms, own, times=1)
    ]
    small = {name: np.full_like(arrays[name], np.nan) for name in SMALL if name in arrays}
    after, found = np.full(every, np.nan, np.float32), np.full(1, np.nan, np.float32)
    experts.gradients(
        chain.layers(links),
        len(layers),
        batch,
        place,
        (*strides, 0, 0)[:4],
        None if soft else labels.ctypes.data,
        targets.ctypes.data if soft else None,
        None if by_device or rows is None else rows.ctypes.data,
        described(rng, arrays, small, here, after),
        found.ctypes.data,
    )
    assert_written(found, *small.values(), *(part for own in gradients for part in own))
    if by_device:
        assert_written(after)


def moved(rng: np.random.Generator, layer: Layer) -> Layer:
    weight = (layer.weight * (1 + 0.3 * numbers(rng, *layer.weight.shape))).astype(np.float32)
    return replace(layer, weight=weight, bias=numbers(rng, *layer.bias.shape))


def described(
    rng: np.random.Generator,
    arrays: Mapping[str, Array],
    gradients: Mapping[str, Array],
    here: Array,
    after: Array,
) -> experts.Mixture:
    """Return a mixture of random settings as the kernel takes it."""
    return experts.Mixture(
        experts=len(after),
        here=len(here),
        conditions=len(arrays.get("phi", ())),
        trains_experts=True,
        prunes_gate=bool(rng.random() < 0.5),
        detaches=bool(rng.random() < 0.5),
        adds_entropy=bool(rng.random() < 0.5),
        threshold=float(rng.choice([0, rng.random()])),
        skip_below=float(rng.choice([0, rng.random() / 2])),
        damping=0.75,
        numbers=here.ctypes.data,
        **{name: array.ctypes.data for name, array in arrays.items()},
        **{f"{name}_gradient": array.ctypes.data for name, array in gradients.items()},
        next_shares=after.ctypes.data,
    )
