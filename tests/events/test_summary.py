"""The summary of a run: each answer counts once, also with a damaged log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefed.errors import StorageError
from edgefed.events.base.log import Log
from edgefed.events.history.summary import MAX_LINES, RunSummary, summarise

TIME = "2024-05-06T07:08:09.000Z"


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": TIME, "kind": kind, **fields}


def reply(device: str, exchange: str = "x-1", outcome: str = "accepted", **more: Any) -> Any:
    fields = {"device": device, "exchange": exchange, "outcome": outcome, "round": 1, **more}
    return event("reply", **fields)


def only(summary: RunSummary) -> Any:
    assert len(summary.devices) == 1
    return summary.devices[0]


def test_a_device_is_the_sum_of_its_answers() -> None:
    summary = summarise(
        [
            event("device", device="a", samples=5, labels=[2, 3], hardware="board", joined=True),
            reply("a", "x-1", bytes=10, seconds=1.0, loss=2.0, joules=7.5),
            reply("a", "x-2", bytes=30, seconds=3.0, loss=1.5, joules=2.5),
            reply("a", "x-3", "late"),
            reply("a", "x-4", "rejected", reason="not finite"),
            event("device", device="a", state="lost"),
        ]
    )
    device = only(summary)
    assert (device.samples, device.labels, device.hardware) == (5, (2, 3), "board")
    assert (device.accepted, device.late, device.rejected, device.lost) == (2, 1, 1, 1)
    assert (device.sent, device.seconds, device.fastest, device.slowest) == (40, 4.0, 1.0, 3.0)
    assert (device.loss, device.joules) == (1.5, 10.0)
    assert [line.text.split()[1].rstrip(":") for line in summary.lines] == [
        "lost",
        "rejected",
        "late",
    ]


def test_an_answer_that_a_restart_took_again_counts_once() -> None:
    events = [reply("a", "x-1", bytes=10), reply("b", "x-1"), reply("a", "x-1", bytes=10)]
    summary = summarise(events)
    assert [(each.device, each.accepted) for each in summary.devices] == [("a", 1), ("b", 1)]
    assert summary.devices[0].sent == 10


def test_rounds_and_the_run_are_as_last_told() -> None:
    summary = summarise(
        [
            event("run", run="r-1", name="mine", status="running"),
            event("scored", run="r-1", round=2, accuracy=0.5),
            event("scored", run="r-1", round=1, accuracy=0.25),
            event("scored", run="r-1", round=2, accuracy=0.75),
            event("run", run="r-1", status="finished", accuracy=0.75),
        ]
    )
    assert [(row["round"], row["accuracy"]) for row in summary.rounds] == [(1, 0.25), (2, 0.75)]
    assert summary.run is not None
    assert (summary.run.name, summary.run.status, summary.run.accuracy) == (
        "mine",
        "finished",
        0.75,
    )


def test_what_is_not_understood_is_passed_over() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"kind": "reply"},
        event("device"),
        event("scored", round="many"),
        event("run", status=3),
        event("riddle", answer=42),
        event("note", text="after all"),
    ]
    assert [line.text for line in summarise(odd).lines] == ["after all"]


def test_only_the_newest_lines_are_kept() -> None:
    summary = summarise(event("note", text=str(k)) for k in range(MAX_LINES + 7))
    assert len(summary.lines) == MAX_LINES
    assert summary.lines[0].text == str(MAX_LINES + 6)


def test_a_summary_travels_as_json() -> None:
    summary = summarise([event("run", run="r-1"), reply("a", bytes=3, loss=0.5)])
    assert RunSummary.model_validate(json.loads(summary.model_dump_json())) == summary


# -- the log on disk ------------------------------------------------------------------------------


def write(path: Path, lines: list[str], end: str = "") -> Log:
    path.write_text("".join(f"{line}\n" for line in lines) + end)
    return Log(path)


def test_a_line_cut_short_or_broken_is_left_out(tmp_path: Path) -> None:
    log = write(tmp_path / "events.jsonl", ['{"a": 1}', "{oops", "[]", '{"b": 2}'], '{"c": ')
    assert list(log.events()) == [{"a": 1}, {"b": 2}]


def test_of_a_long_log_beginning_and_end_are_read(tmp_path: Path) -> None:
    lines = [json.dumps({"k": k}) for k in range(1000)]
    path = write(tmp_path / "events.jsonl", lines).path
    log = Log(path, limit=2000)
    seen = [each["k"] for each in log.events()]
    assert log.left_out() == path.stat().st_size - 2000
    assert seen[0] == 0
    assert seen[-1] == 999
    assert seen == sorted(set(seen))
    assert 100 < len(seen) < 250
    assert Log(path).left_out() == 0
    assert len(list(Log(path).events())) == 1000


def test_a_log_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        list(Log(tmp_path / "none").events())


def test_what_a_device_shared_is_in_its_summary() -> None:
    shared = {"entries": 3, "group": 40}
    events = [
        reply("a", "x-0", bytes=900, shared=shared),
        reply("a", "x-1", bytes=10, loss=0.5, shared=None),
        reply("b", "x-0", "rejected", reason="another shape", shared=shared),
    ]
    first, second = summarise(events).devices
    assert (first.shared_entries, first.shared_group, first.shared_bytes) == (3, 40, 900)
    assert (second.shared_entries, second.shared_group, second.shared_bytes) == (0, 0, 0)
