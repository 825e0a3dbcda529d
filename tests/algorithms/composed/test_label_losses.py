"""FedLC and FedRS: their settings reach the loss, and the counts are the device's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Job
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.label_counts import COUNTS
from edgefed.learn.objectives.logit_calibration import LogitCalibration
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.restricted_softmax import RestrictedSoftmax
from tests.algorithms.play import Players, algorithm
from tests.run_fixture import CLASSES


def job_of(name: str, **settings: Any) -> tuple[Job, Players, str]:
    """Return the first device's first job."""
    half, players = algorithm(name, **settings), Players()
    _, exchange = players.play(half)[0]
    question = exchange.questions[0]
    job = players.job(half, exchange, question)
    return job, players, question.device


@pytest.mark.parametrize(
    ("name", "settings", "objective"),
    [
        ("fedlc", {}, LogitCalibration()),
        (
            "fedlc",
            {"calibration": 0.5, "exclude_true": True, "absent": "margin"},
            LogitCalibration(0.5, exclude_true=True, absent="margin"),
        ),
        ("fedlc", {"calibration": 0}, CrossEntropy()),
        ("fedlc", {"mu": 0.1}, Proximal(LogitCalibration(), 0.1)),
        ("fedrs", {}, RestrictedSoftmax()),
        (
            "fedrs",
            {"alpha": 0.9, "mode": "proportional", "bias": "unscaled"},
            RestrictedSoftmax(0.9, "proportional", "unscaled"),
        ),
        ("fedrs", {"alpha": 1}, CrossEntropy()),
        ("fedrs", {"alpha": 1, "bias": "none"}, RestrictedSoftmax(1, bias="none")),
        ("fedrs", {"mu": 0.1}, Proximal(RestrictedSoftmax(), 0.1)),
    ],
)
def test_settings_reach_the_loss(name: str, settings: dict[str, Any], objective: object) -> None:
    job, _, _ = job_of(name, **settings)
    assert job.objective == objective


@pytest.mark.parametrize("name", ["fedlc", "fedrs"])
def test_a_job_counts_the_devices_own_training_samples(name: str) -> None:
    job, players, device = job_of(name)
    expected = np.bincount(players.view(device).train.targets, minlength=CLASSES)
    assert job.extra[COUNTS].tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["fedlc", "fedrs"])
def test_targets_that_are_numbers_are_refused(name: str) -> None:
    training = {"loss": "squared_error"}
    half = make(Recipe.model_validate({"algorithm": {"name": name}, "training": training}))
    with pytest.raises(RecipeError, match="squared error") as caught:
        half.check_model(Players().trainer.model)
    assert caught.value.code == "algorithm.labels"
