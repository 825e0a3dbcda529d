"""A run named by the beginning of its id: the one that matches, or which ones do."""

from __future__ import annotations

from collections.abc import Sequence

from edgefed.errors import UnknownNameError

MOST_NAMED = 5
"""Matches that an error names before it only counts."""


def only_match(name: str, runs: Sequence[str], where: str = "") -> str:
    """Return the run of an id, or of an unambiguous beginning of one.

    Args:
        name: the text that the user typed.
        runs: the ids of all runs, the newest first.
        where: the folder that was searched; empty for the coordinator's own.

    Raises:
        UnknownNameError: none or several match.
    """
    matches = list(dict.fromkeys(run for run in runs if run.startswith(name)))
    if name in matches or len(matches) == 1:
        return name if name in matches else matches[0]
    place = f" in {where}" if where else ""
    if not matches:
        raise UnknownNameError(
            f"No run {name}{place}.",
            code="run.unknown",
            hint=f"edgefed run list{where and ' --local'}",
        )
    more = f" and {len(matches) - MOST_NAMED} more" if len(matches) > MOST_NAMED else ""
    named = ", ".join(matches[:MOST_NAMED])
    raise UnknownNameError(
        f"'{name}' is the beginning of {len(matches)} runs{place}: {named}{more}.",
        code="run.unknown",
        hint="give more of the id",
    )
