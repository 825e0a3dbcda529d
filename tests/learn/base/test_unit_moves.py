"""Scattered weights compute the same function, and gathering brings the same bits back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.learn.base.permutation_groups import PermutationGroups, Segment
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.base.unit_moves import gather, held, scatter, set_unit_vectors, unit_vectors
from tests.learn.permuted import (
    BATCH,
    GROUP,
    PLAIN,
    TALL,
    Small,
    assert_close,
    class_atoms,
    outputs,
    random_atoms,
    random_growth,
    random_weights,
)

GROWING = {**PLAIN, **BATCH}

growing = pytest.mark.parametrize("small", GROWING.values(), ids=GROWING)


def assert_same(ours: Tensors, theirs: Tensors) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        assert array.dtype == theirs[name].dtype
        assert array.tobytes() == theirs[name].tobytes()


def scattered(small: Small, seed: int) -> tuple[Small, Tensors, Tensors, dict[str, Array]]:
    """Return a wider network, weights of the small one and of the wider one, and assignments."""
    groups = small.groups
    widths = random_growth(groups, seed)
    atoms, weights = random_atoms(groups, widths, seed), random_weights(small.model(), seed)
    wide = small.resized(widths)
    return wide, weights, scatter(weights, groups, wide.groups, atoms), atoms


def same_function(small: Small, seed: int) -> None:
    """Check that a network and its scattered copy compute the same, and that gathering undoes."""
    wide, weights, moved, atoms = scattered(small, seed)
    inputs = small.inputs(4, seed)
    wide.model().check(moved)
    ours, theirs = (
        outputs(wide.model(), moved, inputs)[0],
        outputs(small.model(), weights, inputs)[0],
    )
    assert_close(ours, theirs, 1e-12)
    assert_same(gather(moved, small.groups, wide.groups, atoms), weights)


@growing
def test_a_permuted_and_padded_network_computes_the_same(small: Small) -> None:
    same_function(small, 1)


@pytest.mark.parametrize("small", BATCH.values(), ids=BATCH)
def test_in_training_it_computes_the_same_and_its_statistics_follow(small: Small) -> None:
    wide, weights, moved, atoms = scattered(small, 4)
    inputs = small.inputs(5, 4)
    ours, after = outputs(wide.model(), moved, inputs, training=True)
    theirs, wanted = outputs(small.model(), weights, inputs, training=True)
    assert_close(ours, theirs, 1e-12)
    back = gather(after, small.groups, wide.groups, atoms)
    changed = [name for name in back if not np.array_equal(back[name], weights[name])]
    assert changed == [n for n in weights if "running_" in n or n.endswith("num_batches_tracked")]
    for name in changed:
        np.testing.assert_allclose(back[name], wanted[name], rtol=1e-10, atol=1e-12)
    for name, array in after.items():
        own = held(name, wide.groups, atoms, array.shape)
        if name.endswith("running_mean"):
            assert not array[~np.broadcast_to(own, array.shape)].any()


@pytest.mark.parametrize("small", BATCH.values(), ids=BATCH)
def test_channels_without_a_unit_have_variance_one_and_nothing_else(small: Small) -> None:
    wide, _, moved, atoms = scattered(small, 5)
    padded = 0
    for name, array in moved.items():
        outside = array[~np.broadcast_to(held(name, wide.groups, atoms, array.shape), array.shape)]
        padded += outside.size
        assert (outside == (1 if name.endswith("running_var") else 0)).all()
    assert padded


@pytest.mark.parametrize("small", GROUP.values(), ids=GROUP)
def test_group_normalisation_brings_the_same_bits_back(small: Small) -> None:
    groups, weights = small.groups, random_weights(small.model(), 1)
    atoms = class_atoms(groups, 2)
    assert_same(gather(scatter(weights, groups, groups, atoms), groups, groups, atoms), weights)


@pytest.mark.parametrize("small", GROUP.values(), ids=GROUP)
def test_group_normalisation_permits_no_padding(small: Small) -> None:
    """Empty channels change the mean and the variance of their group."""
    groups, weights = small.groups, random_weights(small.model(), 1)
    widths = {name: 2 * width for name, width in groups.widths.items()}
    wide, atoms = small.resized(widths), {n: np.arange(w) for n, w in groups.widths.items()}
    moved = scatter(weights, groups, wide.groups, atoms)
    inputs = small.inputs(4, 1)
    ours, theirs = (
        outputs(wide.model(), moved, inputs)[0],
        outputs(small.model(), weights, inputs)[0],
    )
    assert float((ours - theirs).abs().max()) > 0.01 * float(theirs.abs().max())


@growing
def test_groups_can_be_moved_one_after_another(small: Small) -> None:
    """Midway some groups have the width of the global model, and the others a device's."""
    wide, weights, moved, atoms = scattered(small, 6)
    inputs = small.inputs(2, 6)
    theirs = outputs(small.model(), weights, inputs)[0]
    now, part = small.groups, weights
    for number, (group, own) in enumerate(atoms.items()):
        then = now.resized({group: wide.groups.widths[group]})
        part, now = scatter(part, now, then, {group: own}), then
        if number == len(atoms) // 2:
            midway = small.resized(now.widths).model()
            assert_close(outputs(midway, part, inputs)[0], theirs, 1e-12)
    assert_same(part, moved)
    back = part
    for group, own in reversed(atoms.items()):
        before = now.resized({group: small.groups.widths[group]})
        back = gather(back, before, now, {group: own})
        now = before
    assert_same(back, weights)


def test_some_of_the_weights_can_be_moved() -> None:
    small = PLAIN["cnn"]
    wide, weights, moved, atoms = scattered(small, 8)
    names = ("conv2.weight", "fc2.bias")
    some = {name: weights[name] for name in names}
    assert_same(scatter(some, small.groups, wide.groups, atoms), {n: moved[n] for n in names})
    assert_same(gather({n: moved[n] for n in names}, small.groups, wide.groups, atoms), some)


def test_moving_leaves_what_it_is_given() -> None:
    small = BATCH["resnet18"]
    wide, weights, moved, atoms = scattered(small, 9)
    before, wide_before = ({n: a.copy() for n, a in each.items()} for each in (weights, moved))
    for array in (*weights.values(), *moved.values()):
        array.flags.writeable = False
    back = gather(moved, small.groups, wide.groups, atoms)
    again = scatter(weights, small.groups, wide.groups, atoms)
    for array in (*back.values(), *again.values()):
        array[...] = 0
    assert_same(weights, before)
    assert_same(moved, wide_before)


def test_places_by_hand_behind_a_flatten() -> None:
    """Two channels of three pixels become three, of which the second is new."""
    axes = {("w", 1): (Segment("c", 3),), ("b", 0): (Segment("c"),)}
    local = PermutationGroups({"c": 2}, (), axes, {"b": 7.0}, {})
    wide, atoms = local.resized({"c": 3}), {"c": np.array([2, 0])}
    weights = {"w": np.arange(12.0).reshape(2, 6), "b": np.array([5.0, 6.0]), "free": np.ones(2)}
    moved = scatter(weights, local, wide, atoms)
    assert moved["w"].tolist() == [
        [3, 4, 5, 0, 0, 0, 0, 1, 2],
        [9, 10, 11, 0, 0, 0, 6, 7, 8],
    ]
    assert moved["b"].tolist() == [6, 7, 5]
    assert moved["free"].tolist() == [1, 1]
    assert held("w", wide, atoms, (2, 9)).tolist() == [[True] * 3 + [False] * 3 + [True] * 3]
    assert held("free", wide, atoms, (2,)).tolist() == [True]


def searched(
    name: str, groups: PermutationGroups, atoms: Mapping[str, Array], shape: tuple[int, ...]
) -> Array:
    """Return which entries belong to a device's units, by looking at each index of each axis."""
    owners: list[list[tuple[str, int]]] = []
    for axis, size in enumerate(shape):
        segments = groups.axes_of(name).get(axis)
        labels = [("", 0)] * size
        if segments:
            labels = [
                (part.group, int(unit))
                for part in segments
                for unit in part.units(groups.widths[part.group])
                for _ in range(part.block)
            ]
        owners.append(labels)
    mask = np.ones(shape, bool)
    for index in product(*(range(size) for size in shape)):
        for axis, place in enumerate(index):
            group, unit = owners[axis][place]
            if group in atoms and unit not in atoms[group]:
                mask[index] = False
    return mask


@pytest.mark.parametrize("name", ["cnn", "vgg9", "deep lstm", "resnet20"])
def test_held_agrees_with_a_search_of_all_entries(name: str) -> None:
    small = GROWING[name]
    wide, _, moved, atoms = scattered(small, 10)
    some = dict(list(atoms.items())[::2])
    for chosen in (atoms, some, {}):
        for key, array in moved.items():
            mask = held(key, wide.groups, chosen, array.shape)
            assert mask.dtype == bool
            assert mask.ndim == array.ndim
            expected = searched(key, wide.groups, chosen, array.shape)
            assert np.array_equal(np.broadcast_to(mask, array.shape), expected)


def test_unit_vectors_of_a_convolution_are_its_kernels_and_biases() -> None:
    groups = PLAIN["cnn"].groups
    weights = {
        "conv1.weight": np.arange(18.0).reshape(2, 1, 3, 3),
        "conv1.bias": np.array([50.0, 60.0]),
        "conv2.weight": 100 + np.arange(54.0).reshape(3, 2, 3, 3),
    }
    own = unit_vectors(weights, groups, groups.layers[0].compared, "conv1")
    assert own.tolist() == [[*range(9), 50], [*range(9, 18), 60]]
    outgoing = unit_vectors(weights, groups, ("conv2.weight",), "conv1")
    first = [*range(9), *range(18, 27), *range(36, 45)]
    assert outgoing.tolist() == [[100 + n for n in first], [109 + n for n in first]]


def test_unit_vectors_behind_a_flatten_have_the_pixels_of_a_channel() -> None:
    groups = Small("cnn", (1, 4, 8), {"channels": [1, 2], "hidden": 2}).groups
    weights: Tensors = {"fc1.weight": np.arange(8.0).reshape(2, 4)}
    found = unit_vectors(weights, groups, ("fc1.weight",), "conv2")
    assert found.tolist() == [[0, 4, 1, 5], [2, 6, 3, 7]]


def test_unit_vectors_of_an_lstm_are_the_rows_of_four_gates() -> None:
    groups = Small("lstm", (3,), {"embedding": 1, "widths": [2]}).groups
    weights = {
        "embedding.weight": np.array([[1.0], [2.0]]),
        "lstm.weight_ih_l0": np.arange(8.0).reshape(8, 1),
        "lstm.bias_ih_l0": 10 + np.arange(8.0),
        "lstm.weight_hh_l0": np.arange(16.0).reshape(8, 2),
    }
    layers = {layer.name: layer for layer in groups.layers}
    found = unit_vectors(weights, groups, layers["lstm_l0"].compared, "lstm_l0")
    assert found.tolist() == [[0, 2, 4, 6, 10, 12, 14, 16], [1, 3, 5, 7, 11, 13, 15, 17]]
    rows = unit_vectors(weights, groups, ("lstm.weight_hh_l0",), "lstm_l0")
    assert rows.tolist() == [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]]
    table = unit_vectors(weights, groups, layers["embedding"].compared, "embedding")
    assert table.tolist() == [[1, 2]]


@growing
def test_unit_vectors_move_with_their_units(small: Small) -> None:
    wide, weights, moved, atoms = scattered(small, 11)
    for layer in small.groups.layers:
        for group in layer.outputs:
            fixed = {name: own for name, own in atoms.items() if name in layer.inputs}
            halfway = small.groups.resized({name: wide.groups.widths[name] for name in fixed})
            inputs = scatter(weights, small.groups, halfway, fixed)
            expected = unit_vectors(inputs, halfway, layer.compared, group)
            theirs = unit_vectors(moved, wide.groups, layer.compared, group)
            assert np.array_equal(theirs[atoms[group]], expected)
            assert not np.delete(theirs, atoms[group], axis=0).any()


@growing
def test_unit_vectors_that_are_set_are_those_that_are_read(small: Small) -> None:
    groups, weights = small.groups, random_weights(small.model(), 12)
    other = random_weights(small.model(), 13)
    for layer in groups.layers:
        for group in layer.outputs:
            vectors = unit_vectors(other, groups, layer.compared, group)
            set_unit_vectors(weights, groups, layer.compared, group, vectors)
            assert np.array_equal(unit_vectors(weights, groups, layer.compared, group), vectors)
        for name in layer.compared:
            if layer.outputs:
                assert np.array_equal(weights[name], other[name])


SIZE = st.integers(1, 4)

NETWORKS = st.one_of(
    st.builds(
        lambda hidden: Small("mlp", (3,), {"hidden": hidden}),
        st.lists(SIZE, min_size=1, max_size=3),
    ),
    st.builds(
        lambda first, second, hidden, height, width: Small(
            "cnn", (1, height, width), {"channels": [first, second], "hidden": hidden}
        ),
        *(SIZE, SIZE, SIZE),
        *(st.integers(4, 12), st.integers(4, 12)),
    ),
    st.builds(
        lambda embedding, widths: Small("lstm", (4,), {"embedding": embedding, "widths": widths}),
        SIZE,
        st.lists(SIZE, min_size=1, max_size=3),
    ),
    st.builds(
        lambda channels, inner: Small(
            "resnet20", TALL, {"norm": "batch", "channels": sorted(channels), "inner": inner}
        ),
        st.lists(st.integers(1, 9), min_size=3, max_size=3),
        st.lists(st.integers(1, 3), min_size=9, max_size=9),
    ),
)


@settings(max_examples=20, deadline=None)
@given(small=NETWORKS, seed=st.integers(0, 2**31))
def test_any_small_network_computes_the_same_after_any_move(small: Small, seed: int) -> None:
    same_function(small, seed)
