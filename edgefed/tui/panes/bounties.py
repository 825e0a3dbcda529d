"""The label bounties of a run: the devices that lack labels, and the progress of each request."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.bounty_events import totals, totals_in_words
from edgefed.events.class_names import name_of
from edgefed.events.snapshot import BountyView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.rows import RowsPane
from edgefed.tui.symbols import BOUNTY_LOOKS
from edgefed.tui.text_format import bar, clean, cut, cut_middle
from edgefed.tui.theme import MUTED, ORANGE, RULE, SKY

NO_BOUNTIES = (
    "This run has no label bounties: start one with\nedgefed run start --set labels.supplement=0.1"
)

_IDS, _LABELS = (6, 12, 20), (5, 10, 16)
"""Least width, largest one in 80 columns, and largest one of a device and of a label."""

_BAR = 6
_WIDE = 90
"""Cells from which ids and labels get more room."""

_ORDER = ("open", "cancelled", "closed")


class BountiesPane(RowsPane[BountyView]):
    """A row for each bounty, the open ones first, those without offers before all."""

    leads = True

    def heading(self, shown: Shown) -> str:
        """Return the number of bounties of each status."""
        found = _bounties(shown)
        return f"Label bounties  {totals_in_words(totals(found))}" if found else "Label bounties"

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or which kinds of run have bounties."""
        return super().nothing(shown) or ("" if _bounties(shown) else NO_BOUNTIES)

    def noun(self) -> str:
        """Return the noun for the items."""
        return "bounties"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the columns."""
        ids, labels = self._widths(shown, width)
        numbers = f"{'WANT':>5} {'MIXES':>7} {'NOISE':>5} {'OFFERED':>7}"
        line = f"{'DEVICE':<{ids}} {'LABEL':<{labels}} {numbers} {'FILLED':<{_BAR + 6}} STATUS"
        return Text(line, MUTED)

    def items(self, shown: Shown) -> list[BountyView]:
        """Return the bounties, the open ones first."""
        return sorted(_bounties(shown), key=_open_first)

    def rows(self, shown: Shown, width: int, items: Sequence[BountyView]) -> list[Text]:
        """Return a row for each bounty."""
        ids, labels = self._widths(shown, width)
        names = shown.run.class_names if shown.run else ()
        return [_row(each, name_of(each.label, names), ids, labels) for each in items]

    def _widths(self, shown: Shown, width: int) -> tuple[int, int]:
        found, names = _bounties(shown), shown.run.class_names if shown.run else ()
        ids = max((len(each.device) for each in found), default=0)
        labels = max((len(name_of(each.label, names)) for each in found), default=0)
        most = 2 if width >= _WIDE else 1
        return min(_IDS[most], max(_IDS[0], ids)), min(_LABELS[most], max(_LABELS[0], labels))


def filled(bounty: BountyView) -> float:
    """Return the share of a supplement that has arrived."""
    return (bounty.received + bounty.noise) / bounty.count if bounty.count else 1.0


def _bounties(shown: Shown) -> tuple[BountyView, ...]:
    return shown.snapshot.bounties if shown.snapshot else ()


def _open_first(bounty: BountyView) -> tuple[int, bool, str, int]:
    return _ORDER.index(bounty.status), bounty.offered > 0, bounty.device, bounty.label


def _row(bounty: BountyView, name: str, ids: int, labels: int) -> Text:
    waits = bounty.status == "open" and not bounty.offered
    look = BOUNTY_LOOKS[bounty.status]
    full, empty = bar(filled(bounty), _BAR)
    line = Text(f"{cut_middle(clean(bounty.device), ids):<{ids}} ")
    line.append(f"{cut(clean(name), labels):<{labels}} {bounty.count:>5} ")
    line.append(f"{f'{bounty.received}/{bounty.mixes}':>7} {bounty.noise or '·':>5} ")
    line.append(f"{bounty.offered:>7} ", ORANGE if waits else "")
    line.append(full, SKY).append(empty, RULE).append(f"{filled(bounty) * 100:>4.0f} % ")
    return line.append(f"{look.symbol} {bounty.status}", look.colour)
