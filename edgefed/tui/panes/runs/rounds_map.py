"""The map of rounds by devices: the outcome of each device in the last rounds, and its time."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from edgefed.events.base.device_rounds import MAX_DEVICE_ROUNDS
from edgefed.events.base.snapshot import DeviceOutcome, DeviceRoundView, DeviceSnapshot
from edgefed.terminal.units import duration
from edgefed.tui.look.symbols import DEVICE_LOOKS, OUTCOME_LOOKS
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

_IDS = (6, 14, 24)
"""Least width of an id, the largest in 80 columns, and the largest."""

_WIDE = 100
"""Cells from which ids get more room."""

_STATE, _MEAN = 2, 8
"""Cells of the symbol of the state before an id, and of the mean time after it."""

_SHADES = "░▒▓█"
_NAMED: tuple[DeviceOutcome, ...] = ("late", "lost", "refused")
"""Outcomes that the last line explains; the symbols of the others are like these."""

_TICK = 10
"""Rounds between two numbers above the map."""


@dataclass(frozen=True)
class Track:
    """A device with its rounds by number."""

    view: DeviceSnapshot
    rounds: Mapping[int, DeviceRoundView]

    @property
    def mean(self) -> float:
        """Mean seconds of its replies, 0 without any."""
        times = [reply.seconds for reply in self.rounds.values() if reply.seconds > 0]
        return sum(times) / len(times) if times else 0.0

    @property
    def missed(self) -> int:
        """Rounds that it was asked in without being accepted."""
        return sum(reply.outcome != "accepted" for reply in self.rounds.values())


class RoundsMap(Pane):
    """Rows are devices, the slowest first; columns are the last rounds of the run."""

    leads = True

    first = 0
    """The row at the top."""

    def heading(self, shown: Shown) -> str:
        """Return the meaning of rows, columns and cells."""
        return "Rounds by devices  slowest first"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first reply."""
        missing = super().nothing(shown)
        return missing or ("" if _count(shown) else "Drawn when the first device has answered.")

    def footing(self, shown: Shown) -> str:
        """Return the range of rows on the screen, if not all fit."""
        count, room = _count(shown), max(1, self.size.height - 2)
        if super().footing(shown) or count <= room:
            return super().footing(shown)
        first = min(self.first, count - room)
        down, up = (shown.keys.label(f"table.{way}") for way in ("down", "up"))
        return f"{first + 1} to {first + room} of {count} devices  {down} {up} scroll"

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the numbers of rounds, a row for each device, and a legend."""
        rows = tracks(shown)
        room = max(1, height - 2)
        self.first = max(0, min(self.first, len(rows) - room))
        longest = max(len(track.view.device) for track in rows)
        ids = min(_IDS[2 if width >= _WIDE else 1], max(_IDS[0], longest))
        columns = max(1, min(MAX_DEVICE_ROUNDS, width - _STATE - ids - 1 - _MEAN))
        newest = max(max(track.rounds) for track in rows)
        numbers = range(max(1, newest - columns + 1), newest + 1)
        limits = shade_limits(rows, numbers)
        lines = [_ruler(numbers, _STATE + ids + 1)]
        lines += [_row(track, numbers, ids, limits) for track in rows[self.first :][:room]]
        lines.append(_legend(limits, width))
        for line in lines:
            line.truncate(max(1, width), overflow="ellipsis")
        return Text("\n", no_wrap=True).join(lines)

    def scroll_rows(self, rows: int) -> None:
        """Move the first row by so many."""
        self.first = max(0, self.first + rows)
        if self.shown is not None:
            self.show(self.shown)


def _count(shown: Shown) -> int:
    """Return how many devices have rounds in this run."""
    return sum(bool(view.rounds) for view in (shown.snapshot.devices if shown.snapshot else ()))


def tracks(shown: Shown) -> list[Track]:
    """Return the devices that have rounds in this run, the slowest first."""
    devices = shown.snapshot.devices if shown.snapshot else ()
    known = [
        Track(view, {reply.round: reply for reply in view.rounds})
        for view in devices
        if view.rounds
    ]
    return sorted(known, key=lambda track: (-track.mean, -track.missed, track.view.device))


def shade_limits(rows: Sequence[Track], numbers: range) -> list[float]:
    """Return the longest time of each shade: the quartiles of the accepted replies in some rounds.

    Equal numbers of cells have each shade, so that one very slow reply leaves the others apart.
    Other replies are drawn by their outcome.
    """
    times = sorted(
        reply.seconds
        for track in rows
        for reply in track.rounds.values()
        if reply.outcome == "accepted" and reply.round in numbers
    )
    steps = range(1, len(_SHADES) + 1)
    return [times[math.ceil(len(times) * step / len(_SHADES)) - 1] for step in steps if times]


def _ruler(numbers: range, before: int) -> Text:
    """Return the numbers of some rounds, each above its column."""
    line = " " * before
    for number in numbers:
        at = before + number - numbers.start
        if number % _TICK == 0 and len(line) <= at - len(str(number)) + 1:
            line = f"{line:<{at + 1 - len(str(number))}}{number}"
    line = f"{line:<{before + len(numbers)}}"
    return Text(f"{line}{'mean':>{_MEAN}}", MUTED)


def _row(track: Track, numbers: range, ids: int, limits: Sequence[float]) -> Text:
    look = DEVICE_LOOKS[track.view.state]
    lost = track.view.state == "lost"
    name = f"{cut_middle(clean(track.view.device), ids):<{ids}} "
    line = Text.assemble((f"{look.symbol} ", look.colour), (name, MUTED if lost else ""))
    for number in numbers:
        line.append(*_cell(track.rounds.get(number), limits))
    mean = duration(track.mean, 1) if track.mean else "—"
    return line.append(f"{mean:>{_MEAN}}", "" if track.mean else MUTED)


def _cell(reply: DeviceRoundView | None, limits: Sequence[float]) -> tuple[str, str]:
    """Return character and colour of a device in a round."""
    if reply is None:
        return "·", MUTED
    if reply.outcome != "accepted":
        look = OUTCOME_LOOKS[reply.outcome]
        return look.symbol, look.colour
    return _shade(bisect_left(limits[:-1], reply.seconds))


def _shade(place: int) -> tuple[str, str]:
    """Return character and colour of a shade."""
    return _SHADES[place], ORANGE if place == len(_SHADES) - 1 else SKY


def _legend(limits: Sequence[float], width: int) -> Text:
    """Return the meaning of the cells; where it does not fit, that of the shades alone.

    A shade with the limit of the one before it is in no cell.
    """
    shades = Text(no_wrap=True)
    for place, limit in enumerate(limits):
        if not place or limit > limits[place - 1]:
            shades.append(" " if place else "up to ", MUTED).append(*_shade(place))
            shades.append(f" {duration(limit)}", MUTED)
    outcomes = Text(no_wrap=True)
    for word in _NAMED:
        look = OUTCOME_LOOKS[word]
        outcomes.append(look.symbol, look.colour).append(f" {word}  ", MUTED)
    outcomes.append("· not asked", MUTED)
    if not limits:
        return outcomes
    whole = shades + Text("  ") + outcomes
    return whole if whole.cell_len <= width else shades
