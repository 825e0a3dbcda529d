"""Receive one blob: accept its chunks, request missing ones, and give up after several attempts.

A small state machine without threads, sockets or clocks: its owner passes chunks and the time, and
sends the requests that it returns.

- ``broadcast`` mode: the first request says "I hold none of it", and all chunks follow; after 1 to
  2 s without a chunk, the receiver changes to
- ``pull`` mode: the receiver requests one window of missing chunks at a time, and the next one as
  soon as it is complete; an incomplete window is requested again after 5 s, then 10 s, and so on,
  six times.
"""

from __future__ import annotations

import random
from typing import Literal

from edgefed.wire.chunk_staging import Staging
from edgefed.wire.limits import WINDOW_REQUEST
from edgefed.wire.messages import Need

IDLE = 1.0
RETRY = 5.0
MAX_RETRIES = 6


class Receiver:
    """The reception of one blob.

    Args:
        staging: takes its chunks; may hold some from a previous process.
        mode: ``broadcast`` or ``pull``.
        jitter: random numbers that spread the requests of a fleet.
    """

    def __init__(
        self, staging: Staging, mode: Literal["broadcast", "pull"], jitter: random.Random
    ) -> None:
        self.staging = staging
        self._mode = mode
        self._jitter = jitter
        self._retries = 0
        self._asked: set[int] = set()
        self._due = 0.0

    @property
    def due(self) -> float:
        """Monotonic second of the next call of ``ask``."""
        return self._due

    @property
    def failed(self) -> bool:
        """Whether every retry went unanswered."""
        return self._retries > MAX_RETRIES

    def begin(self, now: float) -> Need:
        """Return the first request."""
        if self._mode == "broadcast" and self.staging.received == 0:
            self._due = now + IDLE * (1 + self._jitter.random())
            return Need(digest=self.staging.digest, first=True)
        return self._pull(now)

    def reconnected(self, now: float) -> Need:
        """Return the request to make after the connection was lost: nothing asked for counts."""
        self._retries = 0
        return self.begin(now)

    def take(self, number: int, data: bytes, now: float) -> Need | None:
        """Write a chunk and return the next request, if it is time for one."""
        self.staging.write(number, data)
        self._retries = 0
        self._asked.discard(number)
        if self.staging.complete:
            return None
        if self._mode == "pull" and not self._asked:
            return self._pull(now)
        self._due = now + (
            IDLE * (1 + self._jitter.random()) if self._mode == "broadcast" else RETRY
        )
        return None

    def ask(self, now: float) -> Need | None:
        """Return the request to make at ``due``, or None when there is nothing left to try."""
        if self._mode == "pull" and self._asked:
            self._retries += 1
        if self.failed:
            return None
        return self._pull(now)

    def _pull(self, now: float) -> Need:
        self._mode = "pull"
        missing = self.staging.missing(WINDOW_REQUEST)
        self._asked = set(missing)
        wait = RETRY * 2**self._retries
        self._due = now + wait * (1 + 0.2 * self._jitter.random())
        return Need(digest=self.staging.digest, first=False, chunks=missing)
