"""Traffic: bytes sent and received, in total and by round."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.snapshot import RoundView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.pane import Pane
from edgefed.tui.text_format import sparks
from edgefed.tui.theme import GREEN, MUTED, SKY
from edgefed.units import size

_NAMED = 32
"""Cells from which the arrows have words beside them."""


class TrafficPane(Pane):
    """Totals of the run with the rate of the last round; spark lines where there is room.

    The numbers are from the coordinator's side; ▲ is towards it, as in the table of devices.
    """

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "Bytes"

    def nothing(self, shown: Shown) -> str:
        """Return what to wait for before the first round ended."""
        if shown.snapshot and shown.snapshot.rounds:
            return ""
        return "Counted when the first round ends."

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return totals, spark lines and the mean of a round."""
        snapshot = shown.snapshot
        rounds = snapshot.rounds if snapshot else ()
        sent, received = (snapshot.sent, snapshot.received) if snapshot else (0, 0)
        out, back = ("▼ sent    ", "▲ received") if width >= _NAMED else ("▼", "▲")
        lines = [
            _total(out, sent, rounds, [row.sent for row in rounds], SKY),
            Text(sparks([row.sent for row in rounds[-width:]]), SKY),
            _total(back, received, rounds, [row.received for row in rounds], GREEN),
            Text(sparks([row.received for row in rounds[-width:]]), GREEN),
            _each_round(rounds),
        ]
        if height < len(lines):
            lines = [lines[0], lines[2]]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _total(
    word: str, total: int, rounds: Sequence[RoundView], counts: Sequence[int], colour: str
) -> Text:
    line = Text.assemble((word, colour), f" {size(total):>9}")
    seconds = rounds[-1].seconds
    return line.append(f"  {size(counts[-1] / seconds):>9}/s", MUTED) if seconds > 0 else line


def _each_round(rounds: Sequence[RoundView]) -> Text:
    sent, received = (sum(counts) / len(rounds) for counts in _counts(rounds))
    return Text.assemble(("a round", MUTED), f" ▼ {size(sent)}  ▲ {size(received)}")


def _counts(rounds: Sequence[RoundView]) -> tuple[list[int], list[int]]:
    return [row.sent for row in rounds], [row.received for row in rounds]
