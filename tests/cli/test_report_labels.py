"""The report's chart of labels counts them as the run numbers them, not as each device does."""

from __future__ import annotations

import re

from edgefed.events.history.summary import summarise
from edgefed.report.sections import labels

RUN = {
    "kind": "run",
    "time": "2026-01-02T03:04:05.000Z",
    "run": "r-0001",
    "class_names": ["ant", "bee", "cat"],
}


def device(name: str, counts: list[int], names: list[str]) -> dict[str, object]:
    told = {"labels": counts, "class_names": names}
    return {"kind": "device", "time": RUN["time"], "device": name, **told}


def shown(*devices: dict[str, object]) -> list[str]:
    """Return what the cells of the chart say."""
    return re.findall(r"<title>(cam[^<]*)</title>", labels(summarise([RUN, *devices]))["chart"])


def test_labels_are_those_of_the_run() -> None:
    cells = shown(device("cam-1", [4, 2], ["bee", "cat"]), device("cam-2", [7], ["cat"]))
    assert cells == ["cam-1, label 1: 4", "cam-1, label 2: 2", "cam-2, label 2: 7"]
    assert "0 ant, 1 bee, 2 cat" in labels(summarise([RUN, device("cam-1", [4], ["bee"])]))["note"]


def test_labels_without_names_are_left_as_they_are() -> None:
    assert shown(device("cam-1", [4, 0, 2], [])) == ["cam-1, label 0: 4", "cam-1, label 2: 2"]
