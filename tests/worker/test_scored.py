"""What a device sends of a test: its owner decides whether it tells counts by label."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.policy import Policy
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.run_fixture import CLASSES, samples
from tests.worker.tasks import MODEL, task, weights, work

ASKED = {"confusion": True, "top_k": 5}


def evaluate_task(**changes: object) -> Task:
    return task(question="evaluate", **{"evaluation": ASKED, **changes})


def outcome_of(policy: Policy, **changes: object) -> Outcome:
    """Return what a device of this policy sends of a test of seven samples."""
    device = Worker(TrainerCache("cpu"), samples(9, 1), samples(7, 2), policy)
    return work(evaluate_task(**changes), device)


def test_a_test_sends_its_counts_exactly() -> None:
    outcome = outcome_of(Policy())
    trainer = TrainerCache("cpu").trainer(MODEL, (8,), CLASSES)
    own = samples(7, 2)
    predicted = trainer.predict(weights(), own.inputs).argmax(axis=1)
    expected = np.zeros((CLASSES, CLASSES), np.int64)
    np.add.at(expected, (own.targets, predicted), 1)
    assert set(outcome.blobs) == {"confusion"}
    counts = decode(outcome.blobs["confusion"], None)["counts"]
    assert counts.dtype == np.int64
    assert np.array_equal(counts, expected)
    assert set(outcome.metrics) == {"loss", "accuracy", "top_k_hits"}
    assert outcome.metrics["top_k_hits"] >= np.trace(expected)
    assert isinstance(trainer, Trainer)


def test_a_device_that_does_not_share_its_labels_sends_no_counts() -> None:
    silent, open_handed = outcome_of(Policy(share_labels=False)), outcome_of(Policy())
    assert silent.status == "ok"
    assert dict(silent.blobs) == {}
    assert silent.metrics == open_handed.metrics
    assert open_handed.blobs


@pytest.mark.parametrize(
    ("section", "blobs", "metrics"),
    [
        ({}, set(), {"loss", "accuracy"}),
        ({"confusion": False, "top_k": 5}, set(), {"loss", "accuracy", "top_k_hits"}),
        ({"confusion": True, "top_k": 0}, {"confusion"}, {"loss", "accuracy"}),
    ],
)
def test_only_what_is_asked_is_measured(
    section: dict[str, object], blobs: set[str], metrics: set[str]
) -> None:
    outcome = outcome_of(Policy(), evaluation=section)
    assert (set(outcome.blobs), set(outcome.metrics)) == (blobs, metrics)


def test_a_section_that_is_none_fails_the_task() -> None:
    outcome = outcome_of(Policy(), evaluation={"confusion": True, "top_k": -1})
    assert (outcome.status, outcome.blobs) == ("failed", {})
    assert outcome.reason.startswith("top_k: ")
