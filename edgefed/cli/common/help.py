"""The format of every command's help: one imperative line, when to use it, examples."""

from __future__ import annotations


def examples(*commands: str) -> str:
    """Return an epilog that shows each command on a line of its own."""
    # Typer joins the lines between two blank lines into one.
    return "\n\n".join(["Examples:", *commands])
