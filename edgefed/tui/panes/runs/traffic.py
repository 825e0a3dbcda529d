"""Rounds: duration, the device that was slowest most often, and the bytes of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.text import Text

from edgefed.events.base.snapshot import RoundView, Snapshot
from edgefed.terminal.units import duration, size
from edgefed.tui.look.text_format import clean, cut_middle, sparks
from edgefed.tui.look.theme import GREEN, MUTED, SKY
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

_LATEST = 20
"""Rounds among which the slowest device is looked for."""


class TrafficPane(Pane):
    """Two lines of times, and totals of bytes; all totals on one line where there is no room.

    The numbers are from the coordinator's side; ▲ is towards it, as in the table of devices.
    """

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "Rounds"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the end of the first round."""
        if shown.snapshot and shown.snapshot.rounds:
            return ""
        return "Counted when the first round ends."

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the times and the bytes."""
        snapshot = shown.snapshot
        assert snapshot is not None  # without rounds the pane shows its empty face
        rounds = snapshot.rounds
        lines = [_times(rounds, width), _totals(snapshot)]
        if height > len(lines):
            lines[1:] = [_slowest(snapshot, width), *_bytes(snapshot), _each_round(rounds)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines[:height])


def _times(rounds: Sequence[RoundView], width: int) -> Text:
    """Return the duration of the last rounds, and their median."""
    median_text = f"  median {duration(median(row.seconds for row in rounds))}"
    room = max(1, width - len("time ") - len(median_text))
    past = sparks([row.seconds for row in rounds[-room:]])
    return Text.assemble(("time ", MUTED), (past, SKY), median_text)


def _slowest(snapshot: Snapshot, width: int) -> Text:
    """Return the device that was slowest in most of the last rounds, and its longest time."""
    latest = _latest_answers(snapshot)
    if not latest:
        return Text()
    counts = Counter(device for device, _ in latest)
    name = min(counts, key=lambda device: (-counts[device], device))
    longest = max(seconds for device, seconds in latest if device == name)
    detail = f" in {counts[name]} of {len(latest)}, {duration(longest)}"
    return Text.assemble(
        ("slowest ", MUTED), cut_middle(clean(name), max(3, width - 8 - len(detail))), detail
    )


def _latest_answers(snapshot: Snapshot) -> list[tuple[str, float]]:
    """Return for each of the last rounds whose answer took longest, late ones included."""
    rounds = snapshot.rounds[-_LATEST:]
    last = {row.round: (row.slowest_seconds, row.slowest) for row in rounds}
    for device in snapshot.devices:
        for reply in device.rounds if device.late else ():
            if reply.outcome == "late" and reply.round in last:
                last[reply.round] = max(last[reply.round], (reply.seconds, device.device))
    return [(device, seconds) for seconds, device in last.values() if device]


def _totals(snapshot: Snapshot) -> Text:
    sent, received = size(snapshot.sent), size(snapshot.received)
    return Text.assemble(("▼ ", SKY), f"{sent}  ", ("▲ ", GREEN), received)


def _bytes(snapshot: Snapshot) -> list[Text]:
    last = snapshot.rounds[-1]
    return [
        _total("▼ sent    ", snapshot.sent, last.sent, last.seconds, SKY),
        _total("▲ received", snapshot.received, last.received, last.seconds, GREEN),
    ]


def _total(word: str, total: int, count: int, seconds: float, colour: str) -> Text:
    line = Text.assemble((word, colour), f" {size(total):>9}")
    return line.append(f"  {size(count / seconds):>9}/s", MUTED) if seconds > 0 else line


def _each_round(rounds: Sequence[RoundView]) -> Text:
    sent = sum(row.sent for row in rounds) / len(rounds)
    received = sum(row.received for row in rounds) / len(rounds)
    return Text.assemble(("a round", MUTED), f" ▼ {size(sent)}  ▲ {size(received)}")
