"""The settings of a recipe reach the objective that devices train with, and change what they do."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.algorithms.averaged_data.mean_exchange import MeanExchange
from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.learn.base.types import Job, Objective
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.fed_mix import FedMixObjective
from edgefed.learn.objectives.global_mix import GlobalMixObjective
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing
from edgefed.learn.objectives.naive_mix import NaiveMixObjective
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError
from tests.algorithms.mean_play import after_sharing, half_of
from tests.algorithms.play import Players, bits

PLAIN = {"mixup_ratio": 0.4, "taylor": "lam", "taylor_labels": "own"}

CHANGED: dict[str, dict[str, Any]] = {
    "the ratio": {**PLAIN, "mixup_ratio": 0.3},
    "the factor": {**PLAIN, "taylor": "lam(1-lam)"},
    "the labels": {**PLAIN, "taylor_labels": "mixed"},
    "both": {**PLAIN, "taylor": "lam(1-lam)", "taylor_labels": "mixed"},
}


def job(name: str, **settings: Any) -> tuple[Job, Any]:
    """Return a device's job, and the weights that it ends in."""
    half, players = half_of(name, **settings), Players()
    exchange = players.planned(half, after_sharing(half, players))
    question = exchange.questions[1]
    view = players.view(question.device)
    work = half.prepare(players.task(exchange, question), view)
    assert isinstance(work, Job)
    return work, bits(players.trainer.train(work, view.train).weights)


@pytest.mark.parametrize("changed", CHANGED)
def test_the_settings_of_fedmix_reach_its_objective(changed: str) -> None:
    settings = CHANGED[changed]
    (work, weights), (_, plain) = job("fedmix", **settings), job("fedmix", **PLAIN)
    assert work.objective == FedMixObjective(
        settings["mixup_ratio"], taylor=settings["taylor"], labels=settings["taylor_labels"]
    )
    assert weights != plain


def test_the_ratio_of_naivemix_reaches_its_objective() -> None:
    (work, weights), (_, other) = (job("naivemix", mixup_ratio=each) for each in (0.3, 0.4))
    assert work.objective == NaiveMixObjective(0.3)
    assert weights != other


SQUARED = SquaredError()
EACH: list[tuple[str, dict[str, Any], Objective]] = [
    ("localmix", {"mixup_alpha": 0.4}, LocalMixObjective(0.4, SQUARED)),
    ("localmix", {"mixup_alpha": 0.4, "mu": 0.5}, Proximal(LocalMixObjective(0.4, SQUARED), 0.5)),
    (
        "localmix",
        {"split": 1, "embedding_grad": True},
        ManifoldMixing(LocalMixObjective(1.0, SQUARED), 1, True, SQUARED),
    ),
    ("globalmix", {"mixup_alpha": 0.4}, GlobalMixObjective(0.4, None, SQUARED)),
    ("globalmix", {"mixup_ratio": 0.3}, GlobalMixObjective(1.0, 0.3, SQUARED)),
    ("naivemix", {"mixup_ratio": 0.3}, NaiveMixObjective(0.3, SQUARED)),
    ("naivemix", {"mixup_ratio": 1}, NaiveMixObjective(1, SQUARED)),
    ("naivemix", {"mixup_ratio": 0}, SQUARED),
    ("fedmix", {"mixup_ratio": 0.3}, FedMixObjective(0.3, loss=SQUARED)),
    ("fedmix", {"mixup_ratio": 1}, FedMixObjective(1, loss=SQUARED)),
    ("fedmix", {"mixup_ratio": 0}, SQUARED),
]


@pytest.mark.parametrize(("name", "settings", "wanted"), EACH)
def test_the_loss_of_the_recipe_is_what_is_mixed(
    name: str, settings: dict[str, Any], wanted: Objective
) -> None:
    values = {"algorithm": {"name": name, **settings}, "training": {"loss": "squared_error"}}
    half: Any = make(Recipe.model_validate(values))
    if not half.parts():
        assert half.objective() == wanted
        return
    (part,) = half.parts()
    assert isinstance(part, MeanExchange)
    assert part.mixing == wanted


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_behind_a_split_all_layers_descend_the_loss_of_the_recipe_beside_it(mu: float) -> None:
    work, _ = job("naivemix", split=1, mixup_ratio=0.3, embedding_grad=True, mu=mu)
    mixing = ManifoldMixing(NaiveMixObjective(0.3), 1, True, CrossEntropy())
    assert work.objective == (Proximal(mixing, mu) if mu else mixing)
