"""PFNM's matching of perceptrons: hand-computed atoms, permuted copies, planted units."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.base.unit_moves import gather
from edgefed.learn.matching.mlp import MatchedPerceptron, NetworkPrior, match_perceptrons
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.networks.mlp import MlpSettings, mlp_groups
from edgefed.seeds import generator
from tests.learn.permuted import permuted_perceptron


def groups_of(*hidden: int) -> PermutationGroups:
    return mlp_groups(MlpSettings(hidden=hidden), (), 0)


def random_network(seed: int, *sizes: int) -> Tensors:
    rng = np.random.default_rng(seed)
    weights: Tensors = {}
    for number, (before, after) in enumerate(pairwise(sizes), start=1):
        name = f"fc{number}" if number < len(sizes) - 1 else "out"
        weights[f"{name}.weight"] = rng.standard_normal((after, before))
        weights[f"{name}.bias"] = rng.standard_normal(after)
    return weights


def outputs(network: Tensors, inputs: Array) -> Array:
    *hidden, last = sorted({name.partition(".")[0] for name in network})
    values = inputs
    for name in hidden:
        values = np.maximum(values @ network[f"{name}.weight"].T + network[f"{name}.bias"], 0.0)
    result: Array = values @ network[f"{last}.weight"].T + network[f"{last}.bias"]
    return result


def match(
    networks: list[Tensors],
    *hidden: int,
    shares: Array | None = None,
    bias: float = 0.1,
    **settings: Any,
) -> MatchedPerceptron:
    classes = len(networks[0]["out.bias"])
    known = np.full((len(networks), classes), 1 / len(networks)) if shares is None else shares
    made = MatchSettings(**settings)
    shrinks = made.average == "map"
    prior = NetworkPrior(lambda local: made, bias, shrinks, lambda name: generator(3, name))
    return match_perceptrons(networks, groups_of(*hidden), known, prior)


def test_a_unit_of_two_devices_by_hand() -> None:
    """The output layer weighs by class, everything else equally; see the paper's equation 8."""
    one: Tensors = {
        "fc1.weight": np.array([[2.0, 4.0]]),
        "fc1.bias": np.array([1.0]),
        "out.weight": np.array([[3.0], [6.0]]),
        "out.bias": np.array([0.5, -0.5]),
    }
    two: Tensors = {
        "fc1.weight": np.array([[2.5, 3.0]]),
        "fc1.bias": np.array([0.0]),
        "out.weight": np.array([[5.0], [2.0]]),
        "out.bias": np.array([1.5, 0.5]),
    }
    shares = np.array([[0.75, 0.0], [0.25, 1.0]])
    known: dict[str, Any] = {"sigma": 0.5, "sigma0": 2.0, "gamma": 1e-6, "shares": shares}
    mean = match([one, two], 1, average="matched", **known).weights
    assert {name: array.tolist() for name, array in mean.items()} == {
        "fc1.weight": [[2.25, 3.5]],
        "fc1.bias": [0.5],
        "out.weight": [[0.75 * 3 + 0.25 * 5], [2.0]],
        "out.bias": [0.75 * 0.5 + 0.25 * 1.5, 0.5],
    }
    posterior = match([one, two], 1, average="map", **known).weights
    own, prior = 1 / 0.5, 1 / 2.0
    np.testing.assert_allclose(posterior["fc1.weight"][0, 0], own * 4.5 / (2 * own + prior))
    np.testing.assert_allclose(posterior["fc1.bias"], (own + 0.1 * prior) / (2 * own + prior))
    np.testing.assert_allclose(
        posterior["out.weight"][:, 0],
        [own * (0.75 * 3 + 0.25 * 5) / (own + prior), own * 2 / (own + prior)],
    )
    np.testing.assert_allclose(
        posterior["out.bias"], [(own * mean + 0.1 * prior) / (own + prior) for mean in (0.75, 0.5)]
    )


@pytest.mark.parametrize("average", ["matched", "map"])
def test_permuted_copies_become_the_network_that_they_are_copies_of(average: str) -> None:
    network, rng = random_network(1, 6, 9, 7, 3), np.random.default_rng(2)
    orders = [(rng.permutation(9), rng.permutation(7)) for _ in range(4)]
    found = match([permuted_perceptron(network, *each) for each in orders], 9, 7, average=average)
    for layer, width in (("fc1", 9), ("fc2", 7)):
        assert found.layers[layer].counts.tolist() == [4] * width
    assert list(found.layers) == ["fc1", "fc2"]
    assert list(found.weights) == list(network)
    if average == "matched":
        inputs = rng.standard_normal((20, 6))
        np.testing.assert_allclose(outputs(found.weights, inputs), outputs(network, inputs))


def test_units_that_a_device_lacks_have_no_weight_from_its_units() -> None:
    """Outgoing weights lead to the atoms above; each device gathers its own network again."""
    networks = [random_network(seed, 4, 5, 3, 2) for seed in (1, 2)]
    for number, network in enumerate(networks):  # far apart, so that no unit is matched
        network["fc1.bias"] += 50.0 * (1 - 2 * number)
        network["fc2.bias"] += 50.0 * (1 - 2 * number)
    found = match(networks, 5, 3, gamma=50.0)
    assert found.weights["fc1.weight"].shape == (10, 4)
    assert found.weights["fc2.weight"].shape == (6, 10)
    matched = groups_of(10, 6)
    for place, network in enumerate(networks):
        atoms = {name: layer.assignments[place] for name, layer in found.layers.items()}
        own = gather(found.weights, groups_of(5, 3), matched, atoms)
        for name in ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "out.weight"):
            np.testing.assert_allclose(own[name], network[name])
        others = np.setdiff1d(np.arange(6), atoms["fc2"])
        assert not found.weights["fc2.weight"][np.ix_(others, atoms["fc1"])].any()


NOISE = dict.fromkeys(("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "out.bias"), 0.02)
NOISE["out.weight"] = 0.02 * 5**0.5
"""Five devices know a fifth of the output layer each, and so it is less precise by that much."""


def test_noisy_copies_are_matched_and_scale_does_not_matter() -> None:
    drawn, rng = random_network(5, 12, 10, 8, 6), np.random.default_rng(6)
    network = {name: np.sign(array) for name, array in drawn.items()}
    copies, orders = [], []
    for _ in range(5):
        order = rng.permutation(10), rng.permutation(8)
        copy = permuted_perceptron(network, *order)
        copies.append({n: w + NOISE[n] * rng.standard_normal(w.shape) for n, w in copy.items()})
        orders.append(order)
    found = match(copies, 10, 8, bias=0.0)
    for layer, place in (("fc1", 0), ("fc2", 1)):
        first = found.layers[layer].assignments[0][np.argsort(orders[0][place])]
        for order, assignment in zip(orders, found.layers[layer].assignments, strict=True):
            assert assignment[np.argsort(order[place])].tolist() == first.tolist()
    small = match([{n: w / 16 for n, w in copy.items()} for copy in copies], 10, 8, bias=0.0)
    for layer in ("fc1", "fc2"):
        for one, other in zip(
            found.layers[layer].assignments, small.layers[layer].assignments, strict=True
        ):
            assert one.tolist() == other.tolist()
