"""Optional packages of trackers, imported when a tracker starts."""

from __future__ import annotations

from typing import Any

from edgefed.files import optional


def wanted(module: str, tracker: str) -> Any:
    """Return a module that a tracker works with.

    Raises:
        UsageError: its package is not installed.
    """
    return optional.wanted(module, tracker, code="tracker.missing")
