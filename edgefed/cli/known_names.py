"""The runs, devices and labels that the coordinator tells within a second, or the state folder."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefed.cli.run_folders import PLACES

if TYPE_CHECKING:
    from edgefed.cli.context import Globals
    from edgefed.control.coordinator_client import CoordinatorClient

PATIENCE = 1.0
"""Seconds for the coordinator's answer."""

READ_BYTES = 256 * 1024
"""Most bytes of an event log that are read for names."""

Words = list[tuple[str, str]]


class KnownNames:
    """Names under the settings of a command line.

    Args:
        options: the common options that were typed.
    """

    def __init__(self, options: Globals) -> None:
        self._options = options

    def runs(self) -> Words:
        """Return the ids of runs, newest first, with status and algorithm."""
        found = self._told(lambda coordinator: coordinator.ask("run.list"))
        if found is None:
            return self.local_runs()
        return [(run["run"], f"{run['status']} {run['algorithm']}") for run in found]

    def local_runs(self) -> Words:
        """Return the ids of the runs in the state folder, newest first."""
        return [(folder.name, folder.parent.parent.name) for folder in self._folders()]

    def devices(self) -> Words:
        """Return the ids of devices with their state."""
        found = self._told(lambda coordinator: coordinator.ask("snapshot"))
        if found is not None:
            return [(each["device"], each["state"]) for each in found["snapshot"]["devices"]]
        events = self._newest_events()
        return [(name, "") for name in sorted(set(_devices(events)))]

    def members(self, state: str) -> Words:
        """Return the parties in a state with their roles; only the coordinator knows them."""
        found = self._told(lambda coordinator: coordinator.ask("member.list")) or []
        return [(row["name"], row["role"]) for row in found if row["state"] == state]

    def labels(self) -> Words:
        """Return the names of the classes of the current or last run, each with its number."""
        found = self._told(lambda coordinator: coordinator.ask("snapshot"))
        if found is None:
            names = _class_names(self._newest_events())
        else:
            run = found["snapshot"]["run"]
            names = run["class_names"] if run else []
        return [(name, str(number)) for number, name in enumerate(names)]

    def _told(self, ask: Callable[[CoordinatorClient], Any]) -> Any:
        """Return what the coordinator answers; None if it does not within ``PATIENCE``."""
        answers: list[Any] = []

        def work() -> None:
            try:
                with self._options.connected() as coordinator:
                    answers.append(ask(coordinator))
            except Exception:  # whatever it is, the state folder is asked next
                return

        # Nobody waits for this thread at the end of the process.
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(PATIENCE)
        return answers[0] if answers else None

    def _folders(self) -> list[Path]:
        """Return the folders of this machine's runs, newest first."""
        state = self._options.settings().value.state
        found = {path for place in PLACES for path in state.glob(f"{place}/runs/r-*")}
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)

    def _newest_events(self) -> str:
        from edgefed.report.run_data import EVENTS

        for folder in self._folders():
            with (folder / EVENTS).open("rb") as file:
                return file.read(READ_BYTES).decode(errors="replace")
        return ""


def _devices(events: str) -> Iterator[str]:
    """Yield the devices that events name."""
    yield from re.findall(r'"device": "([^"]+)"', events)
    for listed in re.findall(r'"kind": "roster", "devices": (\[[^\]]*\])', events):
        yield from json.loads(listed)


def _class_names(events: str) -> list[str]:
    """Return the names of the classes of the run that events are about."""
    found = re.search(r'"class_names": (\["[^\]]*\])', events)
    return list(json.loads(found[1])) if found else []
