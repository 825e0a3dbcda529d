"""The Overview names what is wrong, whom a round waits for, and what is no longer live."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from textual.pilot import Pilot

from edgefed.events.base.snapshot import (
    LineView,
    PreviousRunView,
    RunView,
    Snapshot,
    WaitingView,
)
from edgefed.events.state.attention import AttentionItem, AttentionKind
from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.panes.base.curve import CurvePane
from edgefed.tui.panes.devices.attention import AttentionPane, item_lines
from edgefed.tui.panes.frame.events import EventsPane
from edgefed.tui.panes.frame.header import HeaderPane
from edgefed.tui.panes.runs.round import RoundPane
from edgefed.tui.panes.runs.traffic import TrafficPane
from edgefed.tui.state.display_state import DisplayState
from edgefed.tui.state.run_commands import RunCommands, command_lines
from tests.tui.driving import drive, notices, press, screen_text, tell
from tests.tui.sample_runs import KnownRuns, past_run
from tests.tui.samples import (
    FakeClock,
    RecordingControl,
    ago,
    dashboard,
    device_view,
    fine,
    round_views,
    run_view,
    snapshot,
)

SIZES = [(120, 36), (80, 24), (200, 50)]


def attention_of(pilot: Pilot[None]) -> tuple[str, list[str]]:
    pane = pilot.app.screen.query_one(AttentionPane)
    box = pane.content_region
    rows = screen_text(pilot).splitlines()[box.y : box.bottom]
    return pane.border_title or "", [row[box.x : box.right].rstrip() for row in rows]


def test_an_excluded_device_is_counted_and_has_its_reason() -> None:
    why = "its inputs are 5, the run's are 8"
    views = [device_view(index, state="idle", temperature=None) for index in range(1, 5)]
    views.append(device_view(5, state="excluded", excluded=why, temperature=None))
    shown = snapshot(lines=()).model_copy(update={"devices": tuple(views)})

    async def scenario(pilot: Pilot[None]) -> None:
        screen = screen_text(pilot)
        for told in ("take part 4 of 5", "□ 1 excluded", "excluded: its inputs are 5"):
            assert told in screen

    drive(dashboard(fine(shown)), scenario, (160, 50))


def test_a_lost_device_is_not_the_hottest() -> None:
    gone = device_view(1, state="lost", temperature=99.0, state_since=ago(60))
    here = device_view(2, state="idle", temperature=50.0)
    shown = snapshot(lines=()).model_copy(update={"devices": (gone, here)})

    async def scenario(pilot: Pilot[None]) -> None:
        assert "hottest jetson-02  50 °C" in screen_text(pilot)
        assert "99 °C" not in screen_text(pilot)

    drive(dashboard(fine(shown)), scenario, (120, 50))


def test_without_trouble_the_fleet_is_summed_up() -> None:
    views = tuple(device_view(i, state="idle", temperature=40.0 + i) for i in range(1, 5))
    shown = snapshot(lines=()).model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        title, lines = attention_of(pilot)
        assert title == "Attention"
        assert lines[0] == "Nothing needs attention."
        assert any("hottest jetson-04" in line for line in lines)

    drive(dashboard(fine(shown)), scenario)


def item(kind: AttentionKind, number: int) -> AttentionItem:
    return AttentionItem(f"board-{number:02}", kind, f"{kind} text", ago(number), "alarm")


def folded(items: Sequence[AttentionItem], width: int, height: int) -> list[str]:
    watch = DisplayState(FakeClock(), None)
    return [line.plain.rstrip() for line in item_lines(watch.shown(), items, width, height)]


def test_a_kind_without_room_is_one_line_with_the_names_that_fit() -> None:
    items = [*(item("lost", number) for number in range(1, 6)), item("refused", 7)]
    assert folded(items, 34, 2)[0] == "✗ 5 lost: board-01, board-02 … +3"
    assert folded(items, 34, 2)[1].startswith("■ board-07 refused text")
    assert folded(items, 12, 2)[0].startswith("✗ 5 lost: ")
    awaited = [item("waited", 1), item("waited", 2), item("lost", 3)]
    assert folded(awaited, 33, 2)[0] == "✗ 2 lost, awaited: board-01 … +1"
    apart = folded(items, 40, 4)
    assert [line[:10] for line in apart[:2]] == ["✗ board-01", "✗ board-02"]
    assert apart[2] == "✗ 3 more lost: board-03, board-04 … +1"


def test_many_devices_with_one_cause_are_one_line_with_it() -> None:
    def failed(number: int, cause: str) -> AttentionItem:
        return AttentionItem(f"board-{number:02}", "failed", cause, ago(number), "alarm")

    memory = [failed(n, f"failed: CUDA out of memory: {n} GB") for n in range(1, 1000)]
    assert folded([*memory, failed(1000, "failed: no space")], 70, 2) == [
        "✗ 999 failed: CUDA out of memory: 1 GB: board-01, board-02 … +997",
        "✗ board-1000 failed: no space                                   16 min",
    ]
    assert folded(memory, 40, 1) == ["✗ 999 failed: board-01, board-02 … +997"]


def test_a_sentence_takes_the_room_of_its_age_before_it_is_cut() -> None:
    text = "quarantined by ann"
    items = [AttentionItem("board-01", "standing", text, ago(720), "warning")]
    assert folded(items, 36, 1) == [f"! board-01 {text} 12 min"]
    assert folded(items, 29, 1) == [f"! board-01 {text}"]
    assert folded(items, 28, 2) == ["! board-01 quarantined by", "  ann                 12 min"]
    assert folded(items, 20, 1) == ["! board-01 quaranti…"]
    assert folded(items, 18, 2) == ["! board-01 quarant", "  ined by ann"]


def test_warnings_that_are_about_nobody_are_one_line_with_the_newest() -> None:
    warnings = [
        AttentionItem("", "warning", f"the broker was away {number} times", ago(number), "warning")
        for number in range(1, 6)
    ]
    assert folded(warnings, 40, 1) == ["! 5 warnings: the broker was away 1 tim…"]


def test_kinds_without_a_line_of_their_own_are_counted() -> None:
    items = [item("lost", 1), item("refused", 2), item("hot", 3), item("hot", 4)]
    assert folded(items, 40, 2)[1] == "+ 1 refused, 2 hot"
    assert folded(items, 40, 1) == ["+ 1 lost, 1 refused, 2 hot"]


def round_of(pilot: Pilot[None]) -> tuple[str, list[str]]:
    pane = pilot.app.screen.query_one(RoundPane)
    box = pane.content_region
    rows = screen_text(pilot).splitlines()[box.y : box.bottom]
    return pane.border_title or "", [row[box.x : box.right].rstrip() for row in rows]


def test_the_round_names_whom_it_waits_for_those_with_the_least_progress_first() -> None:
    views = (
        device_view(1, state="train", fraction=0.67, exchange="e-12"),
        device_view(2, state="train", fraction=0.5, exchange="e-12"),
        device_view(3, state="asked", exchange="e-12"),
        device_view(4, state="invited", exchange="e-12"),
        device_view(5, state="done", exchange="e-12", replied="e-12"),
        device_view(6, state="train", fraction=0.1, exchange="e-11"),
    )
    shown = snapshot().model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        assert round_of(pilot)[1][2] == (
            "waits for 4: jetson-03 asked · jetson-04 invited · jetson-02 50 % · jetson-01 67 %"
        )

    drive(dashboard(fine(shown)), scenario)


def test_those_without_room_in_the_line_are_counted() -> None:
    views = tuple(
        device_view(i, state="train", fraction=i / 41, exchange="e-12") for i in range(1, 41)
    )
    shown = snapshot().model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        line = round_of(pilot)[1][2]
        assert line.startswith("waits for 40: jetson-01 2 % · jetson-02 5 %")
        assert line.endswith(f" and {40 - line.count('jetson')} more")

    drive(dashboard(fine(shown)), scenario, (100, 36))


def test_once_all_have_answered_the_slowest_is_named() -> None:
    run = run_view(slowest="jetson-05", slowest_seconds=41.0, refused=1)
    shown = snapshot(run=run).model_copy(update={"devices": ()})

    async def scenario(pilot: Pilot[None]) -> None:
        assert round_of(pilot)[1][2] == "slowest so far jetson-05, 41 s · refused 1"

    drive(dashboard(fine(shown)), scenario)


def test_a_run_that_waits_says_for_how_many_and_since_when() -> None:
    views = tuple(device_view(i, state="idle", seen_at=ago(1)) for i in range(1, 4))
    run = run_view(status="waiting", round=0, min_devices=8, started_at=ago(130), exchange="",
                   phase="select")  # fmt: skip
    shown = snapshot(run=run, rounds=()).model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        assert round_of(pilot)[1][0].endswith("waiting for devices: 3 of 8, for 2 min 10 s")

    drive(dashboard(fine(shown)), scenario, (80, 24))


def test_a_run_that_waits_for_the_disk_says_so() -> None:
    run = run_view(reason="No space left. Waiting for space.")

    async def scenario(pilot: Pilot[None]) -> None:
        assert round_of(pilot)[1][0].endswith("No space left. Waiting for space.")

    drive(dashboard(fine(snapshot(run=run))), scenario)


def test_a_failed_run_is_loud_and_says_how_to_go_on() -> None:
    run = run_view(status="failed", phase="done", reason="Only 2 of 3 devices.", ended_at=ago(9))

    async def scenario(pilot: Pilot[None]) -> None:
        title, lines = round_of(pilot)
        assert title == "Run r-0142 ── FAILED"
        assert lines[0] == "✗ FAILED  Only 2 of 3 devices."
        assert "go on         edgefed run resume r-0142" in lines
        assert attention_of(pilot)[1][0].startswith("✗ r-0142 failed:")
        pane = pilot.app.screen.query_one(RoundPane)
        error = pilot.app.theme_variables["error"].lower()
        assert pane.styles.border_top[1].hex.lower() == error

    drive(dashboard(fine(snapshot(run=run))), scenario, (80, 24))


def test_an_aborted_run_tells_which_model_is_kept_if_any_and_how_to_go_on() -> None:
    run = run_view(status="aborted", phase="done", round=12, reason="by the operator")

    async def scenario(pilot: Pilot[None]) -> None:
        lines = round_of(pilot)[1]
        assert lines[0] == "■ ABORTED  by the operator; the model of round 11 is kept"
        assert lines[1].startswith("11 of 50 rounds · best accuracy")
        assert lines[2:5] == [
            "go on         edgefed run resume r-0142",
            "predict       edgefed predict r-0142 photo.jpg",
            "replay        edgefed run replay r-0142",
        ]
        early = run.model_copy(update={"round": 1})
        await tell(pilot, fine(snapshot(run=early, rounds=())))
        lines = round_of(pilot)[1]
        assert lines[0] == "■ ABORTED  by the operator"
        assert not [line for line in lines if line.startswith("predict")]

    drive(dashboard(fine(snapshot(run=run, rounds=round_views(11)))), scenario, (80, 24))


def test_a_run_that_has_finished_is_summed_up() -> None:
    best = round_views(20)
    rows = (*best, best[-1].model_copy(update={"round": 21, "accuracy": 0.7}))
    run = run_view(status="finished", phase="done", round=21, rounds=21, reason="",
                   started_at=ago(1500), ended_at=ago(20))  # fmt: skip

    async def scenario(pilot: Pilot[None]) -> None:
        lines = round_of(pilot)[1]
        assert lines[0] == "✓ FINISHED"
        assert lines[1] == (
            "21 of 21 rounds · best accuracy 0.746 in round 20 · final 0.700 · in 24 min 40 s"
        )
        assert "run resume" not in screen_text(pilot)

    drive(dashboard(fine(snapshot(run=run, rounds=rows))), scenario)


def test_a_finished_run_counts_the_answers_that_were_not_taken() -> None:
    row = round_views(1)[0].model_copy(update={"late": 3, "seconds": 62.0})
    run = run_view(status="finished", phase="done", round=1, rounds=1)

    async def scenario(pilot: Pilot[None]) -> None:
        assert "median round 62 s · 3 answers late or refused" in round_of(pilot)[1]

    drive(dashboard(fine(snapshot(run=run, rounds=(row,)))), scenario, (120, 40))


MODEL: dict[str, Any] = {
    "folder": "/var/lib/runs/r-0142",
    "models": [{"file": "model.safetensors", "round": 50}],
}
OVER = fine(snapshot(run=run_view(status="finished"), rounds=round_views(50)))


def test_an_ended_run_names_the_file_of_its_model() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert "model         /var/lib/runs/r-0142/model.safetensors" in round_of(pilot)[1]

    drive(dashboard(OVER, runs=KnownRuns(past_run(142, **MODEL))), scenario, (80, 24))


def test_an_ended_run_whose_folder_is_not_known_names_no_model() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert not [line for line in round_of(pilot)[1] if line.startswith("model")]

    for runs in (None, KnownRuns(past_run(142))):
        drive(dashboard(OVER, runs=runs), scenario)


def test_a_command_wider_than_the_pane_is_folded_so_that_a_shell_takes_it_as_one() -> None:
    program = "edgefed --broker mqtt://127.0.0.1:45120 --state '/tmp/my fleet'"
    command = RunCommands(program).predict("r-0142")
    assert command_lines(command, len(command)) == [command]
    lines = command_lines(command, 40)
    assert all(len(line) <= 40 for line in lines)
    assert [line.endswith(" \\") for line in lines] == [True, True, True, False]
    script = f"printf '%s\\n' {chr(10).join(lines)}"
    taken = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert taken.splitlines() == shlex.split(command)


@pytest.mark.parametrize(("status", "of_demo"), [("finished", True), ("failed", False)])
def test_the_screen_and_p_name_the_same_next_steps(status: str, of_demo: bool) -> None:
    run = run_view(status=status, ended_at=ago(9))
    commands = RunCommands("edgefed --fleet a", of_demo=of_demo)
    steps = commands.next_steps("r-0142", status, 11)
    assert ("go on" in [step.purpose for step in steps]) == (status != "finished" and not of_demo)
    assert {"predict", "replay"} < {step.purpose for step in steps}

    async def scenario(pilot: Pilot[None]) -> None:
        lines = " ".join(" ".join(round_of(pilot)[1]).split())
        await press(pilot, "p")
        ((_, notice),) = notices(pilot)
        for step in steps:
            assert f"{step.purpose} {step.command}" in lines
            assert f"{step.purpose} {step.command}" in " ".join(notice.split())

    updates = fine(snapshot(run=run, rounds=round_views(11)))
    drive(dashboard(updates, control=RecordingControl(), commands=commands), scenario)


LONG_RUN = "r-0142-ab12"


def top_line(pilot: Pilot[None]) -> str:
    return screen_text(pilot).splitlines()[0]


def test_a_deadline_is_told_unless_the_clock_was_changed() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for seconds, told in ((-4, "in 94 s"), (80000, "passed")):
            await tell(pilot, fine(snapshot(run=run_view(opened_at=ago(seconds)))))
            assert round_of(pilot)[1][0].endswith(f"deadline {told}")
        for seconds in (-10, 90 + 2 * 86400):
            await tell(pilot, fine(snapshot(run=run_view(opened_at=ago(seconds)))))
            top = round_of(pilot)[1][0]
            assert top.endswith("clock changed")
            assert "deadline" not in top
            lost = WaitingView(lost=("jetson-03",), until=ago(seconds - 90))
            await tell(pilot, fine(snapshot(run=run_view(waiting=lost))))
            assert round_of(pilot)[1][0].endswith("awaits 1 device")

    drive(dashboard(), scenario)


PAUSES = [
    ("done", 12, "between evaluate and select of round 13", 5),
    ("merge", 11, "between merge and select of the next exchange", 4),
    ("collect", 11, "between collect and select: devices are asked again", 0),
    ("select", 0, "before select", 0),
]
"""The phase, the rounds that are over, where the run pauses, and how many phases are over."""


def test_a_paused_run_says_between_which_phases_and_marks_none_as_going_on() -> None:
    views = (device_view(1, state="train", fraction=0.67, exchange="e-12"),)

    async def scenario(pilot: Pilot[None]) -> None:
        for phase, rounds, place, over in PAUSES:
            run = run_view(status="paused", phase=phase)
            shown = snapshot(run=run, rounds=round_views(rounds))
            await tell(pilot, fine(shown.model_copy(update={"devices": views})))
            title, lines = round_of(pilot)
            assert title == f"Round 12 ── PAUSED {place}"
            assert "▶" not in "".join(lines)
            assert lines[0].count("✓") == over
            assert "paused: p resumes, . steps" in lines[0]
            assert "waits for" not in "".join(lines)

    drive(dashboard(), scenario, (80, 24))


def test_the_header_keeps_state_and_run() -> None:
    run = run_view(run=LONG_RUN, status="finishing", round=120, rounds=500)

    async def scenario(pilot: Pilot[None]) -> None:
        line = top_line(pilot)
        assert f" {LONG_RUN} " in line
        assert "FINISHING " in line
        assert "120/500" in line
        assert "broker ✓ coord ✓" in line
        assert ("EdgeFed" in line) == (pilot.app.size[0] == 200)
        assert len(line.rstrip()) <= pilot.app.size[0]

    drive(dashboard(fine(snapshot(40, run=run))), scenario, *SIZES, (100, 30))


def test_cut_off_nothing_is_shown_as_live() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        for broker, marks in ((True, "broker ✓ coord ✗"), (False, "broker ✗ coord ?")):
            away = FeedUpdate(snapshot(), broker, not broker, problem="Away.", since=ago(12))
            await tell(pilot, away)
            line = top_line(pilot)
            assert marks in line
            assert "RUNNING" in line
            assert "as of 14:02" in line
            assert "ETA" not in line
            state = next(each for each in header_parts(pilot) if "RUNNING" in each[0])
            assert "bold" not in str(state[1])
            assert "deadline" not in " ".join(round_of(pilot)[1])
            assert round_of(pilot)[1][0].endswith("as of 14:02:19")

    drive(dashboard(), scenario, (80, 24))


def header_parts(pilot: Pilot[None]) -> list[tuple[str, str]]:
    text = pilot.app.screen.query_one(HeaderPane).render()
    return [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]


def test_the_header_names_the_run_and_counts_no_silent_device_as_there() -> None:
    views = tuple(device_view(i, state="silent" if i == 1 else "idle") for i in range(1, 7))
    run = run_view(name="tuesday with a very long name", quorum=1)

    async def scenario(pilot: Pilot[None]) -> None:
        assert "r-0142 tuesday wit…ry long name fedprox cifar10 │" in top_line(pilot)
        assert "devices 5/6" in top_line(pilot)
        assert round_of(pilot)[0].endswith("7 of 10 answers"), "a quorum of 1 says nothing"

    shown = snapshot(run=run).model_copy(update={"devices": views})
    drive(dashboard(fine(shown)), scenario, size=(200, 50))


def test_an_ended_run_stays_ended_when_cut_off() -> None:
    run = run_view(status="finished", phase="done")
    away = FeedUpdate(snapshot(run=run), True, False, since=ago(12))

    async def scenario(pilot: Pilot[None]) -> None:
        assert "✓ FINISHED" in top_line(pilot)
        assert "as of" not in top_line(pilot)

    drive(dashboard(away), scenario)


def test_the_eta_stays_at_80_columns() -> None:
    run = "line-3-nightly-0142"
    view = snapshot(999, run=run_view(run=run, round=2120, rounds=5000))
    rows = tuple(row.model_copy(update={"round": row.round + 2109}) for row in view.rounds)

    async def scenario(pilot: Pilot[None]) -> None:
        line = top_line(pilot)
        assert "RUNNING 2120/5000  ETA 2 d " in line
        assert "│ broker ✓ coord ✓" in line
        assert len(line.rstrip()) <= 80
        assert line.startswith(f" {run} ")
        assert "14:02" not in line

    drive(dashboard(fine(view.model_copy(update={"rounds": rows}))), scenario, size=(80, 24))


def test_the_eta_is_not_zero_while_time_is_left() -> None:
    rows = tuple(row.model_copy(update={"seconds": 0.2}) for row in round_views(49))
    run = run_view(round=50)

    async def scenario(pilot: Pilot[None]) -> None:
        assert "ETA 1 s " in top_line(pilot)

    drive(dashboard(fine(snapshot(run=run, rounds=rows))), scenario)


def events_of(pilot: Pilot[None]) -> list[str]:
    box = pilot.app.screen.query_one(EventsPane).content_region
    rows = screen_text(pilot).splitlines()[box.y : box.bottom]
    return [row[box.x : box.right].strip() for row in rows if row[box.x : box.right].strip()]


def rounds_of(pilot: Pilot[None]) -> list[str]:
    box = pilot.app.screen.query_one(TrafficPane).content_region
    rows = screen_text(pilot).splitlines()[box.y : box.bottom]
    return [row[box.x : box.right].rstrip() for row in rows]


def curve_of(pilot: Pilot[None]) -> list[list[tuple[str, str]]]:
    pane = pilot.app.screen.query_one("#accuracy", CurvePane)
    strips = [pane.render_line(y) for y in range(pane.size.height)]
    return [[(part.text, str(part.style)) for part in strip] for strip in strips]


def test_a_round_that_few_devices_tested_is_hollow_and_not_the_best() -> None:
    partial = {"tested_devices": 1, "all_testers": 4, "tested_labels": 3, "all_labels": 10}
    rows = tuple(
        row.model_copy(
            update={"accuracy": 0.9, "compared": False, "is_best": False, **partial}
            if row.round == 11
            else {"accuracy": 0.5 - row.round / 100, "is_best": row.round == 1}
        )
        for row in round_views(11)
    )
    run = run_view(status="finished", phase="done", round=11, rounds=11)

    async def scenario(pilot: Pilot[None]) -> None:
        text = "".join(part for line in curve_of(pilot) for part, _ in line)
        assert (text.count("○"), text.count("●")) == (1, 1)
        tested = "1 of 4 devices · 3 of 10 labels"
        assert f"Accuracy  0.900 · {tested}" in screen_text(pilot)
        await pilot.resize_terminal(120, 36)
        await pilot.pause()
        assert "Accuracy  0.900 · 1/4 devices ─" in screen_text(pilot)
        assert f"best accuracy 0.490 in round 1 · final 0.900 · {tested}" in screen_text(pilot)

    drive(dashboard(fine(snapshot(run=run, rounds=rows))), scenario, (200, 50))


def after(run: RunView | None = None, accuracy: float = 0.3) -> Snapshot:
    """A run of 11 rounds with one accuracy, after one of 30 rounds that comes to 0.75."""
    before = PreviousRunView(run="r-0141-ab12", rounds=round_views(30))
    now = tuple(row.model_copy(update={"accuracy": accuracy}) for row in round_views(11))
    return snapshot(run=run, rounds=now, previous=before)


def curve_lines(pilot: Pilot[None]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in curve_of(pilot)]


@pytest.mark.parametrize(("letters", "this"), [(False, "⠒"), (True, "#")])
def test_the_run_before_has_its_name_and_other_characters(letters: bool, this: str) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        legend, *drawn = curve_lines(pilot)[:-2]
        assert legend.split()[:4] == [this, "r-0142", ":", "r-0141-ab12"]
        cells = "".join(line[5:] for line in drawn)
        marks = ("^", ">") if letters else ("↑", "→")
        assert cells.count(":") >= 2
        assert sum(map(cells.count, (":", *marks))) > 3
        assert any(char == "#" or 0x2800 < ord(char) < 0x2900 for char in cells)
        assert cells.count("*" if letters else "●") == 1, "the best round"

    drive(dashboard(fine(after()), letters=letters), scenario)


def test_the_run_before_does_not_stretch_the_axes() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        _, *drawn = curve_lines(pilot)
        assert drawn[-1].split()[-1] == "11"
        assert (drawn[0][:5], drawn[-3][:5]) == ("0.35┤", "0.25┤")
        assert "↑" in drawn[0] and "↓" not in "".join(drawn)
        assert sum("→" in line for line in drawn) == 1
        assert next(line for line in drawn if "→" in line).endswith("→")

    drive(dashboard(fine(after())), scenario, (80, 24))


def test_a_run_before_that_is_worse_throughout_is_marked_below() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        _, *drawn = curve_lines(pilot)
        assert "↓" in drawn[-3] and "↑" not in "".join(drawn)
        assert ":" not in "".join(line[5:] for line in drawn)

    drive(dashboard(fine(after(accuracy=0.95))), scenario)


def reply_line(seconds: float) -> LineView:
    return LineView(time=ago(seconds), mark="✓", text=f"jetson-08  r12  n={seconds}", routine=True)


def test_accepted_replies_are_folded_until_v() -> None:
    rejected = LineView(time=ago(4), mark="■", text="jetson-10  rejected: norm")
    replies = [reply_line(seconds) for seconds in range(40)]
    shown = snapshot(lines=(*replies[:20], rejected, *replies[20:]))

    async def scenario(pilot: Pilot[None]) -> None:
        assert events_of(pilot) == ["14:02:27  ■  jetson-10  rejected: norm"]
        assert "v All" in screen_text(pilot)
        await press(pilot, "v")
        assert len(events_of(pilot)) == 6
        assert events_of(pilot)[0] == "14:02:31  ✓  jetson-08  r12  n=0"
        assert "v Fewer" in screen_text(pilot)
        await press(pilot, "v")
        assert len(events_of(pilot)) == 1

    drive(dashboard(fine(shown)), scenario, (120, 50))


def test_events_that_are_all_folded_are_named() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        assert events_of(pilot) == ["Nothing but accepted replies; v shows them."]

    drive(dashboard(fine(snapshot(lines=(reply_line(3),)))), scenario)
