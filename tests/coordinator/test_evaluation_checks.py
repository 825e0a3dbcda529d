"""What a device tells of its test beside counts is checked before it is summed."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.coordinator.evaluation_checks import evaluation_problem
from edgefed.wire.messages import Reply, Task

METRIC = "shop.metrics:fruit_recall"


def problem(metrics: dict[str, float], *names: str) -> str:
    """Return what is wrong with a test that tells these metrics; ``names`` are asked for."""
    asked: dict[str, Any] = {"confusion": False, "top_k": 0, "metrics": list(names)}
    task: dict[str, Any] = {"evaluation": asked, "training": {}, "classes": 3}
    reply: dict[str, Any] = {"samples": 4, "metrics": {"loss": 1.0, **metrics}}
    return evaluation_problem(Reply.model_construct(**reply), {}, Task.model_construct(**task))


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
