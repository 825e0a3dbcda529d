"""Who is told how far a long preparation is: the log, unless a program says otherwise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar

_log = logging.getLogger(__name__)

Tell = Callable[[str, int, int], None]
"""Takes what is done, such as "decoding images", and how much of how much."""


MANY = 100
"""Steps of a preparation that is logged; a shorter one is over at once."""


def log_progress(what: str, done: int, total: int) -> None:
    """Log the beginning, each tenth and the end of what takes many steps."""
    if total < MANY:
        return
    if done == 0 or done * 10 // total > (done - 1) * 10 // total:
        _log.info("%s: %d of %d", what, done, total)


_tell: ContextVar[Tell] = ContextVar("_tell", default=log_progress)


def tell_progress(what: str, done: int, total: int) -> None:
    """Tell how far a preparation is; called for each step from 0 to ``total``."""
    _tell.get()(what, done, total)


def tell_progress_to(tell: Tell) -> None:
    """Tell somebody else than the log, from now on in this thread."""
    _tell.set(tell)
