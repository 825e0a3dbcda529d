"""Note that a run has failed: in its row, in the announcements, and as an event."""

from __future__ import annotations

import logging
from dataclasses import replace

from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.journal.announcements import Announcements
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import EdgeFedError, StorageError

log = logging.getLogger(__name__)


def note_failure(
    store: Store,
    announcements: Announcements,
    relays: RelayedBlobs,
    journal: EventJournal,
    run: str,
    error: EdgeFedError,
    ended: str,
) -> None:
    """Note that a run has failed; on a full disk only its row is lost.

    Args:
        store: has the run's row.
        announcements: notify the devices.
        relays: deletes the blobs that are no longer needed.
        journal: notifies the watchers.
        run: its id.
        error: why.
        ended: UTC time of the failure.
    """
    known_round: dict[str, int] = {}
    try:
        # The current row: an older count of exchanges would give an index away twice.
        known = store.run(run)
        failed = replace(
            known,
            status="failed",
            round=known.finished_rounds,
            reason=error.message,
            error=error.code,
            hint=error.hint,
            ended=ended,
        )
        try:
            store.save_run(failed)
        except StorageError as problem:
            log.warning("the end of run %s was not written: %s", run, problem.message)
            store.show_unwritten(failed)
        announcements.record(failed)
        relays.sync(store.relays())
        known_round = {"round": failed.round}
    except StorageError as problem:
        log.warning("the row of run %s cannot be read: %s", run, problem.message)
        announcements.change(run_status="failed")
    journal.emit("run", run=run, status="failed", reason=error.message, **known_round)
