"""Write to a disk that may be full, read-only or away: wait until it takes the write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edgefed.errors import DISK_MAY_RETURN, StorageError

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
            StorageError: an order ended the wait for the disk, or anything else is wrong.
        """
        try:
            return act()
        except StorageError as error:
            self._make_room(error)
        # Space is made and the write repeated once before anybody waits or is told
        seconds, reported = FIRST_WAIT, ""
        while True:
            try:
                done = act()
            except StorageError as error:
                if error.code not in DISK_MAY_RETURN:
                    raise
                # Told once for each reason, not at every try
                if error.message != reported:
                    reported = error.message
                    self._tell(reported)
                if self._wait(seconds):
                    raise
                seconds = min(2 * seconds, LONGEST_WAIT)
                self._make_room(error)
            else:
                if reported:
                    self._tell("")
                return done

    def _make_room(self, error: StorageError) -> None:
        """Delete files on a full disk; raise an error that no wait mends."""
        if error.code not in DISK_MAY_RETURN:
            raise error
        if error.code == "storage.full":
            self._release()
