"""The ledger of a device's releases: an append-only table in the agent's database, and its report.

Rows are grouped in pages, so that a commit computes the digest of one page only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.loading.load import Loaded
from edgefed.config.values.layers import DEFAULT
from edgefed.database.database import Database, DatabaseTable
from edgefed.sharing.bounty_report import Budget
from edgefed.sharing.mix_accounting import in_words, is_vacuous
from edgefed.sharing.policy import Policy
from edgefed.sharing.releases import budget, is_mixes, is_update, mixes_in, update_releases
from edgefed.sharing.update_accounting import epsilon_of
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.algorithms.interface.device_side import LedgerEntry

PAGE = 256
"""Rows of a page."""

LEDGER_TABLE = DatabaseTable(
    {
        "id": "integer not null",
        "page": "text not null",
        "time": "text not null",
        "run": "text not null",
        "exchange": "text not null",
        "entry": "text not null",
    },
    ("id",),
    group="page",
)


@dataclass(frozen=True)
class LedgerRow:
    """A row of the ledger.

    Attributes:
        id: counts from 1.
        time: of the commit, as ``timestamp`` writes it.
        run, exchange: of the reply that it was committed with; empty for the release of a birth.
        entry: of the algorithm.
    """

    id: int
    time: str
    run: str
    exchange: str
    entry: LedgerEntry

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "id": self.id,
            "time": self.time,
            "run": self.run,
            "exchange": self.exchange,
            "entry": dict(self.entry),
        }


class Ledger:
    """The ledger of one database, read once and then kept in memory.

    Args:
        database: has a table ``ledger`` like ``LEDGER_TABLE``.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._releases: tuple[LedgerRow, ...] | None = None

    def releases(self) -> tuple[LedgerRow, ...]:
        """Return all rows, oldest first.

        Raises:
            StorageError: one is damaged or missing.
        """
        if self._releases is None:
            loaded: list[LedgerRow] = []
            page = 0
            while rows := self._database.rows("ledger", str(page)):
                loaded.extend(_release(*row) for row in rows)
                page += 1
            self._releases = tuple(loaded)
        return self._releases

    def next_releases(
        self, entries: Sequence[LedgerEntry], time: str, run: str = "", exchange: str = ""
    ) -> tuple[LedgerRow, ...]:
        """Return the rows of entries; nothing is written."""
        first = len(self.releases()) + 1
        return tuple(
            LedgerRow(number, time, run, exchange, entry)
            for number, entry in enumerate(entries, first)
        )

    def append_once(self, entry: LedgerEntry, time: str) -> None:
        """Write the row of a release without a reply, unless there is one like it.

        Raises:
            StorageError: the disk is full; nothing is written.
        """
        if any(not release.exchange and release.entry == entry for release in self.releases()):
            return
        releases = self.next_releases((entry,), time)
        with self._database.transaction():
            self.put(releases)
        self.committed(releases)

    def put(self, releases: Sequence[LedgerRow]) -> None:
        """Write rows; within a transaction, after which ``committed`` is called."""
        for release in releases:
            page, entry = str((release.id - 1) // PAGE), json.dumps(dict(release.entry))
            row = (release.id, page, release.time, release.run, release.exchange, entry)
            self._database.put("ledger", *row)

    def committed(self, releases: Sequence[LedgerRow]) -> None:
        """Note that rows are on disk."""
        self._releases = (*self.releases(), *releases)


def _release(*row: object) -> LedgerRow:
    number, _, time, run, exchange, entry = row
    return LedgerRow(int(str(number)), str(time), str(run), str(exchange), json.loads(str(entry)))


_HEAD = (
    *("ID", "TIME", "RUN", "ROUND", "KIND", "RECORDS", "NOISE", "EPSILON", "FORMAL"),
    *("RECEIVER", "MIXES", "DETAILS"),
)
_SHOWN = ("round", "kind", "records", "noise_scale", "epsilon", "formal", "receiver")
"""The fields of an entry that have a column."""


def owner_decided(loaded: Loaded[AgentSettings]) -> bool:
    """Whether any setting about mixes was written, and is not a default."""
    keys = ("share_mixes", "share_labels", "mix_limit", "mix_epsilon")
    return any(loaded.origin(key) != DEFAULT for key in keys)


def as_rows(releases: Sequence[LedgerRow]) -> list[tuple[str, ...]]:
    """Return the table of releases, oldest first, with its head."""
    return [_HEAD, *(_row(release) for release in releases)]


def as_json(device: str, policy: Policy, releases: Sequence[LedgerRow]) -> dict[str, Any]:
    """Return the releases and the totals as JSON values."""
    spent = budget(device, policy, [release.entry for release in releases])
    totals = {
        "mixes": spent.released,
        "mixes_left": spent.mixes_left,
        "epsilon": spent.epsilon,
        "epsilon_left": spent.epsilon_left,
        "formal": "none" if spent.epsilon is None else "epsilon",
        "vacuous": is_vacuous(spent.epsilon),
        "in_words": in_words(spent.epsilon),
        **_updates(policy, releases),
        "others": dict(_others(releases)),
    }
    return {"releases": [release.as_json() for release in releases], "totals": totals}


def totals_as_rows(
    device: str, policy: Policy, releases: Sequence[LedgerRow]
) -> list[tuple[str, str]]:
    """Return the total cost of mixes, the remaining budget and its meaning, as lines."""
    spent = budget(device, policy, [release.entry for release in releases])
    rows = [
        ("mixes released", str(spent.released)),
        ("mixes left", _mixes_left(spent, policy)),
        ("epsilon of mixes", _text(spent.epsilon)),
        ("epsilon left", _epsilon_left(spent, policy)),
    ]
    if spent.released:
        rows.append(("in words", in_words(spent.epsilon)))
    rows += _update_rows(policy, releases)
    others = _others(releases)
    if others:
        kinds = ", ".join(f"{kind} {count}" for kind, count in others.items())
        total = counted(others.total(), "other release")
        rows.append(("not included", f"{total} ({kinds}); no finite epsilon bounds them"))
    return rows


def _row(release: LedgerRow) -> tuple[str, ...]:
    entry = release.entry
    shown = [_text(entry[name]) if name in entry else "-" for name in _SHOWN]
    mixes = str(mixes_in(entry)) if is_mixes(entry) else "-"
    rest = {name: value for name, value in entry.items() if name not in _SHOWN}
    run = release.run or "-"
    return (str(release.id), release.time, run, *shown, mixes, json.dumps(rest))


def _text(value: object) -> str:
    """Return one value for a column; a plug-in may have put anything there."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if value is None:
        return "null"
    word = isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value
    return value if isinstance(value, str) and word and value else json.dumps(value)


def _others(releases: Sequence[LedgerRow]) -> Counter[str]:
    """Return how many releases are neither mixes nor noisy updates, by kind."""
    entries = (release.entry for release in releases)
    return Counter(_kind(entry) for entry in entries if not (is_mixes(entry) or is_update(entry)))


def _updates(policy: Policy, releases: Sequence[LedgerRow]) -> dict[str, Any]:
    """Return how many noisy updates left the device, and their epsilon together at the δ."""
    kinds = update_releases([release.entry for release in releases])
    return {
        "updates": sum(kind.count for kind in kinds),
        "update_epsilon": epsilon_of(kinds, policy.update_delta),
        "update_epsilon_limit": policy.update_epsilon,
        "update_delta": policy.update_delta,
    }


def _update_rows(policy: Policy, releases: Sequence[LedgerRow]) -> list[tuple[str, str]]:
    """Return the cost of noisy updates, as lines; none without updates and limit."""
    updates = _updates(policy, releases)
    if not updates["updates"] and policy.update_epsilon is None:
        return []
    limit = "no limit" if policy.update_epsilon is None else f"limit {policy.update_epsilon:.4g}"
    cost = f"{updates['update_epsilon']:.4g} at delta {policy.update_delta:.4g}, {limit}"
    return [("updates released", str(updates["updates"])), ("epsilon of updates", cost)]


def _kind(entry: Mapping[str, Any]) -> str:
    return _text(entry["kind"]) if "kind" in entry else "other"


def _mixes_left(spent: Budget, policy: Policy) -> str:
    if not policy.share_mixes:
        return "0 (share_mixes = false)"
    if not policy.share_labels:
        return "0 (share_labels = false)"
    return "no limit" if spent.mixes_left is None else f"{spent.mixes_left} of {policy.mix_limit}"


def _epsilon_left(spent: Budget, policy: Policy) -> str:
    if spent.epsilon_left is None:
        return "no limit"
    return f"{spent.epsilon_left:.4g} of {policy.mix_epsilon:.4g}"
