"""SCAFFOLD and FedDyn: rounds by hand, and in float64 with answers that come late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.testing.play import Players, asked

INPUTS = np.array([[1.0, 0.5], [-0.5, 1.0], [0.25, -1.0]])
TARGETS = np.array([1.0, -2.0, 3.0])
COUNTS = (1, 3, 2)
RATE, EPOCHS, ROUNDS = 0.1, 2, 4
ASKED: tuple[tuple[int, ...], ...] = ((0, 1, 2), (0, 2), (1, 2), (0, 1, 2))
"""The devices whose answers are merged, by round."""


def plan(algorithm: dict[str, Any], **training: Any) -> Recipe:
    """Return linear regression with one step for each sample of a device and epoch."""
    return Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": []},
            "algorithm": algorithm,
            "training": {
                "loss": "squared_error",
                "epochs": EPOCHS,
                "batch_size": 1,
                "learning_rate": RATE,
                **training,
            },
            "rounds": {"count": ROUNDS},
        }
    )


def players_of(recipe: Recipe, inputs: Array, targets: Array, counts: Sequence[int]) -> Players:
    """Return devices with copies of one sample each, so that their order changes nothing."""
    trainer = Trainer(build(recipe.model, inputs.shape[1:], 1, 1), "cpu")
    parts = [
        Samples(
            np.repeat(inputs[k : k + 1], count, axis=0).astype(np.float32),
            np.full((count, 1), targets[k], np.float32),
        )
        for k, count in enumerate(counts)
    ]
    return Players(parts, trainer)


def exchanged(
    half: Any, players: Players, state: State, merged: Sequence[int] = (0, 1, 2)
) -> tuple[State, list[Answer]]:
    """Return the state after a round, and its answers; those of other devices come too late."""
    planned = half.plan(state, players.roster, 1)
    assert isinstance(planned, Exchange)
    answers = players.answers(half, planned)
    in_time = [each for k, each in enumerate(answers) if k in merged]
    return half.merge(state, asked(planned), in_time), answers


# -- float64 ------------------------------------------------------------------------------------


def local(
    start: Array, device: int, shift: Array, *, alpha: float = 0.0, momentum: float = 0.0
) -> Array:
    """Return (w, b) after local steps with a shifted gradient; the loss is (w x + b - t)²."""
    inputs = np.append(INPUTS[device], 1.0)
    weights, velocity = start.copy(), np.zeros(3)
    for _ in range(EPOCHS * COUNTS[device]):
        gradient = 2 * (weights @ inputs - TARGETS[device]) * inputs + shift
        velocity = momentum * velocity + gradient + alpha * (weights - start)
        weights = weights - RATE * velocity
    return weights


def scaffold(start: Array, momentum: float) -> Array:
    """Return the weights after the rounds, by algorithm 1 of the paper."""
    x, c, own = start, np.zeros(3), np.zeros((3, 3))
    for devices in ASKED:
        deltas, changes = [], []
        for k in devices:
            steps = EPOCHS * COUNTS[k]
            weights = [(1 - momentum ** (j + 1)) / (1 - momentum) for j in range(steps)]
            delta = local(x, k, c - own[k], momentum=momentum) - x
            after = own[k] - c - delta / (RATE * sum(weights))
            deltas.append(delta)
            changes.append(after - own[k])
            own[k] = after
        x = x + np.mean(deltas, axis=0)
        c = c + len(devices) / 3 * np.mean(changes, axis=0)
    assert c == pytest.approx(own.mean(axis=0))
    return x


def feddyn(start: Array, alpha: float) -> Array:
    """Return the weights after the rounds, by algorithm 1 of the paper, with its own g and h."""
    theta, h, g = start, np.zeros(3), np.zeros((3, 3))
    for devices in ASKED:
        reached = []
        for k in devices:
            theta_k = local(theta, k, -g[k], alpha=alpha)
            g[k] = g[k] - alpha * (theta_k - theta)
            reached.append(theta_k)
        h = h - alpha / 3 * np.sum([theta_k - theta for theta_k in reached], axis=0)
        theta = np.mean(reached, axis=0) - h / alpha
    return theta


@pytest.mark.parametrize(
    ("settings", "momentum", "expected"),
    [
        ({"name": "scaffold"}, 0.0, lambda start: scaffold(start, 0.0)),
        ({"name": "scaffold"}, 0.9, lambda start: scaffold(start, 0.9)),
        ({"name": "feddyn", "alpha": 0.25}, 0.0, lambda start: feddyn(start, 0.25)),
    ],
    ids=("scaffold", "scaffold-momentum", "feddyn"),
)
def test_rounds_are_those_of_the_paper_in_float64(
    settings: dict[str, Any], momentum: float, expected: Any
) -> None:
    """Some answers of rounds 2 and 3 come too late, and leave their devices' state as it was."""
    recipe = plan(settings, momentum=momentum)
    half, players = make(recipe), players_of(recipe, INPUTS, TARGETS, COUNTS)
    state = players.start(half)
    first = state.groups["weights"]
    start = np.append(first["out.weight"].ravel(), first["out.bias"]).astype(np.float64)
    for merged in ASKED:
        state, _ = exchanged(half, players, state, merged)
    after = half.weights(state)
    reached = np.append(after["out.weight"].ravel(), after["out.bias"])
    assert reached == pytest.approx(expected(start), rel=2e-5, abs=2e-6)


# -- by hand ------------------------------------------------------------------------------------


def bias(state: State, group: str) -> float:
    return float(state.groups[group]["out.bias"][0])


def from_zero(players: Players, half: Any) -> State:
    """Return the start of a run whose bias is 0."""
    half.check_model(players.trainer.model)
    weights = players.trainer.model.weights()
    weights["out.bias"] = np.zeros(1, np.float32)
    started: State = half.start(weights, players.roster, 1)
    return started


def two_devices(recipe: Recipe) -> Players:
    """Return devices that fit b to 1 and to 3 in w x + b: with x = 0 the weight w stays."""
    return players_of(recipe, np.zeros((2, 1)), np.array([1.0, 3.0]), (1, 1))


def test_two_rounds_of_scaffold_by_hand() -> None:
    """The loss (b - t)² has the gradient 2 (b - t); η = 1/4, K = 2, and no number is rounded.

    Round 1 without corrections: b goes 0, 1/2, 3/4 on device 0 (t = 1) and 0, 3/2, 9/4 on device 1
    (t = 3), so x = 3/2, c_0 = -3/2, c_1 = -9/2 and c = -3. Round 2 adds c - c_0 = -3/2 to the first
    device's gradients and 3/2 to the other's: b goes 3/2, 13/8, 27/16 and 3/2, 15/8, 33/16.
    """
    recipe = plan({"name": "scaffold"}, learning_rate=0.25)
    half, players = make(recipe), two_devices(recipe)
    first, answers = exchanged(half, players, from_zero(players, half))
    assert [each.groups["delta"].arrays["out.bias"][0] for each in answers] == [0.75, 2.25]
    assert [each.groups["control"].arrays["out.bias"][0] for each in answers] == [-1.5, -4.5]
    assert (bias(first, "weights"), bias(first, "control")) == (1.5, -3.0)
    second, answers = exchanged(half, players, first)
    assert [each.groups["delta"].arrays["out.bias"][0] for each in answers] == [0.1875, 0.5625]
    assert [each.groups["control"].arrays["out.bias"][0] for each in answers] == [2.625, 1.875]
    assert (bias(second, "weights"), bias(second, "control")) == (1.875, -0.75)


def test_a_part_of_the_devices_moves_c_by_its_share_and_x_by_the_server_rate() -> None:
    settings = {"name": "scaffold", "clients": 8, "server_learning_rate": 0.5}
    recipe = plan(settings, learning_rate=0.25)
    half, players = make(recipe), two_devices(recipe)
    first, _ = exchanged(half, players, from_zero(players, half))
    assert bias(first, "weights") == 0.75
    assert bias(first, "control") == -3.0 * 2 / 8


def test_an_optimiser_whose_steps_have_no_known_length_is_refused() -> None:
    recipe = plan({"name": "scaffold"}, optimizer="adam", momentum=0.0)
    with pytest.raises(RecipeError, match="scaffold needs local SGD"):
        make(recipe).check_model(two_devices(recipe).trainer.model)
