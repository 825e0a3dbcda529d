"""Read the runs in this machine's state folder, simulations included, without a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefed.cli.common.run_folders import PLACES, found, is_folder, typed_folder
from edgefed.simulator.work_folder import SIMULATIONS

if TYPE_CHECKING:
    from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
    from edgefed.coordinator.storage.run_store import Store
    from edgefed.coordinator.storage.stored_runs import RunRecord


DATABASE = "edgefed.db"
"""Of a coordinator or of simulations, beside the folder of its runs."""


def local_runs(state: Path) -> list[dict[str, Any]]:
    """Return the rows of all runs in the state folder, newest first.

    Raises:
        StorageError: a database of runs cannot be read.
    """
    from edgefed.coordinator.process.run_views import run_row
    from edgefed.coordinator.storage.run_store import Store

    rows = []
    for folder in _stores(state):
        with closing(Store(folder)) as store:
            rows += [run_row(as_left(record, store)) for record in store.runs()]
    return sorted(rows, key=lambda row: str(row["created"]), reverse=True)


def local_run(state: Path, name: str) -> dict[str, Any]:
    """Return one run of the state folder, or of another one, with all that is known of it.

    Args:
        state: the folder.
        name: an id or the beginning of one, or a run's folder; empty for the newest.

    Raises:
        UnknownNameError: no run, or several, have this name.
        StorageError: its database cannot be read.
    """
    from edgefed.coordinator.process.run_views import run_row, whole_run
    from edgefed.coordinator.storage.run_store import Store
    from edgefed.errors import UnknownNameError

    folder = typed_folder(name) if is_folder(name) else found(state, name)
    if not (folder.parent.parent / DATABASE).is_file():
        raise UnknownNameError(
            f"No database of runs knows {folder}.",
            code="run.unknown",
            hint=f"read its files: edgefed run report {folder}",
        )
    with closing(Store(folder.parent.parent)) as store:
        whole = whole_run(store, folder.name)
        return {**whole, **run_row(as_left(store.run(folder.name), store))}


def recorded_order(state: Path, name: str) -> tuple[RunRecord, RecordedOrder]:
    """Return a run with buffered rounds, and the order in which it asked and merged.

    Raises:
        UnknownNameError: no run, or several, have this name.
        NotAllowedError: ``order.run``: its rounds were not buffered, or none has ended.
    """
    from edgefed.coordinator.exchanges.recorded_order import RecordedOrder
    from edgefed.coordinator.storage.run_store import Store
    from edgefed.errors import NotAllowedError

    folder = found(state, name)
    with closing(Store(folder.parent.parent)) as store:
        record = store.run(folder.name)
        order = RecordedOrder.of(store.rounds(record.run, details=True))
    if not order.answered:
        raise NotAllowedError(
            f"Run {record.run} has no recorded order.",
            code="order.run",
            hint='only runs with rounds.mode = "buffered" have one, once a round has ended',
        )
    return record, order


def delete_local(state: Path, name: str) -> str:
    """Delete an ended run of the state folder and return its id.

    Args:
        state: the folder.
        name: an id or the beginning of one.

    Raises:
        UnknownNameError: no run, or several, have this name.
        NotAllowedError: it has not ended, or a coordinator uses its folder.
        StorageError: its folder or its database cannot be written.
    """
    from edgefed.coordinator.storage.run_store import Store
    from edgefed.process.lock import FolderLock

    folder = found(state, name)
    place = folder.parent.parent
    is_simulation = place.name == SIMULATIONS
    with ExitStack() as opened:
        if not is_simulation:
            opened.callback(FolderLock(place, "edgefed run delete").release)
        store = opened.enter_context(closing(Store(place, durable=not is_simulation)))
        store.delete_run(as_left(store.run(folder.name), store))
    return folder.name


def as_left(record: RunRecord, store: Store) -> RunRecord:
    """Return a run's row; the status of a killed simulation shows that, since it cannot resume."""
    from edgefed.events.base.model import UNFINISHED
    from edgefed.simulator.work_folder import is_at_work

    folder = store.run_folder(record.run)
    of_simulation = folder.parent.parent.name == SIMULATIONS
    if record.status not in UNFINISHED or not of_simulation or is_at_work(folder):
        return record
    return replace(record, status="aborted", reason="its process was killed", error="interrupted")


def _stores(state: Path) -> Iterator[Path]:
    for place in PLACES:
        yield from sorted(file.parent for file in state.glob(f"{place}/{DATABASE}"))
