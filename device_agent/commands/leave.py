"""Leave a fleet: have the certificate revoked, and delete the credentials."""

from __future__ import annotations

import queue
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from device_agent.identity.device_name import agent_folder, device_name
from edgefed.config.fleet.broker_address import broker_address, trust_folder
from edgefed.config.fleet.settings import AgentSettings
from edgefed.config.values.address import Address
from edgefed.errors import EdgeFedError, NotAllowedError, UnreachableError
from edgefed.files.writing import storage_error
from edgefed.process.lock import FolderLock
from edgefed.transport.inbox import Arrival, Incoming, read_arrival
from edgefed.transport.link import Link
from edgefed.transport.renewal import RENEWALS
from edgefed.trust.credentials import FLEET
from edgefed.trust.signatures import Verifier
from edgefed.trust.succession import delete_succession
from edgefed.wire.enrolment_messages import Leave
from edgefed.wire.topics import ParsedTopic, Topics

CONNECT_TIMEOUT = 5.0
ANSWER_TIMEOUT = 12.0
SAY_EVERY = 2.0
"""Seconds between two farewells: a broker may drop the first one of a device just enrolled."""


@dataclass(frozen=True)
class Left:
    """The result of leaving a fleet.

    Attributes:
        name, fleet: of the device and the fleet.
        revoked: whether the coordinator has revoked the certificate.
        reason: why it has not.
    """

    name: str
    fleet: str
    revoked: bool
    reason: str = ""


def enrolled_folder(settings: AgentSettings) -> Path:
    """Return the folder of this device's credentials.

    Raises:
        NotAllowedError: ``trust.missing``: there are none.
    """
    name = device_name(settings)
    folder = trust_folder(settings) / name
    if not (folder / FLEET).exists():
        raise NotAllowedError(
            f"This machine is not enrolled as device {name} of fleet {settings.fleet}.",
            code="trust.missing",
            hint="name the device with --fleet and --name",
        )
    return folder


def leave_fleet(settings: AgentSettings) -> Left:
    """Tell the coordinator that this device leaves, and delete its credentials in any case.

    Raises:
        NotAllowedError: ``trust.missing``: there are none; ``state.locked``: the agent runs.
        StorageError: they cannot be deleted.
    """
    name, folder = device_name(settings), enrolled_folder(settings)
    lock = FolderLock(agent_folder(settings), "edgefed-agent leave")
    try:
        reason = _say_goodbye(settings, name)
        _delete(folder)
    finally:
        lock.release()
    return Left(name, settings.fleet, not reason, reason)


def _say_goodbye(settings: AgentSettings, name: str) -> str:
    """Have the certificate revoked; return why not, empty when it is."""
    try:
        address = broker_address(settings, (name,))
        if address.credentials is None:
            return "the broker setting has no TLS"
        _ask(address, Topics(settings.fleet), name)
    except EdgeFedError as error:
        return error.message
    return ""


def _ask(address: Address, topics: Topics, name: str) -> None:
    """Send a farewell and wait for its answer.

    Raises:
        UnreachableError: there is none.
    """
    assert address.credentials is not None
    farewell = Leave(session=secrets.token_hex(8))
    arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    link = Link(
        address,
        f"client.{secrets.token_hex(8)}",
        arrivals.put,
        subscriptions=(topics.left(name),),
    )
    link.start_now(CONNECT_TIMEOUT)
    try:
        verifier = Verifier(address.credentials.authority)
        for _ in range(int(ANSWER_TIMEOUT / SAY_EVERY)):
            link.send(topics.leave(name), farewell)
            if _is_answered(arrivals, topics, farewell, verifier):
                return
        raise UnreachableError("The coordinator does not answer.", code="coordinator.silent")
    finally:
        link.stop()


def _is_answered(
    arrivals: queue.SimpleQueue[Arrival], topics: Topics, farewell: Leave, verifier: Verifier
) -> bool:
    """Whether the coordinator answers within ``SAY_EVERY`` seconds."""
    until = time.monotonic() + SAY_EVERY
    while True:
        try:
            arrived = arrivals.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return False
        if isinstance(arrived, Incoming):
            read = read_arrival(topics, arrived, _ignore, verifier)
            if read is not None and read.message == farewell:
                return True


def _ignore(parsed: ParsedTopic, reason: str) -> None:
    del parsed, reason


def _delete(folder: Path) -> None:
    """Delete credentials, and the keys of a renewal; under their name they are gone at once."""
    gone = folder.with_name(f".{folder.name}.left")
    try:
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone)
        shutil.rmtree(folder.parent / RENEWALS / folder.name, ignore_errors=True)
        delete_succession(folder)
    except OSError as error:
        raise storage_error(folder, error) from error
