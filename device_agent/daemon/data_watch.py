"""Read a device's data again when they have changed: a thread that checks them between two runs."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from device_agent.daemon.own_data import OwnData
from device_agent.daemon.refused_data import refused_data
from edgefed.data.base.types import DeviceData
from edgefed.errors import EdgeFedError, StorageError
from edgefed.events.base.coordinator_states import CHANGED_DATA

log = logging.getLogger(__name__)

EVERY = 3.0
"""Seconds between two looks."""

SETTLED = 1.0
"""Seconds for which data must not change any more before they are read: files are being copied."""

LONGEST_SETTLING = 60.0
"""Seconds after which data that change without a pause are read all the same."""

RETRY = 10.0
"""Least seconds after which data are read again that the disk had no room for, or did not take."""

AFTER_RUN = f"{CHANGED_DATA}; they are read when the run ends"
"""Why data that change during a run are not used."""

MOST_TIME = 0.02
"""Largest share of the time that looking takes; many files are looked at less often."""


@dataclass(frozen=True)
class DataRead:
    """A device's data were read again.

    Attributes:
        data: the new data.
        described: the fields of the device's birth about them.
    """

    data: DeviceData
    described: dict[str, Any]


@dataclass(frozen=True)
class DataUnused:
    """A device's data have changed and are not used, or are again as they were.

    Attributes:
        reason: why, with the code of an error; empty where the data in use have not changed.
    """

    reason: str


class DataWatch:
    """Checks whether a device's data have changed, and reads them; safe from any thread.

    If the new data cannot be used, or not before a run ends, the previous data stay in use, and
    this is reported once.

    Args:
        own: the data.
        describe: returns the fields of a birth about data.
        report: takes ``DataRead`` or ``DataUnused``, on this object's thread.

    Attributes:
        allowed: whether the data may be read now.
    """

    def __init__(
        self,
        own: OwnData,
        describe: Callable[[DeviceData], dict[str, Any]],
        report: Callable[[DataRead | DataUnused], None],
    ) -> None:
        self._own = own
        self._describe = describe
        self._report = report
        self.allowed = False
        self._pending = self._problem = self._reported = self._logged = ""
        self._settled_by = self._retry_at = math.inf
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="data", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def allow(self, allowed: bool) -> None:
        """Set whether the data may be read, such as between two runs."""
        if allowed and not self.allowed:
            self._wake.set()
        self.allowed = allowed

    def announce(self) -> None:
        """Remember the samples that were read last as announced; see ``OwnData``."""
        self._own.announce()
        self._logged = ""

    def refuse(self, error: StorageError) -> None:
        """Read the data again later: the disk does not take the record of these."""
        self._retry_at = time.monotonic() + RETRY
        self._refuse(error)

    def forget(self) -> None:
        """Read the data once more, because those that were read last are not in use."""
        self._own.seen = ""

    def stop(self) -> None:
        """End the thread soon; data that are being read do not hold up the end."""
        self._stopping = True
        self._wake.set()

    def turn(self) -> float:
        """Check once, and read data that changed and settled; return the time of the next check."""
        begun = time.monotonic()
        seen = self._own.look()
        pause = max(EVERY, (time.monotonic() - begun) / MOST_TIME)
        if seen == self._own.seen and not (self.allowed and begun >= self._retry_at):
            self._pending, self._settled_by = "", math.inf
            self._note(self._problem)
        elif seen != self._pending and begun < self._settled_by:
            if not self._pending:
                self._settled_by = begun + LONGEST_SETTLING
            self._pending = seen
            return SETTLED
        elif self.allowed:
            self._pending, self._settled_by, self._retry_at = "", math.inf, math.inf
            self._read()
        else:
            missing = self._own.missing()
            self._note(f"{CHANGED_DATA}: {missing}" if missing else AFTER_RUN, missing)
        return pause

    def _note(self, reason: str, line: str = "") -> None:
        """Report once why the data are not used, and log a line about it."""
        if reason == self._reported:
            return
        self._reported = reason
        if line and line != self._logged:
            log.warning("%s", line)
        self._logged = line
        self._report(DataUnused(reason))

    def _refuse(self, error: EdgeFedError) -> None:
        self._problem = refused_data(error)
        self._note(self._problem, f"the data have changed and are not used: {error.as_line()}")

    def _read(self) -> None:
        begun, self._problem = time.monotonic(), ""
        try:
            data = self._own.read()
            reading = DataRead(data, self._describe(data))
            is_short = "room" in data.ignored
        except EdgeFedError as error:
            self._refuse(error)
            is_short = isinstance(error, StorageError)
        else:
            self._own.report(data)
            if self._own.is_announced:
                self._note("")
            else:
                self._reported = ""
                self._report(reading)
        if is_short:
            now = time.monotonic()
            self._retry_at = now + max(RETRY, (now - begun) / MOST_TIME)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping:
            self._wake.wait(pause)
            self._wake.clear()
            try:
                pause = EVERY if self._stopping else self.turn()
            except Exception:  # of a package that reads data; the agent works on with what it has
                log.exception("the data could not be read again")
                pause = EVERY
