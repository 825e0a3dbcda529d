"""The identity of an agent, and the connection that announces it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgefed.config.values.address import Address
from edgefed.process.clock import Clock
from edgefed.transport.inbox import Arrival
from edgefed.transport.link import Link
from edgefed.trust.signatures import Verifier
from edgefed.trust.superseded_certificate import COORDINATOR_SINCE, verifier_of_coordinator
from edgefed.wire.messages import Birth
from edgefed.wire.topics import Topics


@dataclass(frozen=True)
class Identity:
    """The identity of one agent process.

    Attributes:
        birth: its announcement when it connects; its will is the same, with status ``lost``.
    """

    fleet: str
    device: str
    birth: Birth


def agent_link(identity: Identity, address: Address, deliver: Callable[[Arrival], None]) -> Link:
    """Return the connection of an agent, not yet started.

    It subscribes to the coordinator's state, the messages to this device, and its own birth topic,
    where another agent of the same name would announce itself.
    """
    topics, device = Topics(identity.fleet), identity.device
    will = identity.birth.model_copy(update={"status": "lost"})
    return Link(
        address,
        f"edgefed-{identity.fleet}-{device}-{secrets.token_hex(8)}",
        deliver,
        will=(topics.birth(device), will),
        subscriptions=(topics.coordinator(), topics.every_down(device), topics.birth(device)),
    )


def agent_verifier(address: Address, folder: Path, clock: Clock) -> Verifier | None:
    """Return the verifier of the messages that an agent receives; None in an unsigned fleet.

    Args:
        address: the broker, with the agent's credentials.
        folder: of the agent's state; keeps which of the coordinator's certificates is the newest.
        clock: this machine's.

    Raises:
        StorageError: that file is damaged.
    """
    own = address.credentials
    if own is None:
        return None
    return verifier_of_coordinator(own.authority, folder / COORDINATOR_SINCE, clock)
