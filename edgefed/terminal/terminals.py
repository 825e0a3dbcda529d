"""Properties of a stream: whether it is a terminal, moves its cursor, and shows colours."""

from __future__ import annotations

import os
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Whether this stream is a terminal, and not a file or a pipe."""
    return not stream.closed and stream.isatty()


def can_redraw(stream: TextIO) -> bool:
    """Whether text written to this stream can be overwritten; a dumb terminal cannot."""
    return is_terminal(stream) and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def can_colour(stream: TextIO) -> bool:
    """Whether this stream shows colours, and they are not disabled (https://no-color.org)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def without_colour() -> None:
    """Use no colours in this process and in those that it starts."""
    os.environ["NO_COLOR"] = "1"
