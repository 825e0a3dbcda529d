"""What an audit reads from the change of the output bias, with the settings of local training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.training import loss_of, schedule_of
from edgefed.algorithms.composed.label_audit import disclosures
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.learn.base.types import Job, Samples
from tests.algorithms.play import trainer
from tests.run_fixture import CLASSES, SHAPE

LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2])
OVER_RUN = {"schedule": "linear", "schedule_over": "run", "warm_up": 0.25}


def audited(training: dict[str, Any]) -> tuple[np.ndarray[Any, np.dtype[Any]], bool]:
    """Return the shares that one step of round 3 of 4 tells, and whether they are determined."""
    section = TrainingSection.model_validate({"batch_size": 10, **training})
    trains = trainer(())
    start = {name: np.zeros_like(array) for name, array in trains.model.weights().items()}
    data = Samples(np.zeros((len(LABELS), *SHAPE), np.float32), LABELS)
    job = Job(start, loss_of(section), schedule_of(section, 3, 4), 1)
    trained = trains.train(job, data)
    answer = Answer("a", 10, {"delta": Group(trained.weights)}, {"steps": float(trained.steps)})
    [found] = disclosures(answer, State(2, {}), 3, section, "out.bias", rounds=4)
    return found.shares, found.determined


@pytest.mark.parametrize(
    "training",
    [{}, {"momentum": 0.9}, {"learning_rate_decay": 0.5}, OVER_RUN, {"schedule": "cosine"}],
    ids=str,
)
def test_a_step_of_plain_descent_tells_the_frequencies(training: dict[str, Any]) -> None:
    shares, determined = audited({"learning_rate": 0.1, **training})
    np.testing.assert_allclose(shares, np.bincount(LABELS, minlength=CLASSES) / 10, atol=1e-5)
    assert determined


@pytest.mark.parametrize(
    "training",
    [
        {"optimizer": "adamw"},
        {"momentum": 0.9, "nesterov": True},
        {"max_gradient_norm": 0.01},
        {"label_smoothing": 0.1},
        {"class_weights": "balanced"},
    ],
    ids=str,
)
def test_other_steps_do_not_determine_them(training: dict[str, Any]) -> None:
    assert not audited({"learning_rate": 0.1, **training})[1]
