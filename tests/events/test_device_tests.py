"""The accuracy that a device measured last is kept for it, whenever it joins."""

from __future__ import annotations

import pytest

from edgefed.events.base.device_rounds import last_tests
from edgefed.events.base.evaluation_views import DeviceTestView
from edgefed.events.state.fold import SnapshotBuilder
from tests.tui.folded import evaluated, folded, happened, run_of


def found(*answers: tuple[str, float, int]) -> list[tuple[str, int, float]]:
    snapshot = folded(run_of(), *(evaluated(*answer) for answer in answers))
    return [(test.device, test.round, test.accuracy) for test in snapshot.tests]


def test_the_last_answer_of_a_round_counts() -> None:
    assert found(("b", 0.2, 4), ("a", 0.5, 4), ("b", 0.3, 4)) == [("a", 4, 0.5), ("b", 4, 0.3)]


def test_an_answer_about_an_earlier_round_does_not() -> None:
    assert found(("a", 0.5, 4), ("a", 0.9, 3)) == [("a", 4, 0.5)]


def test_a_device_that_returns_has_its_accuracy_again() -> None:
    tested, forgotten = evaluated("a", 0.5), happened("device", device="a", forgotten=True)
    joined = happened("device", device="a", state="idle", joined=True)
    assert folded(run_of(), tested, forgotten).devices == ()
    (view,) = folded(run_of(), tested, forgotten, joined).devices
    assert (view.accuracy, view.accuracy_round) == (0.5, 4)


def test_an_accuracy_that_is_none_changes_nothing() -> None:
    builder = SnapshotBuilder(folded(run_of(), evaluated("a", 0.5)))
    before = builder.snapshot()
    wrong = evaluated("a", 0.5)
    with pytest.raises(ValueError, match="accuracy"):
        builder.apply(wrong.model_copy(update={"fields": {**wrong.fields, "accuracy": "much"}}))
    assert builder.snapshot() == before


def test_the_last_round_that_was_tested_is_told_the_lowest_first() -> None:
    tests = [
        DeviceTestView(device=device, round=number, accuracy=accuracy)
        for device, number, accuracy in (("a", 3, 0.1), ("c", 4, 0.6), ("b", 4, 0.6), ("d", 4, 0.2))
    ]
    assert [test.device for test in last_tests(tests)] == ["d", "b", "c"]
    assert last_tests([]) == []
