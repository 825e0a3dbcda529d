"""Layers of devices are merged as computed by hand, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edgefed.learn.base.permutation_groups import PermutationGroups, Segment, combined
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.matching.layer import Matched
from edgefed.learn.matching.layer_merging import (
    DeviceLayer,
    LayerAveraging,
    class_proportions,
    masked_mean,
    merge_output,
    merge_step,
    recurrent_blocks,
)
from edgefed.learn.matching.steps import matching_steps
from edgefed.learn.networks.layer_groups import affine, chain
from edgefed.learn.networks.lstm import lstm_groups

PERCEPTRON = combined({"a": 2}, chain([("a", 1), ("out", 1)]))

UNIT = (Segment("a"),)
RESIDUAL = combined(
    {"a": 2, "b": 1},
    [
        affine("first", UNIT),
        affine("inner", (Segment("b"),), UNIT),
        affine("second", UNIT, (Segment("b"),)),
        affine("shortcut", UNIT),
        affine("out", (), UNIT),
    ],
)
"""``second`` and ``shortcut`` add to what ``first`` makes."""


class Given:
    """A matching that was decided beforehand; it notes what it was asked."""

    def __init__(self, *assignments: list[int], atoms: Array | None = None) -> None:
        self.assignments = tuple(np.array(each) for each in assignments)
        self.atoms = np.zeros((0, 0)) if atoms is None else atoms
        self.asked: list[tuple[str, list[Array]]] = []

    def __call__(self, group: str, vectors: Sequence[Array], weights: Sequence[Tensors]) -> Matched:
        del weights
        self.asked.append((group, list(vectors)))
        counts = np.bincount(np.concatenate(self.assignments))
        return Matched(self.assignments, self.atoms, counts, 0.0, 1, 1.0, 1.0, 0.0)


def nothing(group: str, vectors: Sequence[Array], weights: Sequence[Tensors]) -> Matched:
    raise AssertionError(f"{group} is decided already")


def layer(name: str, weight: list[list[float]], bias: list[float]) -> Tensors:
    return {
        f"{name}.weight": np.array(weight, np.float32),
        f"{name}.bias": np.array(bias, np.float32),
    }


# -- means ----------------------------------------------------------------------------------------


def test_an_entry_is_the_weighted_mean_over_those_who_have_it() -> None:
    parts = [np.array([1.0, 2, 3], np.float32), np.array([5.0, 6, 7], np.float32)]
    masks = [np.array([True, True, False]), np.array([True, False, False])]
    mean = masked_mean(parts, masks, [3.0, 1.0], 9.0)
    assert mean.dtype == np.float32
    assert mean.tolist() == [2, 2, 9]


def test_a_class_that_nobody_has_weighs_all_alike() -> None:
    shares = class_proportions(np.array([[3, 0, 0], [1, 2, 0]]))
    assert shares.tolist() == [[0.75, 0, 0.5], [0.25, 1, 0.5]]


def test_each_row_of_the_output_layer_is_averaged_by_its_class() -> None:
    one = layer("out", [[1, 2], [3, 4]], [1, 2])
    other = layer("out", [[5, 6], [7, 8]], [5, 6])
    shares = np.array([[0.75, 0.0], [0.25, 1.0]])
    merged = merge_output(PERCEPTRON.layers[-1], [one, other], shares)
    assert merged["out.weight"].tolist() == [[2, 3], [7, 8]]
    assert merged["out.bias"].tolist() == [2, 6]
    assert merged["out.bias"].dtype == np.float32


# -- a layer that decides -------------------------------------------------------------------------

ONE, OTHER = layer("a", [[1], [2]], [10, 20]), layer("a", [[4], [6]], [40, 60])
"""Unit 1 of the one is unit 0 of the other: atom 1."""


@pytest.mark.parametrize(
    ("averaging", "weight", "bias"),
    [
        (LayerAveraging(), [1, 3.5, 6], [10, 35, 60]),
        (LayerAveraging(pad_all=True), [0.25, 3.5, 4.5], [2.5, 35, 45]),
        (LayerAveraging(use_atoms=True), [7, 8, 9], [70, 80, 90]),
    ],
)
def test_units_that_are_the_same_are_averaged(
    averaging: LayerAveraging, weight: list[float], bias: list[float]
) -> None:
    match = Given([0, 1], [1, 2], atoms=np.array([[7.0, 70], [8, 80], [9, 90]]))
    devices = [DeviceLayer(ONE, {}, 1.0), DeviceLayer(OTHER, {}, 3.0)]
    merged = merge_step(matching_steps(PERCEPTRON)[0], PERCEPTRON, devices, match, averaging)
    assert merged.weights["a.weight"].ravel().tolist() == weight
    assert merged.weights["a.bias"].tolist() == bias
    assert merged.groups.widths == {"a": 3}
    [(group, vectors)] = match.asked
    assert group == "a"
    assert [each.tolist() for each in vectors] == [[[1, 10], [2, 20]], [[4, 40], [6, 60]]]


# -- layers of one group --------------------------------------------------------------------------


def test_a_layer_that_follows_is_averaged_over_those_who_have_its_units() -> None:
    step = matching_steps(RESIDUAL)[2]
    assert (step.name, step.decides) == ("second", ())
    groups = RESIDUAL.resized({"a": 3, "b": 1})
    # What a device trained in a row that none of its units has does not count.
    one = layer("second", [[1], [2], [100]], [1, 2, 100])
    other = layer("second", [[200], [4], [8]], [200, 4, 8])
    devices = [
        DeviceLayer(one, {"a": np.array([0, 1]), "b": np.array([0])}),
        DeviceLayer(other, {"a": np.array([2, 1]), "b": np.array([0])}),
    ]
    merged = merge_step(step, groups, devices, nothing, LayerAveraging())
    assert merged.weights["second.weight"].tolist() == [[1], [3], [8]]
    assert merged.weights["second.bias"].tolist() == [1, 3, 8]
    assert (merged.matches, merged.groups.widths) == ({}, groups.widths)


def names(groups: PermutationGroups, decides: str) -> list[list[str]]:
    steps = matching_steps(groups, decides)  # type: ignore[arg-type]
    return [[each.name for each in step.layers] for step in steps]


def test_layers_whose_inputs_are_matched_decide_together() -> None:
    first = [["first"], ["inner"], ["second"], ["shortcut"], ["out"]]
    assert names(RESIDUAL, "first") == first
    assert names(RESIDUAL, "ready") == [["first", "shortcut"], ["inner"], ["second"], ["out"]]
    step, match = matching_steps(RESIDUAL, "ready")[0], Given([1, 0], atoms=np.zeros((2, 4)))
    weights = {**layer("first", [[1], [2]], [3, 4]), **layer("shortcut", [[5], [6]], [7, 8])}
    merged = merge_step(step, RESIDUAL, [DeviceLayer(weights, {})], match, LayerAveraging())
    [(_, [vectors])] = match.asked
    assert vectors.tolist() == [[1, 3, 5, 7], [2, 4, 6, 8]]
    assert merged.weights["shortcut.bias"].tolist() == [8, 7]


# -- recurrent layers -----------------------------------------------------------------------------


def recurrent(own: list[list[float]]) -> Tensors:
    """Return an LSTM's layer whose four gates have the same recurrent weights, all others 1."""
    return {
        "lstm.weight_ih_l0": np.ones((8, 1), np.float32),
        "lstm.weight_hh_l0": np.tile(np.array(own, np.float32), (4, 1)),
        "lstm.bias_ih_l0": np.ones(8, np.float32),
        "lstm.bias_hh_l0": np.ones(8, np.float32),
    }


@pytest.mark.parametrize(
    ("averaging", "expected", "bias"),
    [
        (LayerAveraging(), [[1, 2, 0], [3, 7, 20], [0, 30, 40]], [1, 1, 1]),
        (LayerAveraging(pad_recurrent=True), [[0.5, 1, 0], [1.5, 7, 10], [0, 15, 20]], [1, 1, 1]),
        (LayerAveraging(pad_all=True), [[0.5, 1, 0], [1.5, 7, 10], [0, 15, 20]], [0.5, 1, 0.5]),
    ],
)
def test_a_recurrent_weight_is_averaged_over_those_who_have_both_units(
    averaging: LayerAveraging, expected: list[list[float]], bias: list[float]
) -> None:
    groups = lstm_groups(1, [2])
    step = matching_steps(groups)[1]
    parts = [recurrent([[1, 2], [3, 4]]), recurrent([[10, 20], [30, 40]])]
    devices = [DeviceLayer(each, {"embedding": np.array([0])}) for each in parts]
    merged = merge_step(step, groups, devices, Given([0, 1], [1, 2]), averaging).weights
    assert merged["lstm.weight_hh_l0"].reshape(4, 3, 3).tolist() == [expected] * 4
    assert merged["lstm.bias_hh_l0"].reshape(4, 3).tolist() == [bias] * 4


def test_recurrent_blocks_are_those_of_the_gates() -> None:
    groups = lstm_groups(1, [2])
    [block] = recurrent_blocks([recurrent([[1, 2], [3, 4]])], groups, "lstm_l0")
    assert block.tolist() == [[[1, 2], [3, 4]]] * 4
    assert recurrent_blocks([layer("a", [[1], [2]], [1, 2])], PERCEPTRON, "a") == []
