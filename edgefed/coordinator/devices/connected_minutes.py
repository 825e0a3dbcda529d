"""How many minutes of each hour of the last 30 days every device was connected.

A device is counted in each minute in which it is connected when the coordinator looks. Minutes in
which the coordinator did not run count for no device, and hours before a device was first seen do
not count for it.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock

log = logging.getLogger(__name__)

FILE = "presence.npz"
HOURS = 30 * 24
MINUTE = 60.0
HOUR = 3600

LOOKS_PER_WRITE = 10
"""After so many minutes the file is written; a kill loses what came later."""

MOST_DEVICES = 10_000
LEAST_MINUTES = 60
"""Observed minutes from which on a share is known."""

Minutes = npt.NDArray[np.uint8]


class Presence:
    """The presence of devices; owned by one thread, and read by any.

    Args:
        folder: the coordinator's state directory; None to keep nothing, as in tests.
        clock: for the hours.
        online: returns the devices that are connected.

    Attributes:
        next_due: the monotonic second of the next look.
    """

    def __init__(
        self, folder: Path | None, clock: Clock, online: Callable[[], Iterable[str]]
    ) -> None:
        self._file = None if folder is None else folder / FILE
        self._clock = clock
        self._online = online
        self._hour = self._now()
        self._own: Minutes = np.zeros(HOURS, np.uint8)
        self._of: dict[str, tuple[int, Minutes]] = {}
        self._looks = 0
        self.next_due = clock.monotonic() + MINUTE
        self._read()

    def _now(self) -> int:
        return int(self._clock.now().timestamp()) // HOUR

    def due(self, now: float) -> None:
        """Count the devices that are connected, once a minute."""
        if now < self.next_due:
            return
        self.next_due = now + MINUTE
        self._move_on()
        slot = self._hour % HOURS
        for minutes in (self._own, *map(self._minutes, self._online())):
            minutes[slot] = min(int(minutes[slot]) + 1, 60)
        self._looks += 1
        if self._looks % LOOKS_PER_WRITE == 0:
            self.save()

    def _minutes(self, device: str) -> Minutes:
        if device not in self._of and len(self._of) >= MOST_DEVICES:
            return np.zeros(HOURS, np.uint8)
        return self._of.setdefault(device, (self._hour, np.zeros(HOURS, np.uint8)))[1]

    def _move_on(self) -> None:
        """Empty the hours that have begun; a clock that goes back changes nothing."""
        now = self._now()
        begun = [hour % HOURS for hour in range(self._hour + 1, now + 1)[-HOURS:]]
        for minutes in (self._own, *(minutes for _, minutes in self._of.values())):
            minutes[begun] = 0
        self._hour = max(self._hour, now)

    def shares(self) -> dict[str, float]:
        """Return the share of the observed time in which each device was connected.

        A device that was observed for less than an hour is left out.
        """
        oldest = self._hour - HOURS + 1
        shares = {}
        for device, (first, minutes) in list(self._of.items()):
            slots = [hour % HOURS for hour in range(max(first, oldest), self._hour + 1)]
            observed = int(self._own[slots].sum())
            if observed >= LEAST_MINUTES:
                shares[device] = round(min(1.0, int(minutes[slots].sum()) / observed), 4)
        return shares

    def forget(self, device: str) -> None:
        """Forget a device that an operator has removed."""
        self._of.pop(device, None)

    def save(self) -> None:
        """Write the file; a full disk only costs the newest minutes."""
        if self._file is None:
            return
        content = io.BytesIO()
        np.savez(
            content,
            hour=self._hour,
            own=self._own,
            names=np.array(list(self._of), str),
            first=np.array([first for first, _ in self._of.values()], np.int64),
            minutes=np.array([minutes for _, minutes in self._of.values()], np.uint8).reshape(
                len(self._of), HOURS
            ),
        )
        try:
            write_atomic(self._file, content.getvalue(), sync=False)
        except StorageError as error:
            log.warning("%s", error.message)

    def _read(self) -> None:
        """Take what an earlier process has written; nothing of a damaged file."""
        if self._file is None or not self._file.exists():
            return
        try:
            with np.load(io.BytesIO(self._file.read_bytes()), allow_pickle=False) as kept:
                names, first, minutes = kept["names"], kept["first"], kept["minutes"]
                own, hour = kept["own"], int(kept["hour"])
            if own.shape != (HOURS,) or minutes.shape != (len(names), HOURS):
                raise ValueError("of another length")
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            log.warning("the presence of devices begins anew: %s cannot be read: %s", FILE, error)
            return
        self._own, self._hour = own.astype(np.uint8), hour
        rows = zip(names.tolist(), first.tolist(), minutes.astype(np.uint8), strict=True)
        self._of = {name: (began, row.copy()) for name, began, row in rows}
        self._move_on()
