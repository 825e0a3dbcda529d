"""The runs of this machine's state folder, for a dashboard without a coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefed.events.known_runs import RunDetails, RunRow


class StateFolderRuns:
    """Reads the runs again at each call.

    Args:
        state: the folder.
    """

    def __init__(self, state: Path) -> None:
        self._state = state

    def list_runs(self) -> Sequence[RunRow]:
        """Return every run, the newest first.

        Raises:
            StorageError: a database of runs cannot be read.
        """
        from edgefed.cli.local_runs import local_runs

        return [RunRow.model_validate(row) for row in local_runs(self._state)]

    def run_details(self, run: str) -> RunDetails:
        """Return a run with its settings and its rounds.

        Raises:
            UnknownNameError: no run, or several, have this name.
            StorageError: its database cannot be read.
        """
        from edgefed.cli.local_runs import local_run

        return RunDetails.model_validate(local_run(self._state, run))
