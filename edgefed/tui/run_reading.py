"""Read past runs for a screen, which lives on whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgefed.errors import EdgeFedError

T = TypeVar("T")


def read_or_problem(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return what ``read`` returns and nothing, or None and what is wrong, in a line or two."""
    try:
        return read(), ""
    except EdgeFedError as error:
        return None, f"{error.message}\n{error.hint}".rstrip()
    except Exception as error:
        return None, f"The runs cannot be read: {type(error).__name__}: {error}"
