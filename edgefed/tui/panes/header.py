"""The top line: fleet, run, state, broker, devices online, time."""

from __future__ import annotations

from statistics import mean

from rich.text import Text

from edgefed.events.snapshot import RunView, Snapshot
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.pane import Pane
from edgefed.tui.symbols import RUN_LOOKS
from edgefed.tui.text_format import clean, cut, wall_time
from edgefed.tui.theme import GREEN, MUTED, RULE, SKY, VERMILLION
from edgefed.units import clock_time

WIDE = 100
"""Columns from which the header names the fleet and shows seconds."""

_DIVIDER = (" │ ", RULE)
_ROUNDS_FOR_ETA = 5


class Header(Pane):
    """One line; the names of fleet and run give way first when it gets too long."""

    def heading(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: the line says what is missing itself."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the line for this width."""
        wide = width >= WIDE
        parts = [_state(shown, wide), _devices(shown, wide), _time(shown, wide)]
        left = width - 2 - sum(part.cell_len + len(_DIVIDER[0]) for part in parts)
        line = Text(" ", no_wrap=True, overflow="ellipsis")
        line.append_text(_names(shown, left, wide))
        for part in parts[:-1]:
            line.append(*_DIVIDER).append_text(part)
        gap = width - 1 - line.cell_len - len(_DIVIDER[0]) - parts[-1].cell_len
        return line.append(" " * max(0, gap)).append(*_DIVIDER).append_text(parts[-1])


def _names(shown: Shown, width: int, wide: bool) -> Text:
    fleet = clean(shown.snapshot.fleet) if shown.snapshot else ""
    run = clean(_run_name(shown.run, wide))
    if not wide:
        return Text(cut(run or fleet or "EdgeFed", width), "bold")
    head = f"EdgeFed  {fleet}".rstrip()
    if len(head) + len(_DIVIDER[0]) + len(run) > width:
        head = "EdgeFed"
    if run and len(head) + len(_DIVIDER[0]) + len(shown.run.run if shown.run else "") > width:
        return Text(cut(run, width), "bold")
    names = Text(head, f"bold {SKY}")
    if run:
        room = max(0, width - len(head) - len(_DIVIDER[0]))
        names.append(*_DIVIDER).append(cut(run, room), "bold")
    return names


def _run_name(run: RunView | None, wide: bool) -> str:
    if run is None:
        return ""
    parts = (run.run, run.algorithm, run.model) if wide else (run.run, run.algorithm)
    return " ".join(part for part in parts if part)


def _epsilon(snapshot: Snapshot | None) -> str:
    """Return what the run's rounds cost in differential privacy; nothing without."""
    last = snapshot.rounds[-1] if snapshot and snapshot.rounds else None
    return "" if last is None or last.epsilon is None else f"ε {last.epsilon:.3g}"


def _state(shown: Shown, wide: bool) -> Text:
    run = shown.run
    if run is None:
        return Text("starting" if shown.starting else "no run", MUTED)
    look = RUN_LOOKS[run.status]
    state = Text.assemble((f"{look.symbol} {run.status.upper()}", f"bold {look.colour}"))
    state.append(f"  round {run.round}/{run.rounds}" if wide else f" {run.round}/{run.rounds}")
    if wide and (spent := _epsilon(shown.snapshot)):
        state.append(f"  {spent}")
    left = eta(shown.snapshot, run) if shown.snapshot and run.status == "running" else None
    if left is not None:
        state.append("  ETA ", MUTED).append(clock_time(left) if wide else clock_time(left)[:5])
    return state


def eta(snapshot: Snapshot, run: RunView) -> float | None:
    """Return seconds until the last round, from the mean of the latest ones; None before one."""
    rounds = snapshot.rounds[-_ROUNDS_FOR_ETA:]
    if not rounds or run.rounds <= rounds[-1].round:
        return None
    return mean(row.seconds for row in rounds) * (run.rounds - rounds[-1].round)


def _devices(shown: Shown, wide: bool) -> Text:
    latest = shown.latest
    mark, colour = ("✓", GREEN) if latest.broker else ("✗", VERMILLION)
    line = Text.assemble("broker ", (mark, colour))
    devices = shown.snapshot.devices if shown.snapshot else ()
    online = sum(device.state != "lost" for device in devices)
    return line.append(
        f"  devices {online}/{len(devices)}" if wide else f"  {online}/{len(devices)}"
    )


def _time(shown: Shown, wide: bool) -> Text:
    return Text(wall_time(shown.clock, shown.zone, seconds=wide))
