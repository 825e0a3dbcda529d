"""q-FedAvg, Ditto, MOON and FedRep: rounds in float64, and tests on devices.

Every device takes full batches, so that neither its order nor its batches matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.device_side import EvalJob
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.testing.play import Players, asked, bits
from edgefed.worker.run_work import run_work

RATE, EPOCHS, ROUNDS, COUNT = 0.2, 3, 3, 6
DEVICES = range(3)

Exact = dict[str, torch.Tensor]
Loss = Callable[[Exact, int], torch.Tensor]


def inputs_of(device: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(device)
    targets = rng.integers(0, 3, COUNT)
    inputs = rng.standard_normal((COUNT, 2)) + targets[:, None]
    return torch.tensor(inputs.astype(np.float32)).double(), torch.tensor(targets)


def plan(name: str, personal: dict[str, Any] | None = None, **settings: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [4]},
            "algorithm": {"name": name, **settings},
            "training": {"epochs": EPOCHS, "batch_size": COUNT, "learning_rate": RATE},
            "rounds": {"count": ROUNDS},
            **({"personal": personal} if personal else {}),
        }
    )


def players_of(recipe: Recipe) -> Players:
    parts = [
        Samples(inputs.float().numpy(), targets.numpy())
        for inputs, targets in map(inputs_of, DEVICES)
    ]
    trainer = Trainer(build(recipe.model, (2,), 3, 1), "cpu")
    return Players(parts, trainer, test=parts[0])


def played(recipe: Recipe) -> tuple[State, Players, Any]:
    """Return the state after all rounds, the devices, and the algorithm."""
    half, players = make(recipe), players_of(recipe)
    return players.play(half)[-1][0], players, half


# -- float64 ------------------------------------------------------------------------------------


def start(recipe: Recipe) -> Exact:
    weights = build(recipe.model, (2,), 3, 1).weights()
    return {name: torch.tensor(array).double() for name, array in weights.items()}


def features(weights: Exact, device: int) -> torch.Tensor:
    inputs = inputs_of(device)[0]
    return functional.relu(inputs @ weights["fc1.weight"].T + weights["fc1.bias"])


def cross_entropy(weights: Exact, device: int) -> torch.Tensor:
    logits = features(weights, device) @ weights["out.weight"].T + weights["out.bias"]
    return functional.cross_entropy(logits, inputs_of(device)[1])


def descended(
    weights: Exact, device: int, loss: Loss, names: tuple[str, ...] = (), epochs: int = EPOCHS
) -> Exact:
    """Return the weights after steps on full batches; with names, these alone move."""
    names = names or tuple(weights)
    for _ in range(epochs):
        moving = {name: weights[name].detach().requires_grad_() for name in names}
        value = loss({**weights, **moving}, device)
        gradients = torch.autograd.grad(value, list(moving.values()))
        stepped = zip(names, gradients, strict=True)
        weights = {**weights, **{n: (weights[n] - RATE * g).detach() for n, g in stepped}}
    return weights


def mean_of(parts: list[Exact]) -> Exact:
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


def assert_close(found: Tensors, wanted: Exact) -> None:
    for name, array in found.items():
        assert array == pytest.approx(wanted[name].numpy(), rel=2e-5, abs=3e-6), name


# -- q-FedAvg -----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.5, 2.0])
def test_qfedavg_takes_the_step_of_the_paper(q: float) -> None:
    recipe = plan("qfedavg", q=q)
    weights = start(recipe)
    for _ in range(ROUNDS):
        losses = [cross_entropy(weights, k) for k in DEVICES]
        reached = [descended(weights, k, cross_entropy) for k in DEVICES]
        drifts = [{n: (weights[n] - part[n]) / RATE for n in weights} for part in reached]
        h = sum(
            q * loss ** (q - 1) * sum((each**2).sum() for each in drift.values()) + loss**q / RATE
            for loss, drift in zip(losses, drifts, strict=True)
        )
        weights = {
            n: weights[n]
            - sum(loss**q * drift[n] for loss, drift in zip(losses, drifts, strict=True)) / h
            for n in weights
        }
    state, _, half = played(recipe)
    assert_close(half.weights(state), weights)


@pytest.mark.parametrize(("loss", "told"), [(-1.0, "is -1"), (None, "is -1"), (0.5, "")])
def test_an_answer_without_its_loss_is_rejected(loss: float | None, told: str) -> None:
    recipe = plan("qfedavg")
    half, players = make(recipe), players_of(recipe)
    planned = half.plan(players.start(half), players.roster, 1)
    assert isinstance(planned, Exchange)
    answer = players.answers(half, planned)[0]
    metrics = {key: value for key, value in answer.metrics.items() if key != "loss_before"}
    metrics |= {} if loss is None else {"loss_before": loss}
    changed: Answer = replace(answer, metrics=metrics)
    reason = half.reject_reason(asked(planned), changed, players.trainer.model)
    assert reason.endswith(told) and bool(reason) == bool(told)


# -- Ditto --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pull", "epochs"), [(0.5, 0), (2.0, 1), (0.0, 0)])
def test_ditto_trains_a_model_of_its_own_beside_fedavgs(pull: float, epochs: int) -> None:
    recipe = plan("ditto", own_pull=pull, own_epochs=epochs)
    shared, own = start(recipe), dict.fromkeys(DEVICES, start(recipe))
    for _ in range(ROUNDS):
        centre = shared

        def near(weights: Exact, device: int, centre: Exact = centre) -> torch.Tensor:
            away = sum(((weights[n] - centre[n]) ** 2).sum() for n in centre)
            return cross_entropy(weights, device) + pull / 2 * away

        own = {k: descended(own[k], k, near, epochs=epochs or EPOCHS) for k in DEVICES}
        shared = mean_of([descended(shared, k, cross_entropy) for k in DEVICES])
    state, players, half = played(recipe)
    assert_close(half.weights(state), shared)
    for k in DEVICES:
        assert_close(players.private[f"device-0{k}"]["own"], own[k])


def test_devices_test_their_own_model_and_new_ones_the_global_one() -> None:
    state, players, half = played(plan("ditto"))
    exchange = half.evaluation(state, players.roster, 1)
    question = exchange.questions[1]
    task = players.task(exchange, question)
    for given, known in (({}, True), ({"mode": "new"}, False)):
        job = half.eval_job(replace(task, params=given), players.view(question.device))
        assert isinstance(job, EvalJob)
        wanted = players.private[question.device]["own"] if known else half.weights(state)
        assert (job.mode, bits(job.weights)) == ("known" if known else "new", bits(wanted))
    players.private.clear()
    assert half.eval_job(task, players.view(question.device)).mode == "new"


# -- MOON ---------------------------------------------------------------------------------------


def test_moon_contrasts_the_global_model_with_the_devices_last_one() -> None:
    mu, temperature = 2.0, 0.5
    recipe = plan("moon", contrast=mu, temperature=temperature)
    shared = start(recipe)
    last = dict.fromkeys(DEVICES, shared)
    for number in range(ROUNDS):
        near = shared
        last = last if number else dict.fromkeys(DEVICES, shared)

        def contrasted(weights: Exact, device: int, near: Exact = near, far: Any = last) -> Any:
            own = features(weights, device)
            same, other = (
                (own * features(each, device)).sum(1)
                / (own.norm(dim=1) * features(each, device).norm(dim=1)).clamp_min(1e-16)
                / temperature
                for each in (near, far[device])
            )
            contrast = -(same - torch.logaddexp(same, other)).mean()
            return cross_entropy(weights, device) + mu * contrast

        last = {k: descended(shared, k, contrasted) for k in DEVICES}
        shared = mean_of(list(last.values()))
    state, players, half = played(recipe)
    assert_close(half.weights(state), shared)
    for k in DEVICES:
        assert_close(players.private[f"device-0{k}"]["last"], last[k])


# -- FedRep -------------------------------------------------------------------------------------


def test_fedrep_trains_the_output_layer_before_the_others() -> None:
    recipe = plan("fedavg", {"preset": "fedper", "own_epochs": 2})
    head, body = ("out.weight", "out.bias"), ("fc1.weight", "fc1.bias")
    shared = start(recipe)
    own = {k: {name: shared[name] for name in head} for k in DEVICES}
    for _ in range(ROUNDS):
        reached = []
        for k in DEVICES:
            first = descended({**shared, **own[k]}, k, cross_entropy, head, epochs=2)
            own[k] = {name: first[name] for name in head}
            reached.append(descended(first, k, cross_entropy, body))
        shared = {**shared, **mean_of([{n: part[n] for n in body} for part in reached])}
    state, players, half = played(recipe)
    assert_close({n: a for n, a in half.weights(state).items() if n in body}, shared)
    for k in DEVICES:
        assert_close(players.private[f"device-0{k}"]["personal"], own[k])


def test_several_works_are_shares_of_one_progress() -> None:
    recipe = plan("ditto")
    half, players = make(recipe), players_of(recipe)
    planned = half.plan(players.start(half), players.roster, 1)
    assert isinstance(planned, Exchange)
    question = planned.questions[0]
    view = players.view(question.device)
    work = half.prepare(players.task(planned, question), view)
    assert not isinstance(work, Answer)
    done: list[float] = []
    run_work(players.trainer, work, view.train, done.append)
    steps = [*range(1, EPOCHS + 1), EPOCHS, *range(EPOCHS + 1, 2 * EPOCHS + 1), 2 * EPOCHS]
    assert done == pytest.approx([step / (2 * EPOCHS) for step in steps])
