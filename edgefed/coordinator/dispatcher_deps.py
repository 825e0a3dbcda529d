"""What the coordinator's dispatcher works with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from edgefed.clock import Clock
from edgefed.coordinator.device_registry import DeviceRegistry
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.membership_messages import MembershipMessages
from edgefed.coordinator.relayed_blobs import RelayedBlobs
from edgefed.coordinator.sender_limits import everybody
from edgefed.transport.inbox import Inbox
from edgefed.transport.link import Link
from edgefed.trust.certificates import Certificate
from edgefed.trust.signatures import Verifier
from edgefed.wire.blobs import BlobCache
from edgefed.wire.diagnostic_messages import LogTail, Pong
from edgefed.wire.messages import Request
from edgefed.wire.topics import Topics


@dataclass(frozen=True, kw_only=True)
class DispatcherDeps:
    """What the dispatcher works with.

    Attributes:
        link: the connection; not yet started.
        inbox: where the link delivers.
        topics: of the fleet.
        registry: told what devices say of themselves.
        cache: the coordinator's blobs.
        relays: those of them that devices sent to others.
        staging: folder of blobs on their way in.
        journal: told what is wrong.
        jitter: random numbers for waiting times.
        on_request: takes requests of dashboards and the command line.
        on_up: called when the connection is there (again), and when our retained state was lost.
        session: this life of the coordinator.
        members: serves messages about membership; None where no authority is on this machine.
        known: whether a device has taken part before; the birth of another one must be followed by
            a message before it joins.
        enrolled: whether a device is enrolled; one that is not is never heard.
        expect: told whose retained birth was asked for.
        verifier: of a signed fleet; None where messages are not signed.
        on_diagnostic: takes what devices answer to pings and requests for their logs.
    """

    link: Link
    inbox: Inbox[NoReturn]
    topics: Topics
    registry: DeviceRegistry
    cache: BlobCache
    relays: RelayedBlobs
    staging: Path
    journal: EventJournal
    clock: Clock
    jitter: random.Random
    on_request: Callable[[str, Request, Certificate | None], None]
    on_up: Callable[[], None]
    session: str = ""
    known: Callable[[str], bool] = everybody
    enrolled: Callable[[str], bool] = everybody
    expect: Callable[[str], None] = lambda device: None
    verifier: Verifier | None = None
    members: MembershipMessages | None = None
    on_diagnostic: Callable[[str, Pong | LogTail], None] = lambda device, answer: None
