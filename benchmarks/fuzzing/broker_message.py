"""What a broker delivers as one input, and a connection that is not there."""

from __future__ import annotations

import random
from typing import Any

import paho.mqtt.client as paho

from benchmarks.fuzzing.mutations import broken
from edgefed.config.address import Address
from edgefed.transport.inbox import Inbox
from edgefed.transport.link import Incoming, Link
from edgefed.trust.credentials import Credentials
from edgefed.trust.signatures import Signer
from edgefed.wire import limits
from edgefed.wire.envelope import decode
from edgefed.wire.topics import Topics


def join(topic: str, payload: bytes, draws: random.Random) -> bytes:
    """Return a message as one input; now and then it is retained, or its topic is broken."""
    text = topic.encode()
    if draws.random() < 0.02:
        text = broken(text, draws).replace(b"\n", b"")
    retained = b"r" if draws.random() < 0.1 else b"-"
    return retained + text + b"\n" + payload


def split(data: bytes) -> Incoming:
    """Return the message of an input."""
    topic, _, payload = data[1:].partition(b"\n")
    return Incoming(topic.decode("utf-8", "replace"), payload, retained=data[:1] == b"r")


def decode_again(topics: Topics, arrival: Incoming) -> None:
    """Decode a message that a handler has taken, whose errors it only notes.

    Raises:
        WireError: it is not what its topic carries.
    """
    parsed = topics.parse(arrival.topic)
    if parsed is not None and arrival.payload:
        decode(arrival.payload, parsed.spec.message)


class UnconnectedLink(Link):
    """A link that takes what it is given to publish, and never sends it."""

    def __init__(self, inbox: Inbox[Any], credentials: Credentials | None = None) -> None:
        super().__init__(Address("127.0.0.1", 1), "fuzz", inbox.put)
        self._up.set()
        if credentials is not None:
            self.renew(credentials)

    def renew(self, credentials: Credentials) -> None:
        """Sign with other credentials from now on."""
        self.signer = Signer(credentials)

    def publish(
        self, topic: str, payload: bytes, *, qos: int = 1, retain: bool = False
    ) -> paho.MQTTMessageInfo:
        """Check a message as the link does; it counts as acknowledged."""
        del topic, qos, retain
        assert len(payload) <= limits.MAX_MESSAGE_BYTES
        self.sent += len(payload)
        info = paho.MQTTMessageInfo(1)
        info._set_as_published()
        return info

    def forget(self) -> None:
        """Forget the subscriptions that were made."""
        self._pending.clear()
