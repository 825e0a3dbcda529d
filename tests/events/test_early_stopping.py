"""The best round and early stopping follow from the rows of the rounds alone."""

from __future__ import annotations

from typing import Any

import pytest

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.errors import UsageError
from edgefed.events.history.early_stopping import BestRound, EvaluationHistory, Row, history_of


def rows(*accuracies: float | None, **more: Any) -> list[Row]:
    """Return a row for each accuracy; None for a round without an evaluation."""
    return [
        {
            "round": number,
            "accuracy": accuracy,
            "loss": None if accuracy is None else 1 - accuracy,
            "replies": 4,
            **(more if accuracy is not None else {}),
        }
        for number, accuracy in enumerate(accuracies, start=1)
    ]


def stopped_after(section: EvaluationSection, found: list[Row]) -> int | None:
    """Return the number of the first round after which the run stops."""
    history = EvaluationHistory(section)
    for row in found:
        history.add(row)
        if history.stop_reason():
            return int(row["round"])
    return None


def test_the_best_round_is_the_first_with_the_highest_accuracy() -> None:
    best = history_of(EvaluationSection(), rows(0.5, 0.7, None, 0.7, 0.6)).best
    assert best == BestRound(2, "accuracy", 0.7)


def test_of_a_loss_the_lowest_is_best_and_it_counts_where_there_is_no_accuracy() -> None:
    regression = [{"round": n, "accuracy": None, "loss": loss} for n, loss in ((1, 2.0), (2, 1.0))]
    assert history_of(EvaluationSection(), regression).best == BestRound(2, "loss", 1.0)
    by_loss = EvaluationSection(best_metric="loss")
    assert history_of(by_loss, rows(0.5, 0.9, 0.7)).best == BestRound(2, "loss", 1 - 0.9)


@pytest.mark.parametrize(
    ("metric", "better", "round_"),
    [
        ("device_loss", None, 3),
        ("mean_error", None, 3),
        ("f1_macro", None, 2),
        ("lossless", None, 2),
        ("f1_macro", "lower", 3),
        ("loss_of_face", "higher", 2),
    ],
)
def test_the_direction_follows_from_the_name_unless_it_is_stated(
    metric: str, better: Any, round_: int
) -> None:
    section = EvaluationSection(best_metric=metric, better=better)
    found = [{"round": n, metric: value} for n, value in ((1, 0.5), (2, 0.8), (3, 0.1))]
    best = history_of(section, found).best
    assert best is not None
    assert best.round == round_


def test_patience_counts_evaluations_and_not_rounds() -> None:
    section = EvaluationSection(stop_patience=2)
    assert stopped_after(section, rows(0.5, 0.6, 0.6, 0.5, 0.9)) == 4
    assert stopped_after(section, rows(0.6, None, None, 0.5, None, 0.4)) == 6
    assert stopped_after(section, rows(0.6, 0.5, 0.7, 0.6, 0.8, 0.7)) is None
    assert stopped_after(EvaluationSection(), rows(0.6, 0.5, 0.5, 0.5)) is None


def test_a_change_below_the_least_is_no_improvement_but_can_be_the_best() -> None:
    section = EvaluationSection(stop_patience=2, stop_min_change=0.1)
    found = rows(0.5, 0.55, 0.59, 0.9)
    assert stopped_after(section, found) == 3
    history = history_of(section, found[:3])
    assert history.best == BestRound(3, "accuracy", 0.59)
    assert history.stop_reason() == (
        "stopped early: no better accuracy in 2 evaluations; the best is 0.5900 after round 3"
    )
    # Two small steps together are more than the least change.
    assert stopped_after(section, rows(0.5, 0.55, 0.62, 0.65, 0.7)) == 5


def test_a_diverged_evaluation_is_one_without_improvement() -> None:
    section = EvaluationSection(best_metric="loss", stop_patience=2)
    diverged = [{"round": n, "accuracy": 0.1, "loss": None} for n in (2, 3)]
    assert stopped_after(section, [*rows(0.5), *diverged]) == 3


def test_a_score_that_no_evaluation_gives_is_told_with_those_that_there_are() -> None:
    history = EvaluationHistory(EvaluationSection(best_metric="acuracy", stop_patience=2))
    history.add(rows(None)[0])
    history.check(pytest.fail)
    history.add(rows(0.5, recall=0.3)[0])
    with pytest.raises(UsageError) as caught:
        history.check(pytest.fail)
    assert caught.value.code == "evaluation.metric"
    assert "'acuracy'" in caught.value.message
    assert "accuracy, loss, recall" in caught.value.hint


def test_a_score_that_may_come_later_is_only_warned_of_once() -> None:
    history = EvaluationHistory(EvaluationSection(best_metric="accuracy_known", stop_patience=1))
    told: list[str] = []
    for row in rows(0.5, 0.4, 0.3):
        history.add(row)
        history.check(told.append)
    assert (len(told), history.stop_reason()) == (1, "")
    assert "accuracy_known" in told[0]
    history.add({"round": 4, "accuracy": 0.5, "loss": 0.5, "accuracy_known": 0.4})
    history.check(told.append)
    assert history.best == BestRound(4, "accuracy_known", 0.4)


def test_the_best_round_is_sought_anew_when_testers_were_removed() -> None:
    found = rows(0.9, 0.7, 0.8, 0.6)
    found[1] = {**found[1], "removed_testers": 1}
    assert history_of(EvaluationSection(), found).best == BestRound(3, "accuracy", 0.8)
    patient = EvaluationSection(stop_patience=2)
    assert stopped_after(patient, rows(0.9, 0.8, 0.7, 0.6)) == 3
    assert stopped_after(patient, found) is None, "patience begins anew too"


def test_scores_of_the_coordinator_do_not_begin_anew() -> None:
    found = rows(0.9, 0.7, 0.8, device_accuracy=0.5)
    found[1] = {**found[1], "removed_testers": 1}
    assert history_of(EvaluationSection(), found).best == BestRound(1, "accuracy", 0.9)


def test_a_score_that_was_given_may_be_missing_after_testers_were_removed() -> None:
    section = EvaluationSection(best_metric="device_accuracy")
    history = EvaluationHistory(section)
    for row in [*rows(0.9, device_accuracy=0.5), {**rows(0.8)[0], "removed_testers": 1}]:
        history.add(row)
        history.check(lambda text: None)
    assert history.best is None
