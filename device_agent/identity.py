"""The identity of an agent, and the connection that announces it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from edgefed.config.address import Address
from edgefed.transport.link import Arrival, Link
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Birth
from edgefed.wire.topics import Topics


@dataclass(frozen=True)
class Identity:
    """One life of an agent.

    Attributes:
        birth: what it says when it connects; its will is the same, lost.
    """

    fleet: str
    device: str
    birth: Birth


def agent_link(identity: Identity, address: Address, deliver: Callable[[Arrival], None]) -> Link:
    """Return the connection of an agent, not yet started.

    It hears the coordinator's state, what is sent to this device, and its own birth topic, where
    another agent of the same name would show itself.
    """
    topics, device = Topics(identity.fleet), identity.device
    will = identity.birth.model_copy(update={"status": "lost"})
    return Link(
        address,
        f"edgefed-{identity.fleet}-{device}-{secrets.token_hex(8)}",
        deliver,
        will=(topics.birth(device), encode(will)),
        subscriptions=(topics.coordinator(), topics.every_down(device), topics.birth(device)),
    )
