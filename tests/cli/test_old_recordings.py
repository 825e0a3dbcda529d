"""Recordings of the version before tables: experts, matched layers and label bounties in events.

``tests/corpus/recordings`` has the events of three runs, and as JSON what that version's commands
printed of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefed.cli.printed.label_skew_output import skew_json
from edgefed.cli.printed.label_views import LabelView
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.history.playback import Playback
from edgefed.events.history.recording import Recording
from edgefed.report.page import report
from edgefed.report.run_data import run_data_of_folder
from tests.cli.commands import edgefed

RECORDINGS = Path(__file__).parent.parent / "corpus" / "recordings"


def folder_of(recording: str, tmp_path: Path) -> Path:
    """Return a run's folder with the events of a recording."""
    folder = tmp_path / recording
    folder.mkdir()
    (folder / "events.jsonl").write_bytes((RECORDINGS / f"{recording}.jsonl").read_bytes())
    return folder


def replayed(recording: str) -> Snapshot:
    """Return the state at the end of a replay."""
    found = Recording.read(RECORDINGS / f"{recording}.jsonl")
    assert found.left_out.in_words() == ""
    playback = Playback(found)
    assert playback.move(len(found), len(found))
    assert playback.refused == 0
    return playback.snapshot()


def printed_then(name: str) -> Any:
    """Return the JSON that the version before printed."""
    return json.loads((RECORDINGS / f"{name}.json").read_text())


@pytest.mark.parametrize(("recording", "group"), [("fedma", "match"), ("moe", "expert")])
def test_the_commands_print_the_same_json(recording: str, group: str, tmp_path: Path) -> None:
    folder = folder_of(recording, tmp_path)
    printed = edgefed("--json", group, "show", folder, state=tmp_path).json
    assert printed.pop("verdict"), "which that version did not print"
    assert printed == printed_then(f"{recording}-show")


def test_label_commands_have_the_same_values() -> None:
    snapshot = replayed("labels")
    assert snapshot.run is not None
    view = LabelView(snapshot, {"run": snapshot.run.run})
    bounties = [{**row.model_dump(), "name": view.name(row.label)} for row in snapshot.bounties]
    assert bounties == printed_then("labels-bounties")
    assert [row.model_dump() for row in snapshot.budgets] == printed_then("labels-budget")
    assert json.loads(json.dumps(skew_json(view, None))) == printed_then("labels-skew")


def test_a_replay_shows_them_as_tables() -> None:
    assert [view.table.name for view in replayed("moe").tables] == ["experts", "q(z|y)", "q(z|s)"]
    layers = replayed("fedma")
    (view,) = layers.tables
    assert view.table.verdict.endswith("growth 1.00; on average 4.0 of 4 devices hold a unit")
    assert [point.round for point in view.history] == [1, 2, 3, 4]
    labels = replayed("labels")
    assert [view.table.name for view in labels.tables] == ["label bounties", "mix budgets"]
    assert labels.tables[0].table.verdict == "18 closed"
    assert [device.received_mixes for device in labels.devices] == [30, 20, 24, 24]
    assert "label bounties: 18 closed" in [line.text for line in labels.lines]
    assert all(device.mixture for device in replayed("moe").devices)


def test_a_report_has_them(tmp_path: Path) -> None:
    page = report(run_data_of_folder(folder_of("moe", tmp_path)))
    assert "<h2>q(z|s)</h2>" in page
    assert "q(z|s): shares of each device by round" in page
