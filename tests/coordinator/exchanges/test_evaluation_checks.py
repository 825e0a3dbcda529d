"""What a device tells of its test beside counts is checked before it is summed."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.coordinator.exchanges.reply_checks import evaluation_problem
from edgefed.wire.messages import Reply, Task

METRIC = "shop.metrics:fruit_recall"


def problem(metrics: dict[str, float], *names: str) -> str:
    """Return what is wrong with a test that tells these metrics; ``names`` are asked for."""
    asked: dict[str, Any] = {"confusion": False, "top_k": 0, "metrics": list(names)}
    task: dict[str, Any] = {"evaluation": asked, "training": {}, "classes": 3}
    return judged({"loss": 1.0, "accuracy": 0.5, **metrics}, task)


def judged(metrics: dict[str, float], task: dict[str, Any], held_out: int | None = None) -> str:
    """Return what is wrong with a test of 4 samples."""
    reply: dict[str, Any] = {"samples": 4, "metrics": metrics}
    asked = Task.model_construct(**task)
    return evaluation_problem(Reply.model_construct(**reply), {}, asked, held_out)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"numerator_fruit_recall": 1.0},
        {"denominator_fruit_recall": 1.0},
        {"numerator_fruit_recall": 1.0, "denominator_fruit_recall": -1.0},
    ],
)
def test_a_metric_that_is_no_fraction_is_a_problem(told: dict[str, float]) -> None:
    assert problem(told, METRIC) == "its metric fruit_recall is no fraction"
    assert problem(told) == ""


def test_a_fraction_is_none() -> None:
    fraction = {"numerator_fruit_recall": 1.0, "denominator_fruit_recall": 0.0}
    assert problem(fraction, METRIC) == ""


@pytest.mark.parametrize(
    ("before", "fine"), [(0.0, True), (1.0, True), (1.5, False), (-0.1, False)]
)
def test_an_accuracy_before_fine_tuning_is_a_share(before: float, fine: bool) -> None:
    told = problem({"accuracy": 0.5, "accuracy_before": before})
    assert told == ("" if fine else f"its accuracy before fine-tuning is {before:.3g}")


ALL = {"loss": 1.0, "accuracy": 0.5, "loss_before": 2.0, "accuracy_before": 0.25}


@pytest.mark.parametrize(
    ("loss", "epochs", "asked"),
    [
        ("cross_entropy", 0, ("loss", "accuracy")),
        ("squared_error", 0, ("loss",)),
        ("shop.losses:own", 0, ("loss",)),
        ("cross_entropy", 2, ("loss", "accuracy", "loss_before", "accuracy_before")),
        ("squared_error", 2, ("loss", "loss_before")),
    ],
)
def test_a_test_without_a_score_that_was_asked_is_a_problem(
    loss: str, epochs: int, asked: tuple[str, ...]
) -> None:
    task = {"training": {"loss": loss}, "personal": {"fine_tune_epochs": epochs}}
    given = {name: ALL[name] for name in asked}
    assert judged(given, task) == ""
    for name in asked:
        others = {other: score for other, score in given.items() if other != name}
        assert judged(others, task) == f"it lacks the {name.replace('_', ' ')}"


@pytest.mark.parametrize(("held_out", "fine"), [(None, True), (4, True), (3, False), (0, False)])
def test_no_test_counts_more_samples_than_its_device_announced_to_hold_out(
    held_out: int | None, fine: bool
) -> None:
    announced = "it tested 4 samples, and its device announced"
    problem = judged(ALL, {"training": {}}, held_out)
    assert problem == "" if fine else problem.startswith(announced)
