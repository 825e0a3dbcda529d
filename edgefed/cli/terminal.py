"""Whether a dashboard can be shown where a command was started."""

from __future__ import annotations

import sys


def require_terminal(hint: str) -> None:
    """Check that stdout and stderr are a terminal; the dashboard is drawn on stderr.

    Raises:
        UsageError: they are not.
    """
    from edgefed.errors import UsageError

    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        raise UsageError("The dashboard needs a terminal.", code="ui.terminal", hint=hint)
