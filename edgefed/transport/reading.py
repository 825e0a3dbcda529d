"""Read arrivals as messages, or report why they are refused.

In a signed fleet the signature is verified before the body is read: a message without a signature
of a member, or of one that may not send it on this topic, is never processed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefed.errors import WireError
from edgefed.transport.link import Incoming
from edgefed.trust.certificates import Certificate
from edgefed.trust.signatures import UNINTRODUCED, Verifier
from edgefed.wire.envelope import Envelope, decode_body, open_envelope
from edgefed.wire.messages import Message
from edgefed.wire.topics import ParsedTopic, Topics


@dataclass(frozen=True)
class Received:
    """A message that was read.

    Attributes:
        topic: of the message.
        message: its contents.
        signer: certificate of the signer; None in a fleet without signatures, and for chunks.
    """

    topic: ParsedTopic
    message: Message
    signer: Certificate | None = None


def read_arrival(
    topics: Topics,
    arrival: Incoming,
    refuse: Callable[[ParsedTopic, str], None],
    verifier: Verifier | None = None,
) -> Received | None:
    """Return the contents and the signer of a message.

    Args:
        topics: of the fleet.
        arrival: from the broker.
        refuse: called for a payload of a kind that its topic does not carry, or with a wrong
            signature.
        verifier: of a signed fleet; None where messages are not signed.

    Returns:
        None for refused messages, for topics of others, and for the empty payload that
        clears a retained message.
    """
    parsed = topics.parse(arrival.topic)
    if parsed is None or not arrival.payload:
        return None
    try:
        envelope = open_envelope(arrival.payload)
        signer = _signer(parsed, arrival.topic, envelope, verifier)
        return Received(parsed, decode_body(envelope, parsed.spec.message), signer)
    except WireError as error:
        # An unknown signer's message is sent again, after its certificate has arrived
        if error.code != UNINTRODUCED:
            refuse(parsed, error.message)
        return None


def _signer(
    parsed: ParsedTopic, topic: str, envelope: Envelope, verifier: Verifier | None
) -> Certificate | None:
    """Return the certificate of a message's signer.

    Raises:
        WireError: it has no signer, or one that may not send it on this topic.
    """
    roles = parsed.spec.senders
    if verifier is None or not roles:
        return None
    # Below the coordinator's topics, the name is the receiver's and not the sender's
    user = "" if roles == ("coordinator",) else parsed.user
    return verifier.verify(topic, envelope.kind, envelope.body, envelope.seal, roles, user)
