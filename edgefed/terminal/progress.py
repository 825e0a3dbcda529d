"""The receiver of progress reports of long preparations: the log, unless a program sets another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar

_log = logging.getLogger(__name__)

Tell = Callable[[str, int, int], None]
"""Takes an activity, such as "decoding images", and the steps done and in total."""


MANY = 100
"""Steps of a preparation that is logged; a shorter one is over at once."""


def log_progress(what: str, done: int, total: int) -> None:
    """Log the beginning, each tenth and the end of an activity with many steps."""
    if total < MANY:
        return
    if done == 0 or done * 10 // total > (done - 1) * 10 // total:
        _log.info("%s: %d of %d", what, done, total)


_tell: ContextVar[Tell] = ContextVar("_tell", default=log_progress)


def tell_progress(what: str, done: int, total: int) -> None:
    """Report the progress of a preparation; called for each step from 0 to ``total``."""
    _tell.get()(what, done, total)


def tell_progress_to(tell: Tell) -> None:
    """Send reports to another receiver than the log, from now on in this thread."""
    _tell.set(tell)
