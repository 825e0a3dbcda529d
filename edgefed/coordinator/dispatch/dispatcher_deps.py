"""Dependencies of the coordinator's dispatcher."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sender_limits import everybody
from edgefed.coordinator.devices.sites import Sites
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.members.membership_messages import MembershipMessages
from edgefed.coordinator.updates.agent_releases import AgentReleases
from edgefed.process.clock import Clock, Periodic
from edgefed.transport.inbox import Inbox
from edgefed.transport.link import Link
from edgefed.trust.certificates import Certificate
from edgefed.trust.signatures import Verifier
from edgefed.wire.blobs import BlobCache
from edgefed.wire.diagnostic_messages import LogTail, Pong
from edgefed.wire.messages import Message, Request
from edgefed.wire.rollout_messages import ModelAnswer
from edgefed.wire.topics import Topics
from edgefed.wire.update_messages import UpdateState

Answer = Pong | LogTail | ModelAnswer | UpdateState
"""A device's answer to a diagnostic request or an offer."""


@dataclass(frozen=True, kw_only=True)
class DispatcherDeps:
    """The dependencies of the dispatcher.

    Attributes:
        link: the connection; not yet started.
        inbox: receives the link's messages.
        topics: of the fleet.
        registry: receives the states of devices.
        cache: the coordinator's blobs.
        relays: those of them that devices sent to others.
        staging: folder of incoming blobs.
        journal: receives warnings.
        jitter: random numbers for waiting times.
        on_request: takes requests of dashboards and the command line.
        on_up: called when the link connects (again), and when our retained state was lost.
        session: the session of this coordinator process.
        members: serves messages about membership; None where no authority is on this machine.
        known: whether a device has taken part before; the birth of another one must be followed by
            a message before it joins.
        enrolled: whether a device is enrolled; messages of others are ignored.
        expect: called with each device whose retained birth was requested.
        verifier: of a signed fleet; None where messages are not signed.
        on_answer: takes devices' answers to pings, log requests and offers.
        offered: returns how many devices may need a blob that no task names; 0 for any other.
        sites: the gateways, and their devices.
        updates: offers releases of the agent; None for none.
        on_heard: called with each message of a device that is a member and has joined; None for
            nothing.
        parts: other parts of this process that have work from time to time, to the second.
        party: the name of this kind of process in its own words.
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
    on_answer: Callable[[str, Answer], None] = lambda device, answer: None
    offered: Callable[[str], int] = lambda digest: 0
    sites: Sites = field(default_factory=lambda: Sites(everybody))
    updates: AgentReleases | None = None
    on_heard: Callable[[str, Message], None] | None = None
    parts: Sequence[Periodic] = ()
    party: str = "coordinator"
