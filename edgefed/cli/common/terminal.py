"""Whether a dashboard can be shown in this terminal, and the page of a browser if not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from edgefed.errors import EdgeFedError


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


@contextmanager
def failure_shown_in_browser() -> Iterator[None]:
    """Show an error of the block on the page of a browser's dashboard, and end with its exit code.

    Elsewhere, the error is raised.
    """
    try:
        yield
    except EdgeFedError as error:
        if not is_in_browser():
            raise
        from edgefed.tui.failure_app import FailureApp

        FailureApp(error).run()
        raise typer.Exit(error.exit_code) from error
