"""A Mosquitto with TLS that is kept running, and reads its files again when they change."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker.listeners import LISTENERS
from broker.mosquitto import database_folder, mosquitto_user, run_mosquitto
from broker.running_broker import BrokerProcess
from broker.secured_configuration import secured_configuration
from broker.secured_files import SecuredFiles
from edgefed.config.address import Address
from edgefed.errors import EdgeFedError

LOOK_SECONDS = 0.1
"""Between two looks at the files and at the process: a removed device is cut off this fast."""

FIRST_DELAY = 1.0
MAX_DELAY = 60.0
STABLE_SECONDS = 60.0
"""After this long a broker counts as started; the next restart waits ``FIRST_DELAY`` again."""


class SecuredBroker(BrokerProcess):
    """A running Mosquitto with the secured configuration.

    Args:
        address: where devices find it; host 0.0.0.0 for all addresses of this machine.
        folder: for its configuration, log and database; created when absent.
        files: certificates, revocations and access rules.
        program: the Mosquitto program; searched for when left out.

    Raises:
        UsageError: Mosquitto is not installed, a port is taken, or a file is missing.
        UnreachableError: it ended at once, or does not accept connections.
        StorageError: the folder cannot be written.
    """

    name = "mosquitto"

    def __init__(
        self, address: Address, folder: Path, files: SecuredFiles, *, program: Path | None = None
    ) -> None:
        files.require()
        folder = folder.expanduser().absolute()
        self._files = files
        self._version = files.version()
        text = secured_configuration(
            address.port,
            files,
            bind="" if address.host == "0.0.0.0" else address.host,
            persistence=database_folder(folder),
            user=mosquitto_user(),
        )
        more = [replace(address, port=address.port + each.offset) for each in LISTENERS[1:]]
        super().__init__(address, run_mosquitto(text, address, folder, more=more, program=program))

    def reload_if_changed(self) -> bool:
        """Have Mosquitto read its files again if one has changed; return whether it did."""
        version = self._files.version()
        if version in (self._version, None):
            return False
        self._version = version
        os.kill(self.pid, signal.SIGHUP)
        return True


class BrokerSupervisor:
    """Starts a broker, applies changed files, and restarts it when it ends by itself.

    Args:
        start: starts the broker.
        tell: takes one line about what happened.
        monotonic: seconds that never go back.
    """

    def __init__(
        self,
        start: Callable[[], SecuredBroker],
        tell: Callable[[str], None],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._tell, self._monotonic = start, tell, monotonic
        self._delay = FIRST_DELAY
        self.broker = start()
        self._since = monotonic()

    def run(self, told: threading.Event) -> None:
        """Keep the broker running until ``told`` is set, then stop it."""
        try:
            while not told.wait(LOOK_SECONDS):
                if not self.broker.is_running():
                    self._restart(told)
                elif self.broker.reload_if_changed():
                    self._tell("access rules, revocations or certificates have changed: applied")
        finally:
            self.broker.stop()

    def _restart(self, told: threading.Event) -> None:
        """Start the broker again, with growing delays until it starts."""
        if self._monotonic() - self._since > STABLE_SECONDS:
            self._delay = FIRST_DELAY
        self._tell(f"the broker has ended; starting it again in {self._delay:.0f} s")
        while not told.wait(self._delay):
            self._delay = min(MAX_DELAY, 2 * self._delay)
            try:
                self.broker = self._start()
            except EdgeFedError as error:
                self._tell(f"{error.message} Trying again in {self._delay:.0f} s")
            else:
                self._since = self._monotonic()
                self._tell(f"the broker runs again on {self.broker.address}")
                return
