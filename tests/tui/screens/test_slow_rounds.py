"""When a run ends by the header, and why a round is slow by its pane."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot

from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import RoundView, RunView, Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.tui.panes.frame.header import eta
from tests.tui.driving import drive
from tests.tui.samples import NOW, ago, dashboard, device_view, fine, run_view, snapshot
from tests.tui.screens.test_overview import round_of


def timed(*seconds: float) -> tuple[RoundView, ...]:
    return tuple(
        RoundView(round=number, seconds=taken) for number, taken in enumerate(seconds, start=1)
    )


@pytest.mark.parametrize(
    ("rounds", "taken", "left"),
    [
        (timed(10), 0, 10 + 10 * 8),  # round 2 of 10 is open
        (timed(10), 4, 6 + 10 * 8),
        (timed(10), 10, 0 + 10 * 8),
        (timed(10), 13, 3 + 10 * 8),  # it rises: as long again as the round is late by
        (timed(10), 40, 30 + 10 * 8),
        (timed(10, 300, 12), 0, 12 + 12 * 6),  # the median of 10, 12 and 300
        (timed(10, 20), 0, 15 + 15 * 7),
        (timed(*[900.0] * 3, *[8.0] * 5), 0, 8 + 8 * 1),
    ],
)
def test_the_eta_is_the_median_round_and_rises_while_a_round_stalls(
    rounds: tuple[RoundView, ...], taken: float, left: float
) -> None:
    run = run_view(round=len(rounds) + 1, rounds=10, round_at=ago(taken))
    assert eta(snapshot(run=run, rounds=rounds), run, NOW) == left


def test_the_eta_counts_fifteen_rounds_and_no_time_between_two() -> None:
    rounds = timed(*[100.0] * 16, *[10.0] * 8)  # of the last 15, eight took 10 s
    run = run_view(round=25, rounds=27, round_at=ago(0))
    assert eta(snapshot(run=run, rounds=rounds), run, NOW) == 10.0 * 3
    over = run_view(round=24, rounds=27, round_at=ago(500))
    assert eta(snapshot(run=over, rounds=rounds), over, NOW) == 10.0 * 3
    unknown = run_view(round=25, rounds=27)  # of a coordinator of an earlier version
    assert eta(snapshot(run=unknown, rounds=rounds), unknown, NOW) == 10.0 * 3
    assert eta(snapshot(run=run, rounds=()), run, NOW) is None


def test_a_pause_is_no_time_of_the_round() -> None:
    builder = SnapshotBuilder(Snapshot())

    def tell(second: float, kind: EventKind, **fields: object) -> RunView:
        builder.apply(Event(time=ago(100 - second), kind=kind, fields={"run": "r-1", **fields}))
        run = builder.snapshot().run
        assert run is not None
        return run

    tell(0, "run", status="running")
    assert tell(5, "round", round=2).round_at == ago(95)
    for second, status in ((6, "pausing"), (7, "running"), (8, "pausing"), (9, "paused")):
        assert tell(second, "run", status=status).round_at == ago(95)
    assert tell(60, "run", status="running").round_at == ago(40)
    assert tell(61, "run", status="running").round_at == ago(40)


THEN = "goes on without it in 38 s (deadline)"


@pytest.mark.parametrize(
    ("size", "line", "name", "text"),
    [
        ((120, 36), 2, "jetson-03", f"jetson-03 silent for 24 s; the round {THEN}"),
        ((80, 24), 0, "jetson-03", f"jetson-03 silent for 24 s; the round {THEN}"),
        ((80, 24), 0, "greenhouse-cam-03", f"greenhouse-cam-03 silent for 24 s; {THEN}"),
    ],
)
def test_the_round_says_why_it_is_slow(
    size: tuple[int, int], line: int, name: str, text: str
) -> None:
    views = (
        device_view(1, state="train", fraction=0.67, exchange="e-12"),
        device_view(3, device=name, state="silent", state_since=ago(24), exchange="e-12"),
    )
    run = run_view(accepted=8)
    shown = snapshot(run=run).model_copy(update={"devices": views})

    async def scenario(pilot: Pilot[None]) -> None:
        assert round_of(pilot)[1][line] == text

    drive(dashboard(fine(shown)), scenario, size)
