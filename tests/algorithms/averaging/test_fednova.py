"""FedNova: its rounds in float64, its lengths in the paper's closed forms, and what it refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.algorithms.averaging.local_steps import steps_length
from edgefed.algorithms.composed.registry import find, make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.files.samples import Samples
from edgefed.learn.base.rate_schedule import RateSchedule
from edgefed.learn.base.types import Array, Schedule, Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.testing.algorithms import check_algorithm
from edgefed.testing.play import Players, asked

COUNTS = (1, 3, 7)
INPUTS = np.array([[1.0, 0.5], [-0.5, 1.0], [0.25, -1.0]])
TARGETS = np.array([1.0, -2.0, 3.0])
RATE, EPOCHS, ROUNDS = 0.1, 2, 4

LOCAL: tuple[dict[str, Any], ...] = (
    {},
    {"momentum": 0.9},
    {"mu": 0.5},
    {"server": "momentum", "server_learning_rate": 0.5, "beta1": 0.5},
    {"weighting": "uniform"},
)


def plan(momentum: float = 0.0, **settings: Any) -> Recipe:
    """Return linear regression whose devices take one step for each of their samples and epochs."""
    return Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": []},
            "algorithm": {"name": "fednova", **settings},
            "training": {
                "loss": "squared_error",
                "epochs": EPOCHS,
                "batch_size": 1,
                "learning_rate": RATE,
                "momentum": momentum,
            },
            "rounds": {"count": ROUNDS},
        }
    )


def devices(recipe: Recipe) -> Players:
    """Return devices with copies of one sample each, so that their order changes nothing."""
    trainer = Trainer(build(recipe.model, (2,), 1, 1), "cpu")
    parts = [
        Samples(
            np.repeat(INPUTS[k : k + 1], count, axis=0).astype(np.float32),
            np.full((count, 1), TARGETS[k], np.float32),
        )
        for k, count in enumerate(COUNTS)
    ]
    return Players(parts, trainer)


def paper_length(steps: int, momentum: float, mu: float) -> float:
    """Return ||a||_1 by section 4.2 of the paper."""
    if momentum:
        return sum((1 - momentum ** (k + 1)) / (1 - momentum) for k in range(steps))
    return sum((1 - RATE * mu) ** k for k in range(steps))


def local(start: Array, device: int, steps: int, momentum: float, mu: float) -> Array:
    """Return (w, b) after steps on a device's sample; the loss is (w x + b - t)²."""
    inputs = np.append(INPUTS[device], 1.0)
    weights, velocity = start.copy(), np.zeros(3)
    for _ in range(steps):
        gradient = 2 * (weights @ inputs - TARGETS[device]) * inputs + mu * (weights - start)
        velocity = momentum * velocity + gradient
        weights = weights - RATE * velocity
    return weights


@pytest.mark.parametrize("values", LOCAL, ids=str)
def test_rounds_are_those_of_the_paper_in_float64(values: dict[str, Any]) -> None:
    recipe = plan(**values)
    half, players = make(recipe), devices(recipe)
    reached = players.play(half)[-1][0]

    first = players.trainer.model.weights()
    weights = np.append(first["out.weight"].ravel(), first["out.bias"]).astype(np.float64)
    momentum, mu = values.get("momentum", 0.0), values.get("mu", 0.0)
    shares = np.ones(3) if "weighting" in values else np.array(COUNTS, np.float64)
    shares /= shares.sum()
    memory = np.zeros(3)
    for _ in range(ROUNDS):
        steps = [EPOCHS * count for count in COUNTS]
        lengths = np.array([paper_length(count, momentum, mu) for count in steps])
        moved = np.array(
            [local(weights, k, count, momentum, mu) - weights for k, count in enumerate(steps)]
        )
        step = (shares @ lengths) * (shares @ (moved / lengths[:, None]))
        if "server" in values:
            memory = 0.5 * memory + step
            step = 0.5 * memory
        weights = weights + step
    after = half.weights(reached)
    assert np.append(after["out.weight"].ravel(), after["out.bias"]) == pytest.approx(
        weights, rel=2e-5, abs=2e-6
    )


def test_the_effective_number_of_steps_is_a_metric() -> None:
    recipe = plan()
    half, players = make(recipe), devices(recipe)
    state = players.play(half)[-1][0]
    shares = np.array(COUNTS) / sum(COUNTS)
    wanted = float(shares @ [EPOCHS * count for count in COUNTS])
    assert half.round_metrics(state) == {"tau_eff": pytest.approx(wanted)}
    assert not half.round_metrics(players.start(half)), "before the first merge"


@given(
    steps=st.integers(1, 40),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    mu=st.sampled_from([0.0, 0.1, 2.0]),
)
def test_lengths_have_the_closed_forms(steps: int, momentum: float, mu: float) -> None:
    if momentum and mu:
        return
    schedule = Schedule(learning_rate=RATE, momentum=momentum)
    wanted = paper_length(steps, momentum, mu)
    assert steps_length(schedule, mu, steps) == pytest.approx(wanted, rel=1e-12)


def test_lengths_follow_rates_and_nesterov() -> None:
    """Two steps with v = 1, 3/2: Nesterov moves 1 + v/2 = 3/2 and 7/4."""
    nesterov = Schedule(learning_rate=RATE, momentum=0.5, nesterov=True)
    assert steps_length(nesterov, 0.0, 2) == 3.25
    cosine = Schedule(learning_rate=RATE, rates=RateSchedule("cosine"))
    factors = [cosine.rate(step, 5) / RATE for step in range(5)]
    assert factors[-1] < factors[0]
    assert steps_length(cosine, 0.0, 5) == pytest.approx(math.fsum(factors))


def test_statistics_of_batch_normalisation_are_averaged_plainly() -> None:
    """Updates of 1 in 2 and in 6 steps, shares 1/4 and 3/4: 5 (1/4 · 1/2 + 3/4 · 1/6) = 5/4."""
    half = make(plan())
    weights: Tensors = {
        "a.weight": np.zeros(1, np.float32),
        "a.running_mean": np.zeros(1, np.float32),
    }
    questions = (Question("one", 1), Question("two", 3))
    delta = Group({name: np.ones(1, np.float32) for name in weights})
    answers = [
        Answer(question.device, question.samples, {"delta": delta}, {"steps": steps})
        for question, steps in zip(questions, (2.0, 6.0), strict=True)
    ]
    state = State(0, {"weights": weights, "memory": {}})
    merged = half.merge(state, Exchange("fit", 1, questions, {}, 2, 1, 1.0), answers)
    reached = merged.groups["weights"]
    assert (reached["a.weight"][0], reached["a.running_mean"][0]) == (1.25, 1.0)


def test_steps_that_do_not_fit_the_samples_are_refused() -> None:
    half, players = make(plan()), devices(plan())
    state = half.start(players.trainer.model.weights(), players.roster, 1)
    planned = half.plan(state, players.roster, 1)
    assert isinstance(planned, Exchange)
    answer = next(iter(players.answers(half, planned)))
    model = players.trainer.model
    assert half.reject_reason(asked(planned), answer, model) == ""
    for steps in (0.0, 1.0, 2.5, 1e9):
        lying = replace(answer, metrics={**answer.metrics, "steps": steps})
        reason = half.reject_reason(asked(planned), lying, model)
        assert reason == f"it took {steps:g} steps on 1 samples, not 2"
    missing = replace(answer, metrics={"loss": 0.0})
    assert "it took 0 steps" in half.reject_reason(asked(planned), missing, model)


@pytest.mark.parametrize(
    ("settings", "training", "words"),
    [
        ({}, {"optimizer": "adam"}, "needs local SGD"),
        ({"mu": 10.0}, {"learning_rate": 0.1}, "passes the round's weights"),
    ],
)
def test_local_steps_of_unknown_length_are_refused(
    settings: dict[str, Any], training: dict[str, Any], words: str
) -> None:
    half = make(
        Recipe.model_validate({"algorithm": {"name": "fednova", **settings}, "training": training})
    )
    with pytest.raises(RecipeError, match=words) as raised:
        half.check_recipe(None)
    assert raised.value.code == "algorithm.optimizer"


@pytest.mark.parametrize("table", [{"momentum": 0.9}, {"schedule": "cosine", "max_steps": 3}])
def test_the_contract(table: dict[str, Any]) -> None:
    training = {"batch_size": 4, "learning_rate": 0.1, **table}
    check_algorithm(find("fednova"), {"mu": 0.1}, {"training": training})
