"""Read the runs in this machine's state folder, simulations included, without a coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from edgefed.cli.run_folders import PLACES, found


def local_runs(state: Path) -> list[dict[str, Any]]:
    """Return the rows of all runs in the state folder, newest first.

    Raises:
        StorageError: a database of runs cannot be read.
    """
    from edgefed.coordinator.run_views import run_row
    from edgefed.coordinator.store import Store

    rows = []
    for folder in _stores(state):
        with closing(Store(folder)) as store:
            rows += [run_row(record) for record in store.runs()]
    return sorted(rows, key=lambda row: str(row["created"]), reverse=True)


def local_run(state: Path, name: str) -> dict[str, Any]:
    """Return one run of the state folder with all that is known of it.

    Args:
        state: the folder.
        name: an id or the beginning of one; empty for the newest.

    Raises:
        UnknownNameError: no run, or several, have this name.
        StorageError: its database cannot be read.
    """
    from edgefed.coordinator.run_views import whole_run
    from edgefed.coordinator.store import Store

    folder = found(state, name)
    with closing(Store(folder.parent.parent)) as store:
        return whole_run(store, folder.name)


def _stores(state: Path) -> Iterator[Path]:
    for place in PLACES:
        yield from sorted(file.parent for file in state.glob(f"{place}/edgefed.db"))
