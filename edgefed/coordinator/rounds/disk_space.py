"""Write to a disk that may be full: delete caches, then wait until there is space again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgefed.errors import StorageError

FIRST_WAIT = 1.0
LONGEST_WAIT = 30.0
"""Seconds between two tries, doubled from the first to the longest."""

Result = TypeVar("Result")


class DiskSpace:
    """Repeats writes until the disk takes them.

    Args:
        release: deletes files that can be fetched or made again.
        wait: sleeps for so many seconds; True when an order ends the wait.
        tell: called with the reason why the run waits, and with an empty text when it goes on.
    """

    def __init__(
        self,
        release: Callable[[], None],
        wait: Callable[[float], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._release = release
        self._wait = wait
        self._tell = tell

    def write(self, act: Callable[[], Result]) -> Result:
        """Call ``act``, which writes and may be repeated, and return its result.

        Raises:
            StorageError: the disk is full and an order ended the wait, or anything else is wrong.
        """
        try:
            return act()
        except StorageError as error:
            if error.code != "storage.full":
                raise
        # Space is made and the write repeated once before anybody waits or is told
        self._release()
        seconds, reported = FIRST_WAIT, ""
        while True:
            try:
                done = act()
            except StorageError as error:
                if error.code != "storage.full":
                    raise
                # Told once for each reason, not at every try
                if error.message != reported:
                    reported = error.message
                    self._tell(reported)
                if self._wait(seconds):
                    raise
                seconds = min(2 * seconds, LONGEST_WAIT)
                self._release()
            else:
                if reported:
                    self._tell("")
                return done
