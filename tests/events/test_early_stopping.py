"""The best round and early stopping follow from the rows of the rounds alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.errors import UsageError
from edgefed.events.history.early_stopping import (
    BestRound,
    EvaluationHistory,
    FleetTesters,
    Row,
    history_of,
)


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


# -- tests on devices ------------------------------------------------------------------------------

ALL = ("a", "b", "c", "d")


def played(
    section: EvaluationSection, *rounds: dict[str, float], drawn: int = 0, samples: int = 10
) -> tuple[EvaluationHistory, list[dict[str, Any]]]:
    """Return the history of rounds that are given as accuracies of the devices that tested."""
    history, written, known = EvaluationHistory(section), list[dict[str, Any]](), set[str]()
    for number, accuracies in enumerate(rounds, start=1):
        known |= set(accuracies)
        tests = {
            device: {"samples": float(samples), "accuracy": accuracy}
            for device, accuracy in accuracies.items()
        }
        mean = sum(accuracies.values()) / len(accuracies)
        row: dict[str, Any] = {"round": number, "accuracy": mean, "loss": None}
        row |= history.judged(row, tests, FleetTesters(known, drawn))
        history.add({**row, "device_tests": tests})
        written.append({**row, "device_tests": tests})
    return history, written


def every(accuracy: float, devices: Iterable[str] = ALL) -> dict[str, float]:
    return dict.fromkeys(devices, accuracy)


def test_a_round_that_few_devices_tested_is_not_the_best() -> None:
    history, written = played(EvaluationSection(), every(0.6), every(0.7), every(1.0, "ab"))
    assert history.best == BestRound(2, "accuracy", 0.7)
    counts = [(row["tested_devices"], row["all_testers"], row["tested_share"]) for row in written]
    assert counts == [(4, 4, 1.0), (4, 4, 1.0), (2, 4, 0.5)]
    lenient = EvaluationSection(least_tested=0.5)
    best = played(lenient, every(0.6), every(0.7), every(1.0, "ab"))[0].best
    assert best == BestRound(3, "accuracy", 1.0)


def test_the_share_is_of_samples() -> None:
    history = EvaluationHistory(EvaluationSection())
    row: dict[str, Any] = {"round": 1, "accuracy": 0.5, "loss": None}
    tests = {"a": {"samples": 95.0, "accuracy": 0.5}, "b": {"samples": 5.0, "accuracy": 0.5}}
    history.add({**row, "device_tests": tests})
    found = history.judged(row, {"a": tests["a"]}, FleetTesters(("a", "b")))
    assert (found["tested_share"], found["is_best"]) == (0.95, False), "comparable, and no better"
    assert history.judged(row, {"b": tests["b"]}, FleetTesters(("a", "b")))["tested_share"] == 0.05


def test_the_coordinators_validation_does_not_depend_on_who_tested() -> None:
    row = {"round": 1, "validation_loss": 0.5, "loss": 1.0, "device_loss": 2.0}
    tests = {"a": {"samples": 95.0, "loss": 2.0}, "b": {"samples": 5.0, "loss": 2.0}}
    few = {"b": tests["b"]}
    judged = {}
    for metric in ("validation_loss", "device_loss"):
        history = EvaluationHistory(EvaluationSection(best_metric=metric))
        history.add({**row, "device_tests": tests})
        judged[metric] = history.judged(row, few, FleetTesters(("a", "b")))
    assert "compared" not in judged["validation_loss"]
    assert judged["device_loss"]["compared"] is False


def test_rounds_are_compared_on_the_devices_that_tested_both() -> None:
    """The hardest of ten devices is away in the second round, and the others became worse."""
    devices = "abcdefghij"
    first = {**every(0.9, devices), "j": 0.1}
    history, written = played(EvaluationSection(), first, every(0.89, devices[:-1]))
    assert written[1]["accuracy"] > written[0]["accuracy"]
    assert (written[1]["tested_share"], written[1]["is_best"]) == (0.9, False)
    assert history.best is not None and history.best.round == 1
    better = played(EvaluationSection(), first, every(0.91, devices[:-1]))[0].best
    assert better is not None and better.round == 2


def test_a_round_that_few_of_the_later_testers_tested_is_replaced() -> None:
    history, _ = played(EvaluationSection(), every(1.0, "a"), every(0.6), every(0.5))
    assert history.best == BestRound(2, "accuracy", 0.6)


def test_drawn_testers_count_among_the_drawn_ones() -> None:
    rounds = (every(0.5, "ab"), every(0.6, "cd"), every(0.9, "a"))
    history, written = played(EvaluationSection(), *rounds, drawn=2)
    assert [row["tested_share"] for row in written] == [1.0, 1.0, 0.5]
    assert history.best == BestRound(2, "accuracy", 0.6), "without common devices scores compare"


def test_devices_may_weigh_the_same() -> None:
    section = EvaluationSection(weighting="devices", least_tested=0)
    tests = {"a": {"samples": 90.0, "accuracy": 0.5}, "b": {"samples": 10.0, "accuracy": 0.5}}
    later = {"a": {"samples": 90.0, "accuracy": 0.6}, "b": {"samples": 10.0, "accuracy": 0.1}}
    for chosen, better in ((section, False), (EvaluationSection(weighting="samples"), True)):
        history = EvaluationHistory(chosen)
        history.add({"round": 1, "accuracy": 0.5, "loss": None, "device_tests": tests})
        row = {"round": 2, "accuracy": 0.55, "loss": None}
        assert history.judged(row, later, FleetTesters(("a", "b")))["is_best"] is better


def test_rounds_that_few_tested_do_not_count_for_stopping() -> None:
    section = EvaluationSection(stop_patience=2)
    half = every(0.9, "ab")
    history, _ = played(section, every(0.6), every(0.5), half, half, half)
    assert history.stop_reason() == ""
    history, _ = played(section, every(0.6), every(0.5), half, every(0.6))
    assert "no better accuracy in 2 evaluations; the best is 0.6000" in history.stop_reason()


def test_the_least_change_holds_on_common_devices_too() -> None:
    section = EvaluationSection(stop_patience=2, stop_min_change=0.05)
    history, written = played(section, every(0.6), every(0.64), every(0.66))
    assert [row["improved"] for row in written] == [True, False, True]
    assert history.best is not None and history.best.round == 3


def test_the_judgement_is_the_same_after_a_restart_and_for_readers() -> None:
    rounds = (every(0.6), every(0.8, "abc"), every(1.0, "ab"), every(0.7))
    section = EvaluationSection(stop_patience=3)
    history, written = played(section, *rounds)
    for read in (written, [{**row, "device_tests": {}} for row in written]):
        again = history_of(section, read)
        assert (again.best, again.stop_reason()) == (history.best, history.stop_reason())
    resumed = history_of(section, written[:3])
    row = {name: written[3][name] for name in ("round", "accuracy", "loss")}
    found = resumed.judged(row, written[3]["device_tests"], FleetTesters(ALL))
    assert found == {name: written[3][name] for name in found}


def test_a_round_whose_testers_are_unknown_is_compared_by_its_score() -> None:
    """Such as one from before an upgrade."""
    history = EvaluationHistory(EvaluationSection())
    history.add({"round": 1, "accuracy": 0.8, "loss": None})
    tests = {device: {"samples": 10.0, "accuracy": 0.7} for device in ALL}
    found = history.judged({"accuracy": 0.7}, tests, FleetTesters(ALL))
    assert (found["is_best"], found["tested_share"]) == (False, 1.0)
    assert history.judged({"accuracy": 0.9}, tests, FleetTesters(ALL))["is_best"]


def test_a_test_of_the_coordinator_is_not_judged_by_devices() -> None:
    history = EvaluationHistory(EvaluationSection())
    row = {"round": 1, "accuracy": 0.9, "device_accuracy": 0.5, "loss": 0.1}
    found = history.judged(row, {"a": {"samples": 4.0, "accuracy": 0.5}}, FleetTesters(ALL))
    assert found["tested_devices"] == 1 and "is_best" not in found


def test_few_common_devices_do_not_speak_for_the_others() -> None:
    later = {**every(0.9, "xyz"), "d": 0.4}
    best = played(EvaluationSection(), every(0.5), later, drawn=4)[0].best
    assert best is not None and best.round == 2
