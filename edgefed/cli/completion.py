"""Shell completion of ids of runs and devices, labels and algorithms.

A shell waits for it at each press of the tab key. Ids come from the coordinator if it answers at
once, otherwise from this machine's state folder; without either there are none, and no error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from edgefed.cli.known_names import KnownNames

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
    from edgefed.cli.algorithm_names import algorithm_names

    try:
        return _safe((name, "") for name in algorithm_names())
    except Exception:  # a shell has no place for an error
        return []


def _asked(context: typer.Context, ask: Callable[[KnownNames], Words]) -> Words:
    """Return the known words under the settings of this command line; none after an error."""
    try:
        from edgefed.cli.context import globals_of
        from edgefed.cli.known_names import KnownNames

        return ask(KnownNames(globals_of(context)))
    except Exception:  # a shell has no place for an error
        return []


def _safe(words: Iterable[tuple[str, str]]) -> Words:
    """Return the words that no shell takes apart, each with plain text."""
    return [
        (word, re.sub(r"[^\w .,%/+-]", " ", told)) for word, told in words if _WORD.fullmatch(word)
    ]
