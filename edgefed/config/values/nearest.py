"""Suggest the known name that is closest to a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name nearest to ``name``, or nothing if none is near."""
    by_folded = {_fold(one): one for one in known}
    matches = get_close_matches(_fold(name), by_folded, n=1, cutoff=0.7)
    return by_folded[matches[0]] if matches else ""


def did_you_mean(near: str) -> str:
    """Return the end of a message about an unknown name."""
    return f'; did you mean "{near}"?' if near else ""


def _fold(name: str) -> str:
    """Return the name with characters made equal that people confuse."""
    return name.lower().replace("-", "_")
