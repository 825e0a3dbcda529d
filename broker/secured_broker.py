"""A Mosquitto with TLS that is kept running, and reads its files again when they change."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from broker.broker_interface import BrokerProcess
from broker.child_process import ChildProcess, ProcessLimits
from broker.listeners import COMMANDS, ENROLMENT
from broker.mosquitto import (
    PLUGIN_HINT,
    database_folder,
    find_plugin,
    mosquitto_user,
    run_mosquitto,
)
from broker.secured_configuration import (
    ENROLMENT_OPEN_FILES,
    enrolment_configuration,
    secured_configuration,
)
from broker.secured_files import SecuredFiles, version_of
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, UnreachableError
from edgefed.files.writing import storage_error

LOOK_SECONDS = 0.1
"""Between two looks at the files and at the process: a removed device is cut off this fast."""

FIRST_DELAY = 1.0
MAX_DELAY = 60.0
STABLE_SECONDS = 60.0
"""After this long a broker counts as started; the next restart waits ``FIRST_DELAY`` again."""

ENROLMENT_PROCESS = ProcessLimits(ENROLMENT_OPEN_FILES, nice=10)
"""Strangers can neither open connections without number nor slow the machine down."""

_UNREADABLE = re.compile(r"database|persist|out of memory|mosquitto\.db", re.IGNORECASE)
"""Mosquitto's message when it cannot start with its database."""

UNLIMITED = "without it, whoever has a certificate can freeze the broker with subscriptions"

Tell = Callable[[str], None]
"""Takes one line about an event."""


class _Reloading(BrokerProcess):
    """A running Mosquitto, and the files that it reads."""

    name = "mosquitto"

    def __init__(self, address: Address, child: ChildProcess, files: Iterable[Path]) -> None:
        super().__init__(address, child)
        self._files = tuple(files)
        self._version = version_of(self._files)

    def reload_if_changed(self) -> bool:
        """Have Mosquitto read its files again if one has changed; return whether it did."""
        version = version_of(self._files)
        if version in (self._version, None):
            return False
        self._version = version
        with suppress(ProcessLookupError):  # it has ended this moment, and is started again
            os.kill(self.pid, signal.SIGHUP)
        return True


class SecuredBroker(_Reloading):
    """The running Mosquitto of a fleet with certificates, for all but enrolment.

    A database that Mosquitto cannot open is moved aside: devices and coordinator publish its
    retained messages again. Where the plug-in that limits subscriptions is missing, or Mosquitto
    cannot load it, Mosquitto runs without it.

    Args:
        address: for devices; host 0.0.0.0 for all addresses of this machine.
        folder: for its configuration, log and database; created when absent.
        files: certificates, revocations and access rules.
        program: the Mosquitto program; searched for when left out.
        tell: takes one line about a database that opens slowly or was moved aside, and about a
            missing plug-in.

    Raises:
        UsageError: Mosquitto is not installed, a port is taken, or a file is missing.
        UnreachableError: it ended at once, or does not accept connections.
        StorageError: the folder cannot be written.
    """

    def __init__(
        self,
        address: Address,
        folder: Path,
        files: SecuredFiles,
        *,
        program: Path | None = None,
        tell: Tell = lambda line: None,
    ) -> None:
        files.require()
        folder = folder.expanduser().absolute()
        database = database_folder(folder)
        more = [replace(address, port=address.port + COMMANDS.offset)]

        def start_with(plugin: Path | None) -> ChildProcess:
            text = secured_configuration(
                address.port,
                files,
                bind=_bind(address),
                persistence=database,
                user=mosquitto_user(),
                plugin=plugin,
            )
            return run_mosquitto(text, address, folder, more=more, program=program, tell=tell)

        def start() -> ChildProcess:
            plugin = find_plugin()
            if plugin is None:
                tell(f"the plug-in for Mosquitto is not built; {UNLIMITED}; {PLUGIN_HINT}")
                return start_with(None)
            try:
                return start_with(plugin)
            except UnreachableError as error:
                if str(plugin) not in error.message:
                    raise
            tell(f"Mosquitto cannot load its plug-in {plugin}; {UNLIMITED}")
            return start_with(None)

        super().__init__(
            address, _start_without(database / "mosquitto.db", start, tell), files.of_fleet()
        )


class EnrolmentBroker(_Reloading):
    """The running Mosquitto for enrolment: small, and without persistent data.

    Args:
        address: of the fleet's broker; this one listens on a port after it.
        folder: of the fleet's broker; this one has one of its own in it.
        files: certificates, access rules and passwords.
        program: the Mosquitto program; searched for when left out.

    Raises:
        UsageError: as of ``SecuredBroker``.
        UnreachableError: likewise.
        StorageError: likewise.
    """

    def __init__(
        self, address: Address, folder: Path, files: SecuredFiles, *, program: Path | None = None
    ) -> None:
        files.require()
        own = replace(address, port=address.port + ENROLMENT.offset)
        text = enrolment_configuration(
            address.port, files, bind=_bind(address), user=mosquitto_user()
        )
        folder = folder.expanduser().absolute() / "enrolment"
        child = run_mosquitto(text, own, folder, program=program, limits=ENROLMENT_PROCESS)
        super().__init__(own, child, files.of_enrolment())


def _bind(address: Address) -> str:
    return "" if address.host == "0.0.0.0" else address.host


def _start_without(database: Path, start: Callable[[], ChildProcess], tell: Tell) -> ChildProcess:
    """Start a broker; if it cannot open its database, move that aside and start it again."""
    try:
        return start()
    except UnreachableError as error:
        if not database.exists() or not _UNREADABLE.search(error.message):
            raise
    aside = database.with_suffix(".unreadable")
    try:
        database.replace(aside)
    except OSError as error:
        raise storage_error(database, error) from error
    tell(f"Mosquitto cannot open its database, which is moved to {aside}; starting without it")
    return start()


class BrokerSupervisor:
    """Starts a broker, applies changed files, and restarts it when it ends by itself.

    Args:
        start: starts the broker.
        tell: takes one line about each event.
        name: of the broker in those lines.
        monotonic: seconds that never go back.
    """

    def __init__(
        self,
        start: Callable[[], SecuredBroker | EnrolmentBroker],
        tell: Tell,
        *,
        name: str = "the broker",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._tell, self._monotonic = start, tell, monotonic
        self._name = name
        self._delay = FIRST_DELAY
        self.broker = start()
        self._since = monotonic()

    def run(self, stop: threading.Event) -> None:
        """Keep the broker running until ``stop`` is set, then stop it."""
        try:
            while not stop.wait(LOOK_SECONDS):
                if not self.broker.is_running():
                    self._restart(stop)
                elif self.broker.reload_if_changed():
                    self._tell("access rules, revocations or certificates have changed: applied")
        finally:
            self.broker.stop()

    def _restart(self, stop: threading.Event) -> None:
        """Start the broker again, with growing delays until it starts."""
        if self._monotonic() - self._since > STABLE_SECONDS:
            self._delay = FIRST_DELAY
        self._tell(f"{self._name} has ended; starting it again in {self._delay:.0f} s")
        while not stop.wait(self._delay):
            self._delay = min(MAX_DELAY, 2 * self._delay)
            try:
                self.broker = self._start()
            except EdgeFedError as error:
                self._tell(f"{error.message} Trying again in {self._delay:.0f} s")
            else:
                self._since = self._monotonic()
                self._tell(f"{self._name} runs again on {self.broker.address}")
                return


class SecuredBrokers:
    """The two brokers of a fleet with certificates, each kept running.

    Args:
        address: as of ``SecuredBroker``.
        folder: as of ``SecuredBroker``.
        files: as of ``SecuredBroker``.
        tell: takes one line about each event.

    Raises:
        UsageError: as of ``SecuredBroker``.
        UnreachableError: likewise.
        StorageError: likewise.
    """

    def __init__(self, address: Address, folder: Path, files: SecuredFiles, tell: Tell) -> None:
        self.fleet = BrokerSupervisor(
            lambda: SecuredBroker(address, folder, files, tell=tell), tell
        )
        try:
            self.enrolment = BrokerSupervisor(
                lambda: EnrolmentBroker(address, folder, files),
                tell,
                name="the broker for enrolment",
            )
        except BaseException:
            self.fleet.broker.stop()
            raise

    def run(self, stop: threading.Event) -> None:
        """Keep both running until ``stop`` is set, then stop them."""
        beside = threading.Thread(target=self.enrolment.run, args=(stop,), name="enrolment-broker")
        beside.start()
        try:
            self.fleet.run(stop)
        finally:
            stop.set()
            beside.join()
