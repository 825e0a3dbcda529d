"""FedMA at the coordinator: what answers weigh, and what the settings change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.matched.fedma_records import LAYER, STATISTICS, MatchedNetwork, atoms_of
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from tests.algorithms.matching_play import Fleet, half, images
from tests.algorithms.play import asked

CNN = ModelSection.model_validate({"name": "cnn", "width": 4, "hidden": 6})
GROWING: dict[str, Any] = {"sigma": 1e-4, "sigma0": 1.0, "gamma": 50.0}
AT_ONCE: dict[str, Any] = {"retrain_epochs": 0, "layer_codec": "fp32"}


def fleet(*samples: int, **more: Any) -> Fleet:
    return Fleet.of(CNN, [images(count, seed) for seed, count in enumerate(samples)], **more)


def network(seed: int) -> Tensors:
    return build(CNN, (1, 8, 8), 3, seed).weights()


def noisy(weights: Tensors, seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    return {
        name: each + rng.normal(0, 1e-3, each.shape).astype(np.float32)
        for name, each in weights.items()
    }


def assert_same(one: State, other: State) -> None:
    for group, arrays in one.groups.items():
        assert arrays.keys() == other.groups[group].keys()
        for name, array in arrays.items():
            assert np.array_equal(array, other.groups[group][name]), (group, name)
    assert one.params == other.params


# -- answers --------------------------------------------------------------------------------------


def test_nobody_weighs_more_than_it_announced() -> None:
    given = {f"device-{seed:02d}": network(seed) for seed in range(4)}
    algorithm = half(**AT_ONCE, weighting="examples", last_layer="samples")
    devices = fleet(12, 4, 7, 5, given=given)
    before = devices.start(algorithm)
    [(_, exchange, answers)] = devices.exchanges(algorithm, before)
    honest = algorithm.merge(before, asked(exchange), answers)
    more = [replace(answers[0], samples=10**9), *answers[1:]]
    assert_same(honest, algorithm.merge(before, asked(exchange), more))
    less = [replace(answers[0], samples=1), *answers[1:]]
    other = algorithm.weights(algorithm.merge(before, asked(exchange), less))
    assert not np.array_equal(other["fc2.bias"], algorithm.weights(honest)["fc2.bias"])


@pytest.mark.parametrize("settings", [{}, {"average": "map", "sigma": 1.0, "sigma0": 1e12}])
def test_units_may_weigh_by_samples(settings: dict[str, Any]) -> None:
    given = {"device-00": network(1), "device-01": noisy(network(1), 2)}
    algorithm = half(weighting="examples", **AT_ONCE, **settings)
    devices = fleet(12, 4, given=given)
    merged = algorithm.weights(devices.exchanges(algorithm)[-1][0])
    one, other = given.values()
    for name in ("conv1.weight", "fc1.bias"):
        np.testing.assert_allclose(merged[name], 0.75 * one[name] + 0.25 * other[name], atol=1e-7)


def test_a_class_that_few_devices_have_is_averaged_by_samples() -> None:
    labels = [[0, 1, 2, 2], [0, 1], [0, 1]]
    parts = [
        replace(images(len(each), seed), targets=np.array(each)) for seed, each in enumerate(labels)
    ]
    algorithm = half(**AT_ONCE)
    [(state, _, answers)] = Fleet.of(CNN, parts).exchanges(algorithm)
    sent = [answer.groups[LAYER].arrays["fc2.bias"] for answer in answers]
    wanted = 0.5 * sent[0][2] + 0.25 * sent[1][2] + 0.25 * sent[2][2]
    assert algorithm.weights(state)["fc2.bias"][2] == pytest.approx(wanted, rel=1e-6)


# -- devices that go ------------------------------------------------------------------------------


def test_only_those_count_who_stay_to_the_end_of_the_round() -> None:
    algorithm = half(**GROWING)
    devices = fleet(9, 9, 9, present=lambda number, device: (number, device) != (2, "device-01"))
    state = devices.exchanges(algorithm)[-1][0]
    widths = MatchedNetwork.of(state).local.widths
    assert {name: int(each.sum()) for name, each in state.groups["counts"].items()} == {
        name: 2 * width for name, width in widths.items()
    }
    assert not atoms_of(state, "atoms", "device-01")


def test_a_device_that_lost_its_network_says_so() -> None:
    algorithm, devices = half(), fleet(9, 9)
    state = devices.exchanges(algorithm, most=1)[-1][0]
    second = devices.planned(algorithm, state)
    devices.private["device-00"] = {}
    with pytest.raises(DataError, match="has not done step 1") as raised:
        devices.answer(algorithm, second, second.questions[0])
    assert raised.value.code == "algorithm.private_state"


def test_the_table_keeps_the_last_rounds_widths_until_new_ones_are_found() -> None:
    algorithm, devices = half(rounds=2, **GROWING), fleet(9, 9)
    complete = devices.exchanges(algorithm, most=4)[-1][0]
    under_way = devices.exchanges(algorithm, complete, most=1)[-1][0]
    (before,), (after,) = algorithm.view(complete), algorithm.view(under_way)
    assert [row.key for row in after.rows] == ["conv1", "conv2", "fc1"]
    assert after.rows[1:] == before.rows[1:]
    assert all(row.cells[1] for row in after.rows)
    assert [row.cells[-1] for row in after.rows] == [2, 1, 1], "rounds in which they were matched"
    assert (after.round, after.series["devices"]) == (2, 2)
    assert set(after.series) == {"conv1", "devices", "growth"}
    assert algorithm.round_metrics(complete)["growth"] >= 1


# -- settings -------------------------------------------------------------------------------------


def test_merged_layers_are_rounded_as_they_are_sent() -> None:
    algorithm, devices = half(), fleet(9, 9)
    weights = algorithm.weights(devices.exchanges(algorithm)[-1][0])
    for each in weights.values():
        assert not (each.view(np.uint32) & 0xFFFF).any()


def test_the_layers_above_may_be_trained_with_a_smaller_step() -> None:
    devices = fleet(9)
    devices.exchanges(half(retrain_learning_rate=0.5, last_learning_rate=0.1))
    rates = [job.schedule.learning_rate for _, job in devices.jobs]
    assert rates == pytest.approx([0.1, 0.05, 0.05, 0.01])


def test_the_reference_puts_the_prior_mean_of_biases_where_the_published_code_does() -> None:
    given = {"device-00": network(1)}
    algorithm, devices = half(reference=True, **AT_ONCE), fleet(9, given=given)
    merged, own = algorithm.weights(devices.exchanges(algorithm)[-1][0]), given["device-00"]
    first = own["conv1.bias"]
    np.testing.assert_allclose(np.sort(merged["conv1.bias"]), np.sort(first + 0.1) / 2, atol=1e-6)
    np.testing.assert_allclose(np.sort(merged["fc1.bias"]), np.sort(own["fc1.bias"]) / 2, atol=1e-6)
    order = merged["fc1.bias"].argsort()[own["fc1.bias"].argsort().argsort()]
    moved = 2 * merged["fc1.weight"][order].sum(axis=1) - own["fc1.weight"].sum(axis=1)
    np.testing.assert_allclose(moved, 0.1, atol=1e-5)


LSTM = ModelSection.model_validate({"name": "lstm", "embedding": 2, "hidden": 3})


def played(given: dict[str, Tensors], **settings: Any) -> tuple[Any, State]:
    tokens = Samples(np.zeros((4, 5), np.int64), np.array([0, 1, 2, 0]))
    devices = Fleet.of(LSTM, [tokens] * len(given), given=given)
    algorithm = half(**AT_ONCE, **settings)
    return algorithm, devices.exchanges(algorithm)[-1][0]


def test_recurrent_weights_may_be_padded() -> None:
    given = {f"device-{seed:02d}": build(LSTM, (5,), 3, seed).weights() for seed in range(2)}
    mean = sum(float(each["lstm.weight_hh_l0"].sum()) for each in given.values()) / 2
    for settings, is_mean in (({"recurrent": "padded"}, True), ({}, False)):
        algorithm, state = played(given, **{**GROWING, **settings})
        found = float(algorithm.weights(state)["lstm.weight_hh_l0"].sum())
        assert (found == pytest.approx(mean, abs=1e-5)) == is_mean


def test_recurrent_weights_may_count_in_the_matching() -> None:
    """Units that differ in nothing else are told apart by them."""
    own = build(LSTM, (5,), 3, 1).weights()
    for name in ("lstm.weight_ih_l0", "lstm.bias_ih_l0"):
        own[name] = np.zeros_like(own[name])
    swapped, order = dict(own), np.array([1, 0, 2])
    rows = np.array([[1.0] * 3, [5.0] * 3, [9.0] * 3], np.float32)
    blocks = np.tile(rows, (4, 1, 1))
    own["lstm.weight_hh_l0"] = blocks.reshape(12, 3)
    swapped["lstm.weight_hh_l0"] = blocks[:, order][:, :, order].reshape(12, 3)
    variances = {"sigma": 0.01, "sigma0": 1.0, "most_growth": 1.0}
    found = []
    for quadratic in (False, True):
        given = {"device-00": own, "device-01": swapped}
        _, state = played(given, quadratic=quadratic, **variances)
        one, other = (atoms_of(state, "atoms", each)["lstm_l0"] for each in given)
        found.append(one[order].tolist() == other.tolist())
    assert found == [False, True]


# -- normalisation --------------------------------------------------------------------------------


def residual(norm: str, **more: Any) -> ModelSection:
    return ModelSection.model_validate(
        {"name": "resnet20", "norm": norm, "channels": [2, 2, 4], "inner": [2] * 9, **more}
    )


def test_statistics_are_pooled_by_samples() -> None:
    devices = Fleet.of(residual("batch"), [images(9, 1), images(3, 2)])
    algorithm = half(**AT_ONCE)
    history = devices.exchanges(algorithm)
    assert [exchange.name for _, exchange, _ in history] == ["fit", STATISTICS]
    state, _, answers = history[-1]
    name = next(each for each in algorithm.weights(state) if each.endswith("running_mean"))
    one, other = (answer.groups[STATISTICS].arrays[name] for answer in answers)
    np.testing.assert_allclose(algorithm.weights(state)[name], 0.75 * one + 0.25 * other, atol=1e-6)
    assert state.round == 1


def test_channels_stay_in_their_group_of_a_group_normalisation() -> None:
    section = residual("group", groups=2)
    given = {
        f"device-{seed:02d}": build(section, (1, 8, 8), 3, seed).weights() for seed in range(2)
    }
    algorithm = half(**AT_ONCE, **GROWING)
    devices = Fleet.of(section, [images(4, 1), images(4, 2)], given=given)
    state = devices.exchanges(algorithm)[-1][0]
    local = MatchedNetwork.of(state).local
    for device in given:
        for group, atoms in atoms_of(state, "atoms", device).items():
            classes = local.unit_classes(group)
            assert classes is not None
            assert np.array_equal(classes[atoms], classes)
