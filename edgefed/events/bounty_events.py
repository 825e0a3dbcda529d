"""Events about label bounties and mix budgets: changes in small parts, and their fold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

from edgefed.events.event_parts import event_parts
from edgefed.events.snapshot import BountyView, BudgetView
from edgefed.sharing.bounty_report import Bounty, BountyReport, BountyStatus

STATUSES: tuple[BountyStatus, ...] = get_args(BountyStatus)

_LISTS = ("bounties", "budgets", "removed")

NO_BOUNTIES = {"open_bounties": 0, "received_mixes": 0, "noise_samples": 0}
"""The fields of a device without bounties."""


def label_events(run: str, before: BountyReport, after: BountyReport) -> Iterator[dict[str, Any]]:
    """Yield the fields of the ``labels`` events that turn one report into another.

    The last one has the number of bounties of each status, ``totals``, if any bounty changed.
    """
    rows = list(_changes(before, after))
    of_bounties = any(kind != "budgets" for kind, _ in rows)
    parts = list(event_parts(rows, _LISTS))
    for number, part in enumerate(parts, 1):
        fields: dict[str, Any] = {"run": run, **part}
        if of_bounties and number == len(parts):
            fields["totals"] = totals(after.bounties)
        yield fields


def totals(bounties: Iterable[Bounty | BountyView]) -> dict[str, int]:
    """Return how many bounties there are of each status."""
    counts = Counter(bounty.status for bounty in bounties)
    return {status: counts[status] for status in STATUSES}


def _changes(before: BountyReport, after: BountyReport) -> Iterator[tuple[str, Any]]:
    known = {(bounty.device, bounty.label): bounty for bounty in before.bounties}
    for bounty in after.bounties:
        if known.pop((bounty.device, bounty.label), None) != bounty:
            yield "bounties", bounty.to_json()
    for device, label in known:
        yield "removed", [device, label]
    earlier = {budget.device: budget for budget in before.budgets}
    for budget in after.budgets:
        if earlier.get(budget.device) != budget:
            yield "budgets", budget.to_json()


@dataclass(frozen=True)
class LabelChange:
    """The change in a ``labels`` event."""

    bounties: tuple[BountyView, ...]
    budgets: tuple[BudgetView, ...]
    removed: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> LabelChange:
        """Return the change in an event's fields.

        Raises:
            KeyError, TypeError, ValueError: a field is missing or wrong.
        """
        return cls(
            tuple(BountyView.model_validate(row) for row in fields["bounties"]),
            tuple(BudgetView.model_validate(row) for row in fields["budgets"]),
            tuple((str(device), int(label)) for device, label in fields["removed"]),
        )


class LabelTable:
    """The bounties and budgets of the current run; a change takes time for its rows only.

    Args:
        bounties, budgets: those before the first event.
    """

    def __init__(self, bounties: Iterable[BountyView], budgets: Iterable[BudgetView]) -> None:
        self._bounties: dict[str, dict[int, BountyView]] = {}
        self._budgets: dict[str, BudgetView] = {}
        self._sorted: tuple[tuple[BountyView, ...], tuple[BudgetView, ...]] | None = None
        self.apply(LabelChange(tuple(bounties), tuple(budgets), ()))

    def apply(self, change: LabelChange) -> set[str]:
        """Apply a change and return the ids of devices whose bounties changed."""
        for bounty in change.bounties:
            self._bounties.setdefault(bounty.device, {})[bounty.label] = bounty
        for device, label in change.removed:
            self._bounties.get(device, {}).pop(label, None)
        self._budgets.update((budget.device, budget) for budget in change.budgets)
        self._sorted = None
        return {row.device for row in change.bounties} | {device for device, _ in change.removed}

    def clear(self) -> None:
        """Forget all rows, because another run begins."""
        self._bounties, self._budgets, self._sorted = {}, {}, None

    def rows(self) -> tuple[tuple[BountyView, ...], tuple[BudgetView, ...]]:
        """Return the bounties sorted by device and label, and the budgets sorted by device."""
        if self._sorted is None:
            each = chain.from_iterable(rows.values() for rows in self._bounties.values())
            bounties = tuple(sorted(each, key=lambda row: (row.device, row.label)))
            self._sorted = (bounties, tuple(self._budgets[name] for name in sorted(self._budgets)))
        return self._sorted

    def of_device(self, device: str) -> dict[str, int]:
        """Return the fields of a ``DeviceView`` about a device's bounties."""
        found = self._bounties.get(device)
        if not found:
            return NO_BOUNTIES
        return {
            "open_bounties": sum(row.status == "open" for row in found.values()),
            "received_mixes": sum(row.received for row in found.values()),
            "noise_samples": sum(row.noise for row in found.values()),
        }


def totals_in_words(counts: Mapping[str, int]) -> str:
    """Return numbers of bounties by status, such as ``12 open, 3 closed``."""
    told = [f"{counts[status]} {status}" for status in STATUSES if counts.get(status)]
    return ", ".join(told) or "none"
