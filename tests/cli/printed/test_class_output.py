"""The table of classes fits into 80 columns, names the worst first, and says whose tests it is."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.cli.printed.class_output import MAX_CLASSES, class_tables
from edgefed.evaluation.confusion import MAX_MATRIX_CLASSES, Confusion
from edgefed.events.base.class_table import confusion_json
from edgefed.events.base.evaluation_views import ConfusionView, TestPlace


def shown(
    confusion: Confusion,
    names: list[str],
    place: TestPlace = "devices",
    devices: int = 3,
    tested: int = 3,
) -> list[str]:
    """Return the lines about a test."""
    counts = tuple(tuple(row) for row in confusion.rows())
    view = ConfusionView(place=place, round=7, devices=devices, tested=tested, counts=counts)
    return class_tables([confusion_json(view, names)]).splitlines()


def test_classes_by_name_the_worst_first() -> None:
    confusion = Confusion.of([0] * 8 + [1] * 4 + [2] * 2, [0] * 8 + [0, 0, 0, 1] + [2, 1], 4)
    blank, empty, told, untested, *rows = shown(confusion, ["cat", "dog", "", "bird"])
    assert (blank, empty) == ("", "")
    assert told == "Tested in round 7, 14 held-out samples of 3 devices;"
    assert untested == "not tested: bird."
    assert [" ".join(row.split()) for row in rows] == [
        "CLASS SAMPLES RECALL PRECISION F1 MOST MISTAKEN FOR",
        "dog 4 0.250 0.500 0.333 cat (75%)",
        "2 2 0.500 1.000 0.667 dog (50%)",
        "cat 8 1.000 0.727 0.842",
    ]


@pytest.mark.parametrize(
    ("place", "devices", "tested", "words"),
    [
        ("coordinator", 0, 0, "14 held-out samples of the coordinator."),
        ("devices", 1, 1, "14 held-out samples of 1 device."),
        ("devices", 2, 5, "14 held-out samples of 2 devices; 3 of 5 devices shared no labels."),
        (
            "devices",
            999,
            10**4,
            "14 held-out samples of 999 devices; 9001 of 10000 devices shared no labels.",
        ),
    ],
)
def test_whose_tests_they_are(place: TestPlace, devices: int, tested: int, words: str) -> None:
    confusion = Confusion.of([0] * 7 + [1] * 7, [0] * 14, 2)
    lines = shown(confusion, [], place, devices, tested)
    told = lines[2 : next(k for k, line in enumerate(lines) if line.startswith("CLASS"))]
    assert " ".join(told) == f"Tested in round 7, {words}"
    assert max(map(len, told)) <= 80


@pytest.mark.parametrize("classes", [2, 62, MAX_MATRIX_CLASSES + 1])
def test_a_row_fits_into_eighty_columns(classes: int) -> None:
    rng = np.random.default_rng(3)
    true, found = rng.integers(0, classes, (2, 20_000))
    lines = shown(
        Confusion.of(true, found, classes), [f"{k} {'long' * 20}" for k in range(classes)]
    )
    assert max(map(len, lines)) <= 80
    rows = lines[4 : 4 + MAX_CLASSES]
    f1 = [float(line[20:].split()[3]) for line in rows]
    assert f1 == sorted(f1)
    left = classes - MAX_CLASSES
    assert (f"… and {left} classes with a higher F1: --json" in lines) == (left > 0)


def test_what_has_no_value_is_a_dash() -> None:
    lines = shown(Confusion.of([0, 0], [1, 0], 3), ["a", "b", "c"])
    assert lines[3] == "not tested: b, c."
    assert " ".join(lines[5].split()) == "b 0 - 0.000 0.000"
    assert len(lines) == 7, "a class that does not occur has no row"


def test_untested_classes_are_named_as_far_as_they_fit() -> None:
    lines = shown(Confusion.of([0] * 14, [0] * 14, 62), [f"{k}{'long' * 20}" for k in range(62)])
    assert lines[3] == "not tested: 1longlonglonglong…, 2longlonglonglong… and 59 more."
    assert max(map(len, lines)) <= 80
    coordinator = shown(Confusion.of([0], [0], 2), [], "coordinator", 0, 0)
    assert coordinator[2:4] == [
        "Tested in round 7, 1 held-out sample of the coordinator;",
        "not tested: 1.",
    ]
