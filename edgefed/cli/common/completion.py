"""Shell completion of ids of runs and devices, labels and algorithms.

A shell waits for it at each press of the tab key. Ids come from the coordinator if it answers at
once, otherwise from this machine's state folder; without either there are none, and no error.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from edgefed.cli.common.context import Globals
    from edgefed.control.coordinator_client import CoordinatorClient

Words = list[tuple[str, str]]
"""Words with their descriptions."""

_WORD = re.compile(r"[\w.+@-]+", re.ASCII)
"""Words that no shell splits; zsh evaluates completions, and names come from others."""


def runs(context: typer.Context) -> Words:
    """Complete the id of a run."""
    return _safe(_asked(context, lambda known: known.runs()))


def local_runs(context: typer.Context) -> Words:
    """Complete the id of a run on this machine."""
    return _safe(_asked(context, lambda known: known.local_runs()))


def devices(context: typer.Context) -> Words:
    """Complete the id of a device."""
    return _safe(_asked(context, lambda known: known.devices()))


def waiting_devices(context: typer.Context) -> Words:
    """Complete the name of a device that waits for approval."""
    return _devices(context, "pending")


def enrolled_devices(context: typer.Context) -> Words:
    """Complete the name of a device that is enrolled."""
    return _devices(context, "enrolled")


def enrolled_users(context: typer.Context) -> Words:
    """Complete a party of the fleet, as certificates name it."""
    rows = _asked(context, lambda known: known.members("enrolled"))
    people = ("operator", "viewer")
    return _safe((f"{role}.{name}" if role in people else name, role) for name, role in rows)


def _devices(context: typer.Context, state: str) -> Words:
    rows = _asked(context, lambda known: known.members(state))
    return _safe(row for row in rows if row[1] == "device")


def labels(context: typer.Context) -> Words:
    """Complete a label: its name, or its number if a shell would split the name."""
    names = _asked(context, lambda known: known.labels())
    return _safe(
        (name, number) if _WORD.fullmatch(name) else (number, name) for name, number in names
    )


def algorithms() -> Words:
    """Complete the name of an algorithm."""
    try:
        return _safe((name, "") for name in algorithm_names())
    except Exception:  # a shell has no place for an error
        return []


def _asked(context: typer.Context, ask: Callable[[KnownNames], Words]) -> Words:
    """Return the known words under the settings of this command line; none after an error."""
    try:
        from edgefed.cli.common.context import globals_of

        return ask(KnownNames(globals_of(context)))
    except Exception:  # a shell has no place for an error
        return []


def _safe(words: Iterable[tuple[str, str]]) -> Words:
    """Return the words that no shell takes apart, each with plain text."""
    return [
        (word, re.sub(r"[^\w .,%/+-]", " ", description))
        for word, description in words
        if _WORD.fullmatch(word)
    ]


_NAME = re.compile(r'^    name = "(\w+)"$', re.MULTILINE)


def algorithm_names() -> list[str]:
    """Return the names of the algorithms of this package and of installed ones, sorted."""
    from importlib.metadata import entry_points

    import edgefed.algorithms

    files = [file for folder in edgefed.algorithms.__path__ for file in Path(folder).rglob("*.py")]
    texts = (file.read_text(encoding="utf-8") for file in files if file.parent.name != "selection")
    own = {name for text in texts for name in _NAME.findall(text)}
    return sorted(own | {point.name for point in entry_points(group="edgefed.algorithms")})


PATIENCE = 1.0
"""Seconds for the coordinator's answer."""

READ_BYTES = 256 * 1024
"""Most bytes of an event log that are read for names."""


class KnownNames:
    """Names under the settings of a command line.

    Args:
        options: the common options that were typed.
    """

    def __init__(self, options: Globals) -> None:
        self._options = options

    def runs(self) -> Words:
        """Return the ids of runs, newest first, with status and algorithm."""
        rows = self._answer(lambda coordinator: coordinator.ask("run.list"))
        if rows is None:
            return self.local_runs()
        return [(run["run"], f"{run['status']} {run['algorithm']}") for run in rows]

    def local_runs(self) -> Words:
        """Return the ids of the runs in the state folder, newest first."""
        return [(folder.name, folder.parent.parent.name) for folder in self._folders()]

    def devices(self) -> Words:
        """Return the ids of devices with their state."""
        answer = self._answer(lambda coordinator: coordinator.ask("snapshot"))
        if answer is not None:
            return [(device["device"], device["state"]) for device in answer["snapshot"]["devices"]]
        events = self._newest_events()
        return [(name, "") for name in sorted(set(_named_devices(events)))]

    def members(self, state: str) -> Words:
        """Return the parties in a state with their roles; only the coordinator knows them."""
        rows = self._answer(lambda coordinator: coordinator.ask("member.list")) or []
        return [(row["name"], row["role"]) for row in rows if row["state"] == state]

    def labels(self) -> Words:
        """Return the names of the classes of the current or last run, each with its number."""
        answer = self._answer(lambda coordinator: coordinator.ask("snapshot"))
        if answer is None:
            names = _class_names(self._newest_events())
        else:
            run = answer["snapshot"]["run"]
            names = run["class_names"] if run else []
        return [(name, str(number)) for number, name in enumerate(names)]

    def _answer(self, ask: Callable[[CoordinatorClient], Any]) -> Any:
        """Return the coordinator's answer; None if it does not answer within ``PATIENCE``."""
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
        from edgefed.cli.common.run_folders import PLACES

        state = self._options.settings().value.state
        folders = {path for place in PLACES for path in state.glob(f"{place}/runs/r-*")}
        return sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)

    def _newest_events(self) -> str:
        from edgefed.report.run_data import EVENTS

        for folder in self._folders():
            with (folder / EVENTS).open("rb") as file:
                return file.read(READ_BYTES).decode(errors="replace")
        return ""


def _named_devices(events: str) -> Iterator[str]:
    """Yield the devices that events name."""
    yield from re.findall(r'"device": "([^"]+)"', events)
    for listed in re.findall(r'"kind": "roster", "devices": (\[[^\]]*\])', events):
        yield from json.loads(listed)


def _class_names(events: str) -> list[str]:
    """Return the names of the classes of the run that events are about."""
    match = re.search(r'"class_names": (\["[^\]]*\])', events)
    return list(json.loads(match[1])) if match else []
