"""A run's label bounties: carry out the operator's orders, and emit the changes."""

from __future__ import annotations

import logging
from typing import Any

from edgefed.algorithms.base import State
from edgefed.algorithms.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.registry import make
from edgefed.config.recipe import Recipe
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.run_records import Checkpoint, RunRecord
from edgefed.coordinator.store import Store
from edgefed.errors import EdgeFedError
from edgefed.events.bounty_events import label_events
from edgefed.sharing.bounty_report import BountyReport

log = logging.getLogger(__name__)


class LabelBounties:
    """Carries out the engine's part of one run's label bounties.

    Args:
        run: its id.
        algorithm: keeps the bounties in its state.
        store: has the operator's orders.
        journal: receives the changes.
    """

    def __init__(
        self, run: str, algorithm: CompleteAlgorithm[Any], store: Store, journal: EventJournal
    ) -> None:
        self._run = run
        self._algorithm = algorithm
        self._store = store
        self._journal = journal
        self._told = BountyReport()

    def ordered(self, state: State) -> tuple[State, int]:
        """Return the state after all orders so far, and their number; emit the changes.

        An order changes a state once, however often it is carried out.
        """
        orders = self._store.bounty_orders(self._run)
        if orders:
            state = self._algorithm.with_bounty_orders(state, orders)
            self.tell(state)
        return state, len(orders)

    def tell(self, state: State) -> None:
        """Emit the changes since the last report; the first time, everything."""
        report = self._algorithm.bounty_report(state)
        for fields in label_events(self._run, self._told, report):
            self._journal.emit("labels", **fields)
        self._told = report


def planned_state(
    algorithm: CompleteAlgorithm[Any], store: Store, run: str, checkpoint: Checkpoint
) -> tuple[State, int]:
    """Return the state that the open exchange was planned from, and the number of its orders.

    Orders are committed with the answers to the next exchange. After a restart, the answers are
    therefore merged into the same state as without one, regardless of later orders.
    """
    number = max((opened.bounty_orders for opened in checkpoint.open), default=0)
    orders = store.bounty_orders(run)[:number]
    if not orders:
        return checkpoint.state, number
    return algorithm.with_bounty_orders(checkpoint.state, orders), number


def saved_report(store: Store, record: RunRecord) -> BountyReport:
    """Return the report of a run's label bounties from disk; an empty one if it cannot be read."""
    try:
        recipe = Recipe.model_validate_json(record.recipe)
        checkpoint = store.checkpoint(record.run) if recipe.labels.wanted else None
        if checkpoint is None:
            return BountyReport()
        algorithm = make(recipe)
        state, _ = planned_state(algorithm, store, record.run, checkpoint)
        return algorithm.bounty_report(state)
    except (EdgeFedError, ValueError) as error:
        log.warning("the label bounties of run %s cannot be read: %s", record.run, error)
        return BountyReport()
