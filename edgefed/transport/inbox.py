"""Arrivals from the broker: a bounded inbox in which they wait, and their reading as messages.

The inbox is between paho's thread and the thread that handles messages; ``put`` never blocks.
paho's thread also reads acknowledgements and answers pings. If it waited for a slow owner, both
would be delayed, and devices would repeat messages that have arrived. There are three bounded
queues instead:

- urgent: small messages that are awaited, such as births, replies, receipts and tasks;
- chunks of blobs;
- progress and telemetry, of which only the latest of each topic is kept: a newer message replaces
  the waiting one in its place.

Each queue keeps the order of arrival. A message that does not fit into a full queue is dropped and
counted: its sender repeats it, or its receiver requests it again. So is a message whose sender is
over its limit, and an urgent one that repeats a waiting one.

In a signed fleet the signature is verified before the body is read: a message without a signature
of a member, or of one that may not send it on this topic, is never processed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from edgefed.errors import WireError
from edgefed.process.clock import Clock
from edgefed.trust.certificates import Certificate
from edgefed.trust.signatures import UNINTRODUCED, Verifier
from edgefed.wire.envelope import Envelope, decode_body, open_envelope
from edgefed.wire.messages import Message
from edgefed.wire.topics import CHUNK_LEAF, ParsedTopic, Topics


@dataclass(frozen=True)
class Incoming:
    """A message that arrived."""

    topic: str
    payload: bytes
    retained: bool


@dataclass(frozen=True)
class LinkUp:
    """The connection is there (again); subscriptions are being renewed."""


@dataclass(frozen=True)
class LinkDown:
    """The connection broke; it is being tried again."""

    reason: str


@dataclass(frozen=True)
class Subscribed:
    """The broker answered a subscription, and granted it or not."""

    filter: str
    granted: bool = True


Arrival = Incoming | LinkUp | LinkDown | Subscribed


Own = TypeVar("Own")
"""Items that the owner's other threads post, beside arrivals."""

Kind = Literal["urgent", "chunk", "latest"]

OVERHEAD = 512
"""Bytes that a waiting message is charged beside its topic and payload."""

URGENT_IN_A_ROW = 15
"""Urgent items after which one of another queue is taken, so that none starves."""

COALESCED = ("progress", "telemetry")
"""Kinds of messages, and last levels of their topics, of which only the latest one counts."""


@dataclass(frozen=True)
class InboxLimits:
    """Most bytes that wait in each queue."""

    urgent: int = 256 * 1024**2
    chunks: int = 64 * 1024**2
    latest: int = 16 * 1024**2


class AdmissionGate(Protocol):
    """Decides, on paho's thread, which messages are taken; it must not wait."""

    def admit(self, message: Incoming) -> bool:
        """Whether a message is taken; the gate counts those that are not."""
        ...

    def refused(self) -> dict[str, int]:
        """Return how many messages were not taken, by sender, the largest number first."""
        ...


class _Open:
    """A gate that takes everything."""

    def admit(self, message: Incoming) -> bool:
        del message
        return True

    def refused(self) -> dict[str, int]:
        return {}


@dataclass(frozen=True)
class InboxCounts:
    """Counts of an inbox since it was made.

    Attributes:
        dropped_urgent, dropped_chunks, dropped_latest: messages that a full queue did not take.
        replaced: progress and telemetry of which a newer message came before they were handled.
        duplicates: urgent messages that equalled the last waiting one of their topic.
        refused: messages over their sender's limit, by sender, the largest number first.
    """

    dropped_urgent: int = 0
    dropped_chunks: int = 0
    dropped_latest: int = 0
    replaced: int = 0
    duplicates: int = 0
    refused: dict[str, int] = field(default_factory=dict)

    @property
    def dropped(self) -> int:
        """Messages in all that a full queue did not take."""
        return self.dropped_urgent + self.dropped_chunks + self.dropped_latest


class Inbox(Generic[Own]):
    """Messages and link events of one connection; any thread puts, one thread gets.

    Args:
        clock: measures waiting times.
        limits: of the queues.
        gate: decides which messages are taken.
    """

    def __init__(
        self, clock: Clock, limits: InboxLimits | None = None, gate: AdmissionGate | None = None
    ) -> None:
        self._clock = clock
        self._limits = limits or InboxLimits()
        self._gate = gate or _Open()
        self._filled = threading.Condition()
        self._urgent: deque[tuple[float, Arrival | Own]] = deque()
        self._chunks: deque[Incoming] = deque()
        self._latest: OrderedDict[str, tuple[float, Incoming]] = OrderedDict()
        self._last_urgent: dict[str, Incoming] = {}
        self._duplicates = 0
        self._urgent_bytes = self._chunk_bytes = self._latest_bytes = 0
        self._dropped: dict[Kind, int] = {"urgent": 0, "chunk": 0, "latest": 0}
        self._replaced = 0
        self._in_a_row = 0
        self._chunk_next = True
        self._arrived = 0.0

    def put(self, arrival: Arrival) -> None:
        """Take an arrival from a link; link events are never dropped."""
        if isinstance(arrival, Incoming) and not self._gate.admit(arrival):
            return
        with self._filled:
            if not isinstance(arrival, Incoming):
                self._last_urgent.clear()  # what comes after it is no repetition
                if isinstance(arrival, LinkDown):
                    self._forget_what_is_sent_again()
                self._urgent.append((self._clock.monotonic(), arrival))
            elif not self._admit(arrival):
                self._dropped[_kind(arrival.topic)] += 1
                return
            self._filled.notify()

    def post(self, own: Own) -> None:
        """Take an item of the owner's; it is never dropped."""
        with self._filled:
            self._urgent.append((self._clock.monotonic(), own))
            self._filled.notify()

    def get(self, timeout: float) -> Arrival | Own | None:
        """Return the next item, or None when nothing came for ``timeout`` seconds."""
        with self._filled:
            self._filled.wait_for(lambda: self.waiting, timeout)
            if self._urgent and self._in_a_row < URGENT_IN_A_ROW:
                self._in_a_row += 1
                return self._next_urgent()
            self._in_a_row = 0
            # Chunks and states take turns
            if self._chunks and (self._chunk_next or not self._latest):
                self._chunk_next = False
                return self._next_chunk()
            if self._latest:
                self._chunk_next = True
                return self._next_latest()
            return self._next_urgent() if self._urgent else None

    @property
    def waiting(self) -> bool:
        """Whether ``get`` returns an item at once."""
        return bool(self._urgent or self._chunks or self._latest)

    def take_latest(self, topic: str) -> Incoming | None:
        """Return the waiting state of a topic before its turn; None where none waits."""
        with self._filled:
            _, message = self._latest.pop(topic, (0.0, None))
            if message is not None:
                self._latest_bytes -= _cost(message)
            return message

    def handled_until(self) -> float:
        """Return the monotonic second up to which all arrivals were taken; now when none wait.

        Chunks are left out. A repetition that is due by this time is really needed: no message that
        would make it needless waits here.
        """
        with self._filled:
            oldest = self._clock.monotonic()
            if self._urgent:
                oldest = min(oldest, self._urgent[0][0])
            if self._latest:
                oldest = min(oldest, next(iter(self._latest.values()))[0])
            return oldest

    @property
    def arrived(self) -> float:
        """The monotonic second at which the urgent item that ``get`` returned last had arrived."""
        return self._arrived

    @property
    def counts(self) -> InboxCounts:
        """The numbers of messages dropped, replaced and refused so far."""
        refused = self._gate.refused()
        with self._filled:
            dropped = self._dropped
            return InboxCounts(
                dropped["urgent"],
                dropped["chunk"],
                dropped["latest"],
                self._replaced,
                self._duplicates,
                refused,
            )

    # -- with the lock held -------------------------------------------------------------------

    def _admit(self, message: Incoming) -> bool:
        """Put a message into its queue; return whether there was room."""
        cost, limits = _cost(message), self._limits
        match _kind(message.topic):
            case "urgent":
                if self._last_urgent.get(message.topic) == message:
                    self._duplicates += 1
                    return True
                if self._urgent_bytes + cost > limits.urgent:
                    return False
                self._urgent_bytes += cost
                self._urgent.append((self._clock.monotonic(), message))
                self._last_urgent[message.topic] = message
            case "chunk":
                if self._chunk_bytes + cost > limits.chunks:
                    return False
                self._chunk_bytes += cost
                self._chunks.append(message)
            case "latest":
                return self._replace(message, cost)
        return True

    def _replace(self, message: Incoming, cost: int) -> bool:
        """Put a state in the place of an older one of its topic, if one waits."""
        now, before = self._clock.monotonic(), 0
        older = self._latest.get(message.topic)
        if older is not None:
            # The earlier arrival stays, so that handled_until does not pass over it
            now, before = older[0], _cost(older[1])
        if self._latest_bytes + cost - before > self._limits.latest:
            return False
        self._latest_bytes += cost - before
        self._replaced += older is not None
        self._latest[message.topic] = (now, message)
        return True

    def _next_urgent(self) -> Arrival | Own:
        self._arrived, item = self._urgent.popleft()
        if isinstance(item, Incoming):
            self._urgent_bytes -= _cost(item)
            # A later message of the topic may still wait
            if self._last_urgent.get(item.topic) is item:
                del self._last_urgent[item.topic]
        return item

    def _next_chunk(self) -> Incoming:
        message = self._chunks.popleft()
        self._chunk_bytes -= _cost(message)
        return message

    def _next_latest(self) -> Incoming:
        _, (_, message) = self._latest.popitem(last=False)
        self._latest_bytes -= _cost(message)
        return message

    def _forget_what_is_sent_again(self) -> None:
        """Drop chunks and states from before the connection broke.

        They would overtake nothing but come after the link event, as if their senders were still
        there. Chunks are asked for again, and states are old.
        """
        self._chunks.clear()
        self._latest.clear()
        self._chunk_bytes = self._latest_bytes = 0


def _kind(topic: str) -> Kind:
    """Return which queue a topic's messages wait in."""
    above, _, leaf = topic.rpartition("/")
    if leaf in COALESCED:
        return "latest"
    # A broadcast chunk has the blob's digest as its last level
    is_chunk = leaf == CHUNK_LEAF or above.endswith(f"/all/{CHUNK_LEAF}")
    return "chunk" if is_chunk else "urgent"


def _cost(message: Incoming) -> int:
    return len(message.topic) + len(message.payload) + OVERHEAD


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
