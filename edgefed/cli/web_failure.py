"""Show in a browser why a dashboard does not start, since its stderr is not visible there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from edgefed.cli.terminal import is_in_browser
from edgefed.errors import EdgeFedError


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
