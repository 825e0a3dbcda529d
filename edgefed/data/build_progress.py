"""Who is told how far a long preparation of data is: the log, unless a program says otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_log = logging.getLogger(__name__)

Tell = Callable[[str, int, int], None]
"""Takes what is done, such as "decoding images", and how much of how much."""


def _to_log(what: str, done: int, total: int) -> None:
    """Log the beginning, each tenth and the end."""
    if done == 0 or done * 10 // total > (done - 1) * 10 // total:
        _log.info("%s: %d of %d", what, done, total)


_tell: ContextVar[Tell] = ContextVar("_tell", default=_to_log)


def tell_progress(what: str, done: int, total: int) -> None:
    """Tell how far a preparation is; called for each step from 0 to ``total``."""
    _tell.get()(what, done, total)


@contextmanager
def progress_told_to(tell: Tell) -> Iterator[None]:
    """Tell somebody else than the log inside a ``with`` block."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)
