"""Call the kernel of a mixture of experts with random shapes, and compare it with numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from edgefed.native import chain, experts
from tests.native import reference
from tests.native.random_layers import (
    STEP,
    Rooms,
    at,
    laid_out,
    layers_of,
    links_of,
    near,
    numbers,
)
from tests.native.reference import Array, Layer

SMALL = ("phi", "gate_weight", "gate_bias", "bias")
"""Arrays of a mixture that have a gradient."""


@dataclass(frozen=True)
class Case:
    """A mixture and a batch.

    Attributes:
        layers: of each expert that is here.
        arrays: of the mixture; some may be missing.
        x: inputs.
        y: soft targets, or labels as such.
        rows: which row of phi each sample has; None where targets weigh them.
        options: whether the gate is pruned, detached, and entropy added.
        numbers: which experts are here.
        kept_own: q'(z|s), a constant.
    """

    layers: list[list[Layer]]
    arrays: Mapping[str, Array]
    x: Array
    y: Array
    rows: Array | None
    options: Mapping[str, Any]
    numbers: Array
    kept_own: Array


def log_softmax(z: Array) -> Array:
    shifted: Array = z - z.max(-1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return logs


def used_of(case: Case) -> Array:
    every = len(case.arrays["gate_bias"])
    return np.isin(np.arange(every), case.numbers[case.kept_own[case.numbers] > 0])


def shares(case: Case) -> Array:
    """Return q(z|y_b)."""
    if "shares" in case.arrays:
        return np.broadcast_to(case.arrays["shares"], (len(case.x), len(case.kept_own)))
    table = np.exp(log_softmax(case.arrays["phi"]))
    return table[case.rows] if case.rows is not None else np.asarray(case.y @ table)


def hidden_of(case: Case) -> Array:
    """Return what the gate sees."""
    none = np.zeros((1, *case.x.shape[1:]))
    parts = [
        case.kept_own[z] * reference.outputs(layers[:-1], case.x, none)[0].reshape(len(case.x), -1)
        for z, layers in zip(case.numbers, case.layers, strict=True)
    ]
    total: Array = np.sum(parts, axis=0)
    return total


def loss(case: Case, hidden: Array | None = None) -> float:
    """Return the loss; ``hidden`` is what the gate sees, where that is a constant."""
    q, used = shares(case), used_of(case)
    left = np.where(used, q, 0)
    kept = left / left.sum(1, keepdims=True)
    none = np.zeros((1, *case.x.shape[1:]))
    right = np.zeros(q.shape)
    for z, layers in zip(case.numbers, case.layers, strict=True):
        logits = reference.outputs(layers, case.x, none)[0] + case.arrays.get("bias", 0)
        right[:, z] = (case.y * log_softmax(logits)).sum(1)
    seen = hidden_of(case) if hidden is None else hidden
    gate = log_softmax(seen @ case.arrays["gate_weight"] + case.arrays["gate_bias"])
    each = (kept * right).sum(1)
    each = each + ((kept if case.options["prunes_gate"] else q) * gate).sum(1)
    if case.options["adds_entropy"]:
        each = each - (kept * np.log(np.where(kept > 0, kept, 1))).sum(1)
    return float(-each.mean())


def fuzz_experts(rng: np.random.Generator) -> None:
    batch, every = int(rng.integers(1, 24)), int(rng.integers(1, 6))
    layers, shape = layers_of(rng, batch)
    here = np.sort(rng.choice(every, int(rng.integers(1, every + 1)), replace=False))
    copies = [[moved(rng, layer) for layer in layers] for _ in here]
    classes, width = layers[-1].weight.shape
    options = {
        name: bool(rng.random() < 0.5) for name in ("prunes_gate", "detaches", "adds_entropy")
    }
    by_column, soft, by_device = rng.random() < 0.3, rng.random() < 0.3, rng.random() < 0.2
    conditions = int(rng.integers(2, 7)) if by_column else classes
    labels = rng.integers(classes, size=batch)
    y = rng.dirichlet(np.ones(classes), batch).astype(np.float32)
    y = y if soft else np.eye(classes, dtype=np.float32)[labels]
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
    case = Case(copies, arrays, laid_out(rng, x) if x.ndim == 4 else x, y, rows, options, here, x)
    case = replace(case, kept_own=kept_of(case, threshold := float(rng.choice([0, rng.random()]))))
    skip = float(rng.choice([0, rng.random() / 2]))
    run(rng, case, labels if not soft else None, threshold, skip)


def moved(rng: np.random.Generator, layer: Layer) -> Layer:
    weight = (layer.weight * (1 + 0.3 * numbers(rng, *layer.weight.shape))).astype(np.float32)
    return replace(layer, weight=weight, bias=numbers(rng, *layer.bias.shape))


def kept_of(case: Case, threshold: float) -> Array:
    """Return q'(z|s)."""
    own = case.arrays.get("shares")
    if own is None:
        own = case.arrays["frequencies"] @ np.exp(log_softmax(case.arrays["phi"]))
    mask = np.isin(np.arange(len(own)), case.numbers)
    used = mask & (own >= threshold / len(own))
    left = np.where(used if used.any() else mask, own, 0).astype(np.float64)
    found: Array = left / left.sum()
    return found


def run(
    rng: np.random.Generator, case: Case, labels: Array | None, threshold: float, skip: float
) -> None:
    """Call the kernel; compare the loss, and the slopes that no skipped sample changes."""
    batch, room, rooms = len(case.x), int(rng.integers(0, 9)), Rooms()
    gradients = [
        [np.full_like(part, np.nan) for each in layers for part in (each.weight, each.bias)]
        for layers in case.layers
    ]
    links = [
        link
        for layers, own in zip(case.layers, gradients, strict=True)
        for link in links_of(layers, batch + room, rooms, own, times=1)
    ]
    small = {name: np.full_like(case.arrays[name], np.nan) for name in SMALL if name in case.arrays}
    after, found = np.full(len(case.kept_own), np.nan, np.float32), np.full(1, np.nan, np.float32)
    place, strides = at(case.x)
    by_device = "shares" in case.arrays
    rows = None if by_device or case.rows is None else case.rows.ctypes.data
    settings = {"threshold": threshold, "skip_below": skip, "damping": 0.75}
    mixture = described(case, small, after, settings)
    experts.gradients(
        chain.layers(links),
        len(case.layers[0]),
        batch,
        place,
        (*strides, 0, 0)[:4],
        None if labels is None else labels.ctypes.data,
        case.y.ctypes.data if labels is None else None,
        rows,
        mixture,
        found.ctypes.data,
    )
    near(found, np.array([loss(case)]), f"loss of {case.options}")
    if by_device:
        shares = case.arrays["shares"]
        away = ~np.isin(np.arange(len(shares)), case.numbers)
        assert (after[away] == shares[away]).all(), "experts that are not here keep their shares"
        assert abs(float(after.sum()) - float(shares.sum())) < 1e-5
    hidden = hidden_of(case) if case.options["detaches"] else None
    for name, gradient in small.items():
        start = case.arrays[name]

        def slope(part: Array, name: str = name) -> float:
            return loss(with_array(case, name, part), hidden)

        check(rng, gradient, name, slope, start)
    for number, own in enumerate(gradients):
        check_expert(rng, case, number, own, hidden, exact=not skip)


def described(
    case: Case, gradients: Mapping[str, Array], after: Array, settings: Mapping[str, float]
) -> experts.Mixture:
    """Return a mixture as the kernel takes it."""
    return experts.Mixture(
        experts=len(case.kept_own),
        here=len(case.numbers),
        conditions=len(case.arrays.get("phi", ())),
        trains_experts=True,
        **case.options,
        **settings,
        numbers=case.numbers.ctypes.data,
        **{name: array.ctypes.data for name, array in case.arrays.items()},
        **{f"{name}_gradient": array.ctypes.data for name, array in gradients.items()},
        next_shares=after.ctypes.data,
    )


def check_expert(
    rng: np.random.Generator,
    case: Case,
    expert: int,
    gradients: list[Array],
    hidden: Array | None,
    *,
    exact: bool,
) -> None:
    """Compare an expert's gradients where they are exact; otherwise they are just numbers."""
    for place, gradient in enumerate(gradients):
        assert np.isfinite(gradient).all()
        number, end = place // 2, ("weight", "bias")[place % 2]
        if exact:

            def slope(part: Array, n: int = number, e: str = end) -> float:
                return loss(with_layer(case, expert, n, e, part), hidden)

            start = getattr(case.layers[expert][number], end)
            check(rng, gradient, f"{end} {number} of expert {expert}", slope, start)


def with_array(case: Case, name: str, array: Array) -> Case:
    return replace(case, arrays={**case.arrays, name: array})


def with_layer(case: Case, expert: int, place: int, end: str, array: Array) -> Case:
    layers = [list(each) for each in case.layers]
    old = layers[expert][place]
    layers[expert][place] = (
        replace(old, weight=array) if end == "weight" else replace(old, bias=array)
    )
    return replace(case, layers=layers)


def check(rng: np.random.Generator, gradient: Array, what: str, slope: Any, start: Array) -> None:
    """Compare a gradient with a difference of the loss along a random direction."""
    way = rng.standard_normal(start.shape)
    one, other = (slope(start.astype(np.float64) + sign * STEP * way) for sign in (1, -1))
    near(np.array((gradient * way).sum()), np.array((one - other) / (2 * STEP)), f"slope of {what}")
