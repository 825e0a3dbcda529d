"""An algorithm with label bounties, installed as a package: a double of the exchanges about them.

Each device has three bounties from the start. With each merged ``fit`` every open bounty gets one
mix, and is closed when it has all. The weights depend on the bounties that were open, so a run
whose orders were carried out at another exchange ends in other bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Roster
from edgefed.events.base.bounty_tables import bounty_view
from edgefed.events.base.method_tables import MethodTable
from edgefed.learn.base.types import Tensors
from edgefed.sharing.bounty_report import Bounty, BountyOrder, Budget
from tests.plugin_package import importable, write_package

COUNT, MIXES = 6, 2
LABELS = 3

WANTED = {"count": COUNT, "mix_share": 0.0, "noise": "none"}
"""A recipe's ``[labels]`` table with which orders are taken."""


class Lacking(FedAvg):
    """FedAvg with bounties in its state."""

    name = "lacking"
    summary = "FedAvg whose devices lack labels"
    paper = "none"

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        state = super().start(weights, roster, seed)
        rows = [Bounty(m.device, label, COUNT, MIXES) for m in roster for label in range(LABELS)]
        return _with(state, rows, 0)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        merged = super().merge(state, exchange, answers)
        rows, ordered = _bounties(state), state.params["ordered"]
        moved = np.float32(sum(1e-3 * k for k, row in enumerate(rows, 1) if row.status == "open"))
        weights = {name: array + moved for name, array in merged.groups["weights"].items()}
        merged = replace(merged, groups={**merged.groups, "weights": weights})
        return _with(merged, [_filled(row) for row in rows], ordered)

    def view(self, state: State) -> tuple[MethodTable, ...]:
        rows = _bounties(state)
        given: Counter[str] = Counter()
        for row in rows:
            given[row.device] += row.received
        budgets = [Budget(device, count, 100 - count, None) for device, count in given.items()]
        return bounty_view(rows, budgets)

    def with_bounty_orders(self, state: State, orders: Sequence[BountyOrder]) -> State:
        rows, ordered = _bounties(state), int(state.params["ordered"])
        for order in orders:
            if order.number > ordered:
                rows = [_ordered(row, order) for row in rows]
                ordered = order.number
        return _with(state, rows, ordered)


def _bounties(state: State) -> list[Bounty]:
    return [Bounty(**row) for row in state.params["bounties"]]


def _with(state: State, rows: Iterable[Bounty], ordered: int) -> State:
    params = {**state.params, "bounties": [row.to_json() for row in rows], "ordered": ordered}
    return replace(state, params=params)


def _filled(row: Bounty) -> Bounty:
    if row.status != "open":
        return row
    row = replace(row, offered=row.offered + 2, received=row.received + 1)
    if row.received < row.mixes:
        return row
    return replace(row, noise=row.count - row.received, status="closed")


def _ordered(row: Bounty, order: BountyOrder) -> Bounty:
    if order.device not in ("", row.device) or order.label not in (None, row.label):
        return row
    if order.action == "cancel" and row.status == "open":
        return replace(row, status="cancelled", noise=row.count - row.received)
    if order.action == "open" and row.received < row.mixes:
        return replace(row, status="open", noise=0)
    return row


@contextmanager
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the algorithm for this process and those that it starts."""
    write_package(site, "lacking", {"lacking": f"{__name__}:Lacking"})
    with importable(site, monkeypatch):
        yield
