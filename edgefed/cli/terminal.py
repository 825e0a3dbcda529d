"""Whether a dashboard can be shown where a command was started."""

from __future__ import annotations

import os
import sys


def require_terminal(hint: str) -> None:
    """Check that stdout and stderr are a terminal; the dashboard is drawn on stderr.

    Raises:
        UsageError: they are not, and no browser shows it either.
    """
    from edgefed.errors import UsageError

    if is_in_browser():
        return
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("The dashboard needs a terminal.", code="ui.terminal", hint=hint)


def is_in_browser() -> bool:
    """Whether textual-serve started this process to draw in a browser."""
    return os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver")
