"""Messages to the service manager: the program is ready, and its main loop makes progress.

systemd names a datagram socket in NOTIFY_SOCKET, and with ``WatchdogSec`` the microseconds within
which it wants to hear of a program in WATCHDOG_USEC (sd_notify(3), sd_watchdog_enabled(3)). A
program that it does not hear of is killed and started again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

from edgefed.process.clock import Clock

log = logging.getLogger(__name__)

TURN = 1.0
"""Least seconds between two turns of the main loop that are noted."""

BEATS = 3
"""Beats within the time that the service manager waits for one."""


class ServiceManager:
    """The service manager that started this process, if one did; otherwise nothing is sent.

    Args:
        environment: of the process.
        clock: for the time between beats.

    Attributes:
        next_due: the monotonic second of the next call of ``due``.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._clock = clock
        self._interval = _interval(environment)
        self._next = self._last = self.next_due = clock.monotonic()

    def ready(self) -> None:
        """Report that the program has started."""
        self._send("READY=1")

    def stopping(self) -> None:
        """Report that the program ends, as it was asked to."""
        self._send("STOPPING=1")

    def due(self, now: float) -> None:
        """Report that the main loop makes progress; called in its turns."""
        self._last, self.next_due = now, now + TURN
        if self._interval and now >= self._next:
            self._next = now + self._interval
            self._send("WATCHDOG=1")

    def age(self) -> float:
        """Return the seconds since a turn of the main loop was noted, or since the start."""
        return self._clock.monotonic() - self._last

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):  # a name without a file
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.sendto(message.encode(), address)
        except OSError as error:
            log.warning("the service manager does not take %s: %s", message, error)


def _interval(environment: Mapping[str, str]) -> float:
    """Return the seconds between beats; 0 where the service manager waits for none."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0  # it waits for a process that started this one
    return int(microseconds) / 1e6 / BEATS if microseconds.isdigit() else 0.0
