"""The settings of a recipe reach the objective that devices train with, and change what they do."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.learn.objectives.fed_mix import FedMix
from edgefed.learn.objectives.naive_mix import NaiveMix
from edgefed.learn.types import Job
from tests.algorithms.mean_play import after_sharing, half_of, planned
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
    exchange = planned(half, after_sharing(half, players), players)
    question = exchange.questions[1]
    view = players.view(question.device)
    work = half.prepare(players.task(exchange, question), view)
    assert isinstance(work, Job)
    return work, bits(players.trainer.train(work, view.train).weights)


@pytest.mark.parametrize("changed", CHANGED)
def test_the_settings_of_fedmix_reach_its_objective(changed: str) -> None:
    settings = CHANGED[changed]
    (work, weights), (_, plain) = job("fedmix", **settings), job("fedmix", **PLAIN)
    assert work.objective == FedMix(
        settings["mixup_ratio"], taylor=settings["taylor"], labels=settings["taylor_labels"]
    )
    assert weights != plain


def test_the_ratio_of_naivemix_reaches_its_objective() -> None:
    (work, weights), (_, other) = (job("naivemix", mixup_ratio=each) for each in (0.3, 0.4))
    assert work.objective == NaiveMix(0.3)
    assert weights != other
