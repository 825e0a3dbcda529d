"""Permutation groups: a network's description fits its weights, and its widths can change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.learn.base.permutation_groups import PermutationGroups, Segment
from edgefed.learn.base.unit_moves import scatter
from edgefed.learn.modeling import network_groups
from edgefed.learn.modeling.model_building import NETWORKS, complete_model
from edgefed.learn.modeling.network_groups import permutation_groups, resized
from tests.learn.permuted import (
    BATCH,
    CLASSES,
    GROUP,
    PLAIN,
    Small,
    assert_close,
    class_atoms,
    outputs,
    random_growth,
    random_weights,
)

ALL = {
    **PLAIN,
    **{f"{name} (batch)": each for name, each in BATCH.items()},
    **{f"{name} (group)": each for name, each in GROUP.items()},
}

INSIDE = {"resnet18": "layer2.0", "resnet20": "stage1block2"}
"""A group inside a block."""

cases = pytest.mark.parametrize("small", ALL.values(), ids=ALL)


def test_every_network_has_a_case() -> None:
    assert {small.name for small in ALL.values()} == set(NETWORKS)


@cases
def test_every_weight_belongs_to_one_layer_whose_inputs_are_made_before(small: Small) -> None:
    model, groups = small.model(), small.groups
    owned = Counter(name for layer in groups.layers for name in layer.weights)
    assert owned == Counter(model.names)
    made: set[str] = set()
    for layer in groups.layers:
        assert set(layer.compared) <= set(layer.weights)
        assert set(layer.inputs) <= made
        made |= set(layer.outputs)
    assert [layer.outputs for layer in groups.layers].count(()) == 1
    assert groups.layers[-1].outputs == ()
    assert made == groups.widths.keys()


@cases
def test_segments_fill_the_axes_that_they_describe(small: Small) -> None:
    groups, weights = small.groups, small.model().weights()
    for (name, axis), segments in groups.axes.items():
        size = weights[name].shape[axis]
        assert groups.size(segments) == size
        places = [each.ravel() for each in groups.entries(segments).values()]
        assert sorted(np.concatenate(places)) == list(range(size))
    assert groups.padding.keys() == {name for name in weights if name.endswith("running_var")}


@cases
def test_a_network_can_be_built_with_any_widths(small: Small) -> None:
    grow = "group" not in small.settings.values()
    groups = small.groups
    widths = random_growth(groups, 3) if grow else {n: 2 * w for n, w in groups.widths.items()}
    larger = small.resized(widths)
    assert larger.groups == groups.resized(widths)
    weights = larger.model().weights()
    for (name, axis), segments in groups.resized(widths).axes.items():
        assert weights[name].shape[axis] == groups.resized(widths).size(segments)
    assert weights.keys() == small.model().weights().keys()
    assert resized(larger.section, groups.widths) == resized(small.section, groups.widths)


def test_widths_that_are_left_out_stay() -> None:
    groups = PLAIN["cnn"].groups
    assert groups.resized({"conv2": 9}).widths == {"conv1": 2, "conv2": 9, "fc1": 4}
    assert groups.widths["conv2"] == 3


def test_a_network_of_other_widths_has_every_setting_written_out() -> None:
    small = Small("resnet20", (1, 8, 8), {"norm": "batch"})
    section = resized(small.section, small.groups.widths)
    assert section == complete_model(small.section)
    assert section.settings()["channels"] == [16, 32, 64]


def test_a_network_cannot_be_widened_beyond_its_bounds() -> None:
    widths = {**PLAIN["vgg9"].groups.widths, "conv1": 4097}
    with pytest.raises(RecipeError, match="channels") as caught:
        PLAIN["vgg9"].resized(widths)
    assert caught.value.code == "model.setting"


@pytest.mark.parametrize(
    ("name", "settings", "widths"),
    [
        ("cnn", {}, {"conv1": 16, "conv2": 32, "fc1": 64}),
        ("lenet5", {}, {"conv1": 6, "conv2": 16, "fc1": 120, "fc2": 84}),
        ("lenet5-wide", {}, {"conv1": 32, "conv2": 64, "fc1": 512}),
        ("mlp", {"hidden": [7, 5]}, {"fc1": 7, "fc2": 5}),
        (
            "vgg9",
            {},
            {
                **{f"conv{n}": w for n, w in enumerate((32, 64, 128, 128, 256, 256), 1)},
                "fc1": 512,
                "fc2": 512,
            },
        ),
        ("lstm", {}, {"embedding": 8, "lstm_l0": 256, "lstm_l1": 256}),
    ],
)
def test_default_widths_are_those_of_the_papers(
    name: str, settings: dict[str, Any], widths: dict[str, int]
) -> None:
    shape = (80,) if name == "lstm" else (1, 28, 28)
    groups = permutation_groups(ModelSection(name=name, **settings), shape, 10)
    assert groups.widths == widths
    assert [layer.name for layer in groups.layers[:-1]] == list(widths)


def test_stages_of_a_residual_network_are_tied_by_their_shortcuts() -> None:
    section = ModelSection(name="resnet18")
    groups = permutation_groups(section, (3, 32, 32), 10)
    makers = [layer.name for layer in groups.layers if layer.outputs == ("stage2",)]
    assert makers == ["layer2.0.conv2", "layer2.0.downsample.0", "layer2.1.conv2"]
    assert {groups.widths[f"stage{n}"] for n in (1, 2, 3, 4)} == {64, 128, 256, 512}
    assert groups.layers[0].compared == ("conv1.weight", "bn1.weight", "bn1.bias")


def test_a_stage_of_resnet20_adds_channels_around_those_before() -> None:
    groups = permutation_groups(ModelSection(name="resnet20"), (3, 32, 32), 10)
    stream = groups.axes["fc.weight", 1]
    sides = [(part.group, part.half) for part in stream]
    assert sides == [
        *(("stage3", "low"), ("stage2", "low"), ("stage1", "all")),
        *(("stage2", "high"), ("stage3", "high")),
    ]
    assert {name: groups.widths[name] for name in ("stage1", "stage2", "stage3")} == {
        "stage1": 16,
        "stage2": 16,
        "stage3": 32,
    }
    assert groups.entries(stream)["stage2"].ravel().tolist() == [*range(16, 24), *range(40, 48)]


def test_a_stage_of_resnet20_that_adds_no_channels_has_no_group() -> None:
    small = BATCH["resnet20 of one stage"]
    assert "stage2" not in small.groups.widths
    assert {"stage1": 3, "stage3": 1}.items() <= small.groups.widths.items()
    same = Small("resnet20", (1, 4, 4), {"channels": [4, 4, 4], "norm": "batch"})
    wider = same.resized({**same.groups.widths, "stage1": 7})
    assert wider.section.settings()["channels"] == [7, 7, 7]


def test_entries_of_units_come_in_the_order_of_units() -> None:
    axes = {("w", 0): (Segment("a", 2), Segment("b"), Segment("a", 1, "high"))}
    groups = PermutationGroups({"a": 2, "b": 3}, (), axes, {}, {})
    found = groups.entries((Segment("a", 2), Segment("b"), Segment("a", 2)))
    assert found["a"].tolist() == [[0, 1, 7, 8], [2, 3, 9, 10]]
    assert found["b"].tolist() == [[4], [5], [6]]
    halves = groups.entries((Segment("b", 2, "high"), Segment("a"), Segment("b", 2, "low")))
    assert halves["b"].tolist() == [[6, 7], [0, 1], [2, 3]]
    assert groups.size((Segment("b", 2, "high"), Segment("a"), Segment("b", 2, "low"))) == 8
    assert groups.axes_of("w") == {0: axes["w", 0]}
    assert groups.axes_of("v") == {}


def test_an_lstm_has_four_gates_of_each_unit() -> None:
    groups = PLAIN["deep lstm"].groups
    gates = groups.entries(groups.axes["lstm.weight_hh_l1", 0])["lstm_l1"]
    assert gates.tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups.entries(groups.axes["lstm.weight_hh_l1", 1])["lstm_l1"].tolist() == [[0], [1]]
    assert groups.layers[1].compared == ("lstm.weight_ih_l0", "lstm.bias_ih_l0")


def test_classes_of_units_are_those_of_the_normalisations() -> None:
    """Stages of 8, 16 and 24 channels in 4 groups: of 2, 4 and 6 channels."""
    groups = GROUP["resnet20"].groups
    assert groups.norm_groups["norm1.weight"] == 4
    expected = {
        "stage1": [0, 0, 1, 1, 2, 2, 3, 3],
        # In stage 2 at 0 to 3 and 12 to 15, in stage 3 at 4 to 7 and 16 to 19.
        "stage2": [0, 0, 1, 1, 2, 2, 3, 3],
        "stage3": [0, 0, 0, 0, 1, 1, 1, 1],
        "stage1block2": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
    }
    for group, classes in expected.items():
        found = groups.unit_classes(group)
        assert found is not None
        assert found.tolist() == classes


def test_a_class_is_what_all_normalisations_have_in_one_group() -> None:
    """Six units: in three pairs on one axis; on the other, two, three and one of them."""
    axes = {
        ("one", 0): (Segment("a"),),
        ("two", 0): (Segment("b", half="low"), Segment("a"), Segment("b", half="high")),
    }
    groups = PermutationGroups({"a": 6, "b": 3}, (), axes, {}, {"one": 3, "two": 3})
    classes = groups.unit_classes("a")
    assert classes is not None
    assert classes.tolist() == [0, 0, 1, 1, 2, 3]
    assert groups.unit_classes("c") is None
    assert replace(groups, norm_groups={}).unit_classes("a") is None


@pytest.mark.parametrize("small", GROUP.values(), ids=GROUP)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_classes_agree_with_a_search_of_the_channels(small: Small, count: int) -> None:
    settings = {**small.settings, "groups": count}
    channels = {"resnet18": [4, 8, 4, 12], "resnet20": [8, 16, 24]}[small.name]
    inner = [4, 8] * 4 if small.name == "resnet18" else [8, 12, 8] * 3
    groups = replace(small, settings={**settings, "channels": channels, "inner": inner}).groups
    for group, width in groups.widths.items():
        marks: list[list[int]] = [[] for _ in range(width)]
        for name, number in groups.norm_groups.items():
            labels = [
                (part.group, unit)
                for part in groups.axes[name, 0]
                for unit in part.units(groups.widths[part.group])
            ]
            for place, (owner, unit) in enumerate(labels):
                if owner == group:
                    marks[unit].append(place // (len(labels) // number))
        found = groups.unit_classes(group)
        assert found is not None
        for one in range(width):
            for other in range(width):
                assert (found[one] == found[other]) == (marks[one] == marks[other])


@pytest.mark.parametrize("small", GROUP.values(), ids=GROUP)
def test_group_normalisation_permits_permutations_within_classes_only(small: Small) -> None:
    model, groups, inputs = small.model(), small.groups, small.inputs(3, 1)
    weights = random_weights(model, 2)
    before = outputs(model, weights, inputs)[0]
    atoms = class_atoms(groups, 4)
    assert any((order != np.arange(len(order))).any() for order in atoms.values())
    after = scatter(weights, groups, groups, atoms)
    assert_close(outputs(model, after, inputs)[0], before, 1e-12)
    for group in ("stage1", INSIDE[small.name]):
        classes = groups.unit_classes(group)
        assert classes is not None
        order = np.arange(len(classes))
        other = int(np.argmax(classes != classes[0]))
        assert other > 0
        order[[0, other]] = other, 0
        wrong = outputs(model, scatter(weights, groups, groups, {group: order}), inputs)[0]
        assert float((wrong - before).abs().max()) > 1e-3 * float(before.abs().max())


def test_networks_without_group_normalisation_have_no_classes() -> None:
    for small in (*PLAIN.values(), *BATCH.values()):
        groups = small.groups
        assert all(groups.unit_classes(name) is None for name in groups.widths)


@pytest.mark.parametrize("name", ["shop.models:shelf", "unheard-of"])
def test_the_units_of_a_users_model_cannot_be_matched(name: str) -> None:
    section = ModelSection(name=name)
    for use in (lambda: permutation_groups(section, (4,), 2), lambda: resized(section, {})):
        with pytest.raises(RecipeError, match=name) as caught:
            use()
        assert caught.value.code == "model.groups"
        assert caught.value.hint is not None
        assert all(known in caught.value.hint for known in NETWORKS)


def test_a_network_without_a_description_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(NETWORKS["cnn"], name="bare", groups=None, resized=None)
    monkeypatch.setattr(network_groups, "NETWORKS", {**NETWORKS, "bare": bare})
    with pytest.raises(RecipeError, match="bare") as caught:
        permutation_groups(ModelSection(name="bare"), (1, 8, 8), 2)
    assert caught.value.code == "model.groups"
    assert "bare" not in str(caught.value.hint)


def test_a_model_knows_its_section() -> None:
    small = PLAIN["cnn"]
    model = small.model()
    assert model.section == small.section
    assert permutation_groups(model.section, model.shape, model.classes) == small.groups


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Small("cnn", (1, 8, 8), {"width": 3}), {"channels": [3, 6]}),
        (Small("lenet5", (1, 16, 16), {}), {"channels": [6, 16], "hidden": [120, 84]}),
        (Small("lstm", (4,), {"hidden": 5, "layers": 2}), {"widths": [5, 5]}),
        (Small("resnet20", (1, 4, 4), {}), {"channels": [16, 32, 64]}),
    ],
)
def test_written_out_default_widths_give_the_same_weights(
    one: Small, other: dict[str, Any]
) -> None:
    ours, theirs = one.model().weights(), replace(one, settings=other).model().weights()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name])


def test_resnet18_of_other_widths_is_initialised_like_the_default() -> None:
    """Its convolutions for ReLU, its normalisations as the identity; nothing is left unset."""
    settings = {"channels": [64, 64, 64, 64], "inner": [64] * 8}
    weights = Small("resnet18", (3, 8, 8), settings).model().weights()
    for name, array in weights.items():
        assert np.isfinite(array).all()
        if array.ndim == 4:
            spread = (2 / (array.shape[0] * array.shape[2] ** 2)) ** 0.5
            assert array.std() == pytest.approx(spread, rel=0.1), name
        elif name.rpartition(".")[2] == "running_var" or (
            array.ndim == 1 and name.endswith("weight")
        ):
            assert (array == 1).all(), name
    with torch.device("meta"):
        assert Small("resnet18", (3, 8, 8), settings).model().names == tuple(weights)
    assert weights["fc.bias"].size == CLASSES
