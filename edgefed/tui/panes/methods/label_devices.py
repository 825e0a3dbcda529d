"""Labels by device, before and after supplements, and the privacy budgets of mixes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from rich.text import Text

from edgefed.events.base.bounty_tables import BudgetView
from edgefed.events.methods.label_skew import Counts, LabelSkew, label_skew, largest_share
from edgefed.tui.look.text_format import binned, clean, cut_middle, sparks
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.state.display_state import Shown

_IDS = (6, 12, 20)
"""Least width of an id, the largest in 80 columns, and the largest."""

_BINS = 10
_LABELS = _BINS + 6
"""Cells of a histogram, and of one with the share of the most frequent label."""

_LEFT = 8
"""Cells of the rest of a budget: ``no limit``."""

_WIDE = 84
"""Width in cells from which a row has the rest of epsilon."""

_SKEWED = 0.5
"""Share of the most frequent label from which it is marked."""


class LabelDevicesPane(RowsPane[tuple[str, LabelSkew]]):
    """A row for each device: its labels, its released mixes, and their privacy cost."""

    _skews: Mapping[str, LabelSkew] = {}

    @property
    def _supplemented(self) -> bool:
        """Whether any device has supplements."""
        return any(any(skew.supplements) for skew in self._skews.values())

    def show(self, shown: Shown) -> None:
        """Take a new drawing."""
        self._skews = label_skew(shown.snapshot) if shown.snapshot else {}
        super().show(shown)

    def heading(self, shown: Shown) -> str:
        """Return the share of a device's most frequent label, the mean over devices."""
        before = _mean_share(skew.before for skew in self._skews.values())
        after = _mean_share(skew.after for skew in self._skews.values())
        name = "Labels and budgets by device"
        if not before:
            return name
        labels = f"{before} before, {after} after" if self._supplemented else before
        return f"{name}  most frequent label {labels}"

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run or no device."""
        return super().nothing(shown) or ("" if self._skews else "No device has joined yet.")

    def noun(self) -> str:
        """Return the noun for the items."""
        return "devices"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the columns."""
        line = f"{'DEVICE':<{self._ids(width)}} {'BEFORE':<{_LABELS}}  {'AFTER':<{_LABELS}}"
        line += f" {'RELEASED':>8} {'LEFT':>{_LEFT}} {'EPSILON':>9}"
        return Text(f"{line} {'EPSILON LEFT':>12}" if width >= _WIDE else line, MUTED)

    def items(self, shown: Shown) -> list[tuple[str, LabelSkew]]:
        """Return the devices with their labels."""
        return list(self._skews.items())

    def rows(self, shown: Shown, width: int, items: Sequence[tuple[str, LabelSkew]]) -> list[Text]:
        """Return a row for each device."""
        budgets = (
            {budget.device: budget for budget in shown.snapshot.budgets} if shown.snapshot else {}
        )
        ids = self._ids(width)
        return [
            Text(f"{cut_middle(clean(device), ids):<{ids}} ")
            .append_text(_labels(skew.before))
            .append("  ")
            .append_text(_labels(skew.after if any(skew.supplements) else None, same=True))
            .append_text(_budget(budgets.get(device), width >= _WIDE))
            for device, skew in items
        ]

    def _ids(self, width: int) -> int:
        return min(
            _IDS[2 if width >= _WIDE else 1], max(_IDS[0], max(map(len, self._skews), default=0))
        )


def _mean_share(every: Iterable[Counts | None]) -> str:
    shares = [share for share in map(largest_share, every) if share is not None]
    return f"{fmean(shares) * 100:.0f} %" if shares else ""


def _labels(counts: Counts | None, *, same: bool = False) -> Text:
    """Return a histogram with the share of the most frequent label.

    Args:
        counts: samples by label; None where they are not known.
        same: whether counts that are None are as before.
    """
    share = largest_share(counts)
    if counts is None or share is None:
        return Text(f"{'·' if same else 'not shared':<{_LABELS}}", MUTED)
    bars = sparks(binned(counts, _BINS))
    marked = ORANGE if share >= _SKEWED else ""
    return Text(f"{bars:<{_BINS}}", SKY).append(f"{share * 100:>4.0f} %", marked or "none")


def _budget(budget: BudgetView | None, wide: bool) -> Text:
    if budget is None:
        return Text(f" {'·':>8}", MUTED)
    left = "none" if not budget.shares else _limit(budget.mixes_left, "d")
    spent = "unbounded" if budget.epsilon is None else f"{budget.epsilon:.4g}"
    line = Text(f" {budget.released:>8} ")
    line.append(f"{left:>{_LEFT}}", ORANGE if left in ("none", "0") else "")
    line.append(f" {spent:>9}")
    if wide:
        spare = budget.epsilon_left
        empty = spare is not None and spare <= 0
        line.append(f" {_limit(spare, '.4g'):>12}", ORANGE if empty else "")
    return line


def _limit(value: float | None, form: str) -> str:
    return "no limit" if value is None else f"{value:{form}}"
