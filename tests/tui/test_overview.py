"""The Overview names what is wrong, whom a round waits for, and what is no longer live."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from edgefed.events.snapshot import LineView, Snapshot
from edgefed.tui.panes.attention import AttentionPane
from tests.tui.driving import drive, screen_text
from tests.tui.samples import ago, dashboard, device_view, fine, snapshot

SIZES = [(120, 36), (80, 24), (200, 50)]


def troubled(**changes: object) -> Snapshot:
    """A fleet of 40 of which one is lost, one refused and one hot."""
    views = [device_view(i, state="idle", temperature=45.0, seen_at=ago(1)) for i in range(1, 41)]
    views[15] = device_view(16, state="lost", state_since=ago(600), exchange="e-12",
                            before_lost="train 83 %", temperature=99.0)  # fmt: skip
    views[29] = device_view(30, state="idle", refused_at=ago(90), temperature=45.0,
                            refused_reason="norm 19.4 exceeds 10.0")  # fmt: skip
    views[4] = device_view(5, state="idle", temperature=86.0)
    return snapshot(lines=()).model_copy(update={"devices": tuple(views), **changes})


def attention_of(pilot: Pilot[None]) -> tuple[str, list[str]]:
    pane = pilot.app.screen.query_one(AttentionPane)
    box = pane.content_region
    rows = screen_text(pilot).splitlines()[box.y : box.bottom]
    return pane.border_title or "", [row[box.x : box.right].rstrip() for row in rows]


@pytest.mark.parametrize("size", SIZES)
def test_what_is_wrong_is_named_the_worst_first(size: tuple[int, int]) -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        title, lines = attention_of(pilot)
        assert title == "Attention 3"
        starts = ["✗ jetson-16 lost", "■ jetson-30 refused", "▲ jetson-05 86 °C"]
        found = [line for line in lines if line.startswith(("✗", "■", "▲"))][:3]
        assert [line[: len(start)] for line, start in zip(found, starts, strict=True)] == starts
        assert found[0].endswith("10 min")

    drive(dashboard(fine(troubled())), scenario, size)


def test_a_long_reason_takes_the_lines_that_are_free() -> None:
    async def scenario(pilot: Pilot[None]) -> None:
        _, lines = attention_of(pilot)
        told = [" ".join(line.split()) for line in lines]
        assert told[:2] == ["✗ jetson-16 lost, train 83 %; 10 min", "round 12 waits"]
        assert told[2:4] == ["■ jetson-30 refused: norm 19.4 90 s", "exceeds 10.0"]

    drive(dashboard(fine(troubled())), scenario)


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
        assert title == "Fleet"
        assert lines[0] == "○ idle 4"
        assert any("hottest jetson-04" in line for line in lines)

    drive(dashboard(fine(shown)), scenario)


def test_what_has_no_room_is_counted() -> None:
    views = tuple(device_view(i, state="lost", state_since=ago(i)) for i in range(1, 41))
    shown = snapshot(lines=()).model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        title, lines = attention_of(pilot)
        assert title == "Attention 40"
        named = [line for line in lines if line.startswith("✗")]
        assert named[0].startswith("✗ jetson-01")
        assert lines[-1] == f"+ {40 - len(named)} more"

    drive(dashboard(fine(shown)), scenario, (80, 24))


def test_odd_text_of_a_warning_keeps_to_its_line() -> None:
    odd = LineView(time=ago(5), mark="!", text="\x1b[31m[bold]" + "x" * 300)
    shown = snapshot(lines=(odd,)).model_copy(update={"devices": ()})

    async def scenario(pilot: Pilot[None]) -> None:
        _, lines = attention_of(pilot)
        assert lines[0].startswith("! ?[31m[bold]x")
        assert lines[0].endswith("5 s")

    drive(dashboard(fine(shown)), scenario)
