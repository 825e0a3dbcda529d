"""The last lines of the agent's log, kept in memory for operators' requests."""

from __future__ import annotations

import logging
import threading
from collections import deque

from edgefed.terminal.logs import OWN, line_formatter
from edgefed.terminal.printable import printable
from edgefed.wire.limits import MAX_LOG_BYTES, MAX_LOG_LINE

KEPT_LINES = 500
"""Lines that are kept."""


class LogRing(logging.Handler):
    """Keeps the newest lines of the log; safe from any thread.

    Lines are numbered from 1. Debugging records (``--verbose``) are left out: they are for a user
    of the device.

    Args:
        size: lines that are kept.
    """

    def __init__(self, size: int = KEPT_LINES) -> None:
        super().__init__(logging.INFO)
        self.setFormatter(line_formatter())
        self._guard = threading.Lock()
        self._lines: deque[str] = deque(maxlen=size)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record: a line, and one for each line of a traceback."""
        if record.levelno < logging.WARNING and record.name.partition(".")[0] not in OWN:
            return
        try:
            lines = self.format(record).splitlines()
        except Exception:  # a wrong record must not end the thread that logs it
            self.handleError(record)
            return
        with self._guard:
            self._lines.extend(printable(line)[:MAX_LOG_LINE] for line in lines)
            self._count += len(lines)

    def newest(self, most: int) -> tuple[int, tuple[str, ...]]:
        """Return the number of the first line, and at most so many of the newest lines."""
        with self._guard:
            chosen = _fitting(list(self._lines)[::-1][:most])[::-1]
            return self._count - len(chosen) + 1, tuple(chosen)

    def after(self, number: int, most: int) -> tuple[int, tuple[str, ...]]:
        """Return the oldest lines after one that is known, and the number of the first of them."""
        with self._guard:
            kept_from = self._count - len(self._lines) + 1
            first = max(kept_from, min(number, self._count) + 1)
            chosen = _fitting(list(self._lines)[first - kept_from :][:most])
            return first, tuple(chosen)


def keep_log() -> LogRing:
    """Return a ring that gets all log records from now on."""
    ring = LogRing()
    logging.getLogger().addHandler(ring)
    return ring


def _fitting(lines: list[str]) -> list[str]:
    """Return as many of the first lines as fit into a message."""
    room = MAX_LOG_BYTES
    for index, line in enumerate(lines):
        room -= len(line.encode())
        if room < 0:
            return lines[:index]
    return lines
