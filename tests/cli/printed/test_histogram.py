"""Label histograms as text."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.cli.printed.histogram import BLOCKS, draw


def _report(rows: list[list[int]]) -> dict[str, Any]:
    devices = [
        {"device": f"device-{number:02d}", "train": sum(row), "test": 0, "labels": row}
        for number, row in enumerate(rows)
    ]
    labels = [sum(column) for column in zip(*rows, strict=True)]
    return {
        "classes": len(labels),
        "devices": devices,
        "totals": {"train": sum(labels), "test": 0, "labels": labels},
    }


def test_each_device_has_a_row_and_each_label_a_column() -> None:
    drawn = draw(_report([[8, 0, 4], [0, 1, 0]]), 80, plain=False).splitlines()
    assert drawn[:4] == [
        "DEVICE     SAMPLES  0 1 2",
        "device-00       12  █ · ▄",
        "device-01        1  · ▁ ·",
        "all             13  █ ▁ ▄",
    ]
    assert drawn[-1] == "█ is 8 samples of a device, 8 of all; · is none"


def test_without_blocks_there_are_digits() -> None:
    drawn = draw(_report([[8, 0, 4], [0, 1, 0]]), 80, plain=True)
    assert drawn.isascii()
    assert "device-00       12  8 . 4" in drawn


def test_many_labels_share_a_column_and_the_ruler_tells_which() -> None:
    drawn = draw(_report([[1] * 200, [0] * 199 + [9]]), 60, plain=False).splitlines()
    assert drawn[-1].endswith("a column is 5 labels")
    assert drawn[0].split()[2:] == ["0", "50", "100", "150"]
    assert drawn[2].endswith("·█")


def test_one_device_has_a_line_for_each_label_it_holds() -> None:
    drawn = draw(_report([[40, 0, 1]]), 40, plain=False).splitlines()
    assert [line.split()[0] for line in drawn] == ["LABEL", "0", "2"]
    assert drawn[1].count("█") == 40 - 16
    assert drawn[2].count("█") == 1


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300).flatmap(
        lambda classes: st.lists(
            st.lists(st.integers(0, 10**6), min_size=classes, max_size=classes).map(
                lambda row: [row[0] + 1, *row[1:]]
            ),
            min_size=1,
            max_size=4,
        )
    ),
    st.integers(40, 160),
)
def test_it_fits_the_terminal_and_a_label_that_is_there_never_looks_absent(
    rows: list[list[int]], width: int
) -> None:
    drawn = draw(_report(rows), width, plain=False)
    table = drawn.split("\n\n", maxsplit=1)[0].splitlines()
    assert max(map(len, table)) <= width
    if len(rows) > 1 and len(rows[0]) <= 8:
        for row, line in zip(rows, table[1:], strict=False):
            marks = line.split(maxsplit=2)[2].replace(" ", "")
            assert [mark == BLOCKS[0] for mark in marks] == [count == 0 for count in row]
