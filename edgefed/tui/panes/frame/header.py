"""The top line: fleet, run, state, broker and coordinator or replay, devices online, time."""

from __future__ import annotations

import math
from datetime import datetime
from statistics import median

from rich.text import Text

from edgefed.events.base.snapshot import RunView, Snapshot
from edgefed.events.state.awaited_devices import passed
from edgefed.terminal.units import duration
from edgefed.tui.look.symbols import RUN_LOOKS
from edgefed.tui.look.text_format import clean, cut_middle, wall_time
from edgefed.tui.look.theme import GREEN, MUTED, PURPLE, RULE, SKY, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.key_orders import ENDED
from edgefed.tui.state.replay import ReplayPosition, speed_in_words

WIDE = 100
"""Columns from which the header has words beside numbers and shows seconds."""

_DIVIDER = (" │ ", RULE)
_ROUNDS_FOR_ETA = 15
_LONGEST_NAME = 24
"""Characters of a run's name."""


class HeaderPane(Pane):
    """One line; when it gets narrow, the program's name is dropped first.

    The time and the number of devices are dropped next, and at last the run's id is cut. State and
    ETA stay.
    """

    def heading(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: the line itself shows missing parts."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the line for this width."""
        wide = width >= WIDE
        names = _names(shown)
        whole = _parts(shown, wide)
        forms = [(name, whole) for name in names]
        forms += [(names[-1], _parts(shown, False, dropped)) for dropped in (0, 1, 2)]
        fitting = (form for form in forms if _length(*form) <= width)
        name, parts = next(fitting, forms[-1])
        if _length(name, parts) > width:
            room = len(name.plain) - _length(name, parts) + width
            name = Text(cut_middle(names[-1].plain, max(3, room)), "bold")
        line = Text(" ", no_wrap=True, overflow="ellipsis").append_text(name)
        for part in parts[:-1]:
            line.append(*_DIVIDER).append_text(part)
        gap = width - 1 - line.cell_len - len(_DIVIDER[0]) - parts[-1].cell_len
        return line.append(" " * max(0, gap)).append(*_DIVIDER).append_text(parts[-1])


def _length(name: Text, parts: list[Text]) -> int:
    return 2 + name.cell_len + sum(part.cell_len + len(_DIVIDER[0]) for part in parts)


def _parts(shown: Shown, wide: bool, dropped: int = 0) -> list[Text]:
    """Return the parts after the names, without the first ``dropped`` of time and devices."""
    links = _links(shown) if shown.replay is None else _replay(shown.replay, wide)
    parts = [_state(shown, wide), links]
    if dropped < 2:
        parts.append(_devices(shown, wide))
    return parts if dropped else [*parts, _time(shown, wide)]


def _names(shown: Shown) -> list[Text]:
    """Return fleet and run, from the longest form to the shortest one."""
    fleet = clean(shown.snapshot.fleet) if shown.snapshot else ""
    if shown.run is None:
        short = fleet or "EdgeFed"
        return [Text(f"EdgeFed  {fleet}".rstrip(), f"bold {SKY}"), Text(short, f"bold {SKY}")]
    run = shown.run
    named = cut_middle(clean(run.name), _LONGEST_NAME)
    words = [
        word for word in (clean(run.run), named, clean(run.algorithm), clean(run.model)) if word
    ]
    heads = (f"EdgeFed  {fleet}".rstrip(), fleet) if fleet else ("EdgeFed",)
    forms = [_name(head, words) for head in heads]
    forms += [_name(fleet, words[:most]) for most in (3, 2, 1) if fleet]
    return [*forms, _name("", words[:2]), _name("", words[:1])]


def _name(head: str, words: list[str]) -> Text:
    name = Text(head, f"bold {SKY}")
    if head:
        name.append(*_DIVIDER)
    return name.append(" ".join(words), "bold")


def _epsilon(snapshot: Snapshot | None) -> str:
    """Return the privacy cost of the run's rounds; nothing without differential privacy."""
    last = snapshot.rounds[-1] if snapshot and snapshot.rounds else None
    if snapshot is None or last is None or last.epsilon is None:
        return ""
    restored = snapshot.run is not None and snapshot.run.restored
    return f"ε {'≥ ' if restored else ''}{last.epsilon:.3g}"


def _state(shown: Shown, wide: bool) -> Text:
    run = shown.run
    if shown.snapshot is None and not shown.starting:
        return Text("run ?", MUTED)
    if run is None:
        starting = shown.starting and shown.replay is None
        return Text("starting" if starting else "no run", MUTED)
    look, old = RUN_LOOKS[run.status], shown.cut_off and run.status not in ENDED
    state = Text(f"{look.symbol} {run.status.upper()}", MUTED if old else f"bold {look.colour}")
    state.append(f"  round {run.round}/{run.rounds}" if wide else f" {run.round}/{run.rounds}")
    if wide and (spent := _epsilon(shown.snapshot)):
        state.append(f"  {spent}")
    if old:  # nobody knows whether it still is so
        return state.append(f" as of {shown.as_of if wide else shown.as_of[:5]}", MUTED)
    live = run.status == "running" and shown.replay is None
    left = eta(shown.snapshot, run, shown.now) if shown.snapshot and live else None
    if left is not None:
        shown_left = duration(max(1, math.ceil(left)), 2 if wide else 1)
        state.append("  ETA ", MUTED).append(shown_left)
    return state


def eta(snapshot: Snapshot, run: RunView, now: datetime) -> float | None:
    """Return seconds until the end of the last round; None before a finished one.

    A round takes the median of the last 15 finished ones. The open round takes the rest of that.
    Once it has taken longer, it is expected to take as long again as it is late by, so that the
    result rises while the round stalls.
    """
    rounds = snapshot.rounds[-_ROUNDS_FOR_ETA:]
    if not rounds or run.rounds <= rounds[-1].round:
        return None
    usual = median(row.seconds for row in rounds)
    is_open = run.round > rounds[-1].round
    taken = (passed(run.round_at, now) or 0.0) if is_open else 0.0
    return abs(usual - taken) + usual * (run.rounds - rounds[-1].round - 1)


def _links(shown: Shown) -> Text:
    """Return whether broker and coordinator are there, as far as that is known.

    Without a broker nobody knows whether the coordinator is there. Before the first snapshot or
    problem nothing is known.
    """
    latest, unknown = shown.latest, Text("?", MUTED)
    silent = shown.snapshot is None and not shown.broken
    line = Text("broker ").append_text(unknown if silent else _mark(latest.broker))
    there = unknown if silent or not latest.broker else _mark(latest.coordinator)
    return line.append(" coord ").append_text(there)


def _replay(position: ReplayPosition, wide: bool) -> Text:
    """Return that this is a replay, its speed, and how far it is."""
    doing = "▶ " if position.playing else ""
    line = Text(f"{doing}REPLAY", f"bold {PURPLE}")
    if not position.playing:
        line.append(" over" if position.over else " paused")
    line.append(f" {speed_in_words(position.speed)}")
    of = " of " if wide else "/"
    return line.append(f"  {'event ' if wide else ''}{position.done}{of}{position.total}")


def _mark(there: bool) -> Text:
    return Text("✓", GREEN) if there else Text("✗", VERMILLION)


def _devices(shown: Shown, wide: bool) -> Text:
    if shown.snapshot is None:
        return Text("devices ?", MUTED)
    devices = shown.snapshot.devices
    online = sum(device.state not in ("lost", "silent") for device in devices)
    return Text(f"devices {online}/{len(devices)}" if wide else f"{online}/{len(devices)}")


def _time(shown: Shown, wide: bool) -> Text:
    return Text(wall_time(shown.clock, shown.zone, seconds=wide))
