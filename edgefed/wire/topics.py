"""The topic tree of a fleet: format the topics of messages, and parse incoming topics.

Every level that contains a name is validated, because a broker may deliver any text as a topic.
``down`` is read by one device, ``up`` is written by one device, ``all`` is read by every device, so
that a broker's access list needs one pattern for each direction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

from edgefed.errors import WireError
from edgefed.trust.certificates import Role
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.enrolment_messages import (
    EnrolmentRequest,
    EnrolmentResponse,
    IssuedCertificate,
    Leave,
    RenewalOrder,
    RenewalRequest,
)
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    EventMessage,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Request,
    Response,
    Task,
    Telemetry,
)
from edgefed.wire.rollout_messages import ModelAnswer, ModelOffer
from edgefed.wire.site_messages import GatewayState, SiteMessages
from edgefed.wire.update_messages import UpdateOffer, UpdateState

Branch = Literal["all", "down", "up", "control", "events", "enrol"]

ROOT = "edgefed"
CHUNK_LEAF = "c"
CLIENT_ID_PREFIX = "client."
"""How every MQTT client id begins that a client chooses. A broker with TLS takes the names in
certificates as client ids, which never begin so: no chosen id is equal to one of them.

With a token's id after it, it is the client id of a party without a certificate yet, and a level of
the topic, so that the broker's access list admits each such client to its own topics only."""

CLIENT_SLOTS = 16
"""Topics of one user's clients, numbered from 0. A client takes one at random; two that take the
same one each ignore the other's answers by their nonces. The broker's access list names them one by
one, so that a user cannot have it retain messages on topics without number."""

UNSIGNED_USER = "local"
"""The user of every client in a fleet without certificates."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_ENROLLING = re.compile(re.escape(CLIENT_ID_PREFIX) + _NAME.pattern)
_USER = re.compile(rf"(?:(?:operator|viewer)\.)?{_NAME.pattern}")
_CLIENT = re.compile(rf"{_USER.pattern}/(?:[0-9]|1[0-5])")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_PARTIES: Mapping[Branch, tuple[str, re.Pattern[str]]] = {
    "down": ("", _NAME),
    "up": ("", _NAME),
    "control": ("", _CLIENT),
    "enrol": (CLIENT_ID_PREFIX, _NAME),
}
"""What the level of a party is: a prefix, and a name of this pattern."""


@dataclass(frozen=True)
class TopicSpec:
    """One kind of topic: the message it carries and how it is published.

    Attributes:
        branch, leaf: the words that tell it from the other lanes.
        message: class of the messages on it.
        qos: MQTT quality of service to publish and subscribe with.
        retained: whether the broker keeps its last message.
    """

    branch: Branch
    leaf: str
    message: type[Message]
    qos: Literal[0, 1] = 1
    retained: bool = False

    @property
    def senders(self) -> tuple[Role, ...]:
        """Roles that may sign messages here; empty where none are verified.

        The digest of its blob proves a chunk, and the token's secret proves enrolment.
        """
        if self.leaf == CHUNK_LEAF or self.branch == "enrol":
            return ()
        if self.branch == "up":
            return _UP_SENDERS.get(self.leaf, ("device",))
        return ("operator", "viewer") if self.leaf == "request" else ("coordinator",)


_UP_SENDERS: Mapping[str, tuple[Role, ...]] = {
    "gateway": ("gateway",),
    "site": ("gateway",),
    "need": ("device", "gateway"),
    "renewal": ("device", "gateway"),
    "leave": ("device", "gateway"),
}
"""Roles that send what not only devices send."""


class PartyTopic(TopicSpec):
    """A topic of each device, client or token.

    As an attribute of ``Topics`` it is the function that formats the topic of one of them.
    """

    def __get__(self, topics: Topics, owner: object = None) -> Callable[[str], str]:
        """Return the function that formats this topic of one of a fleet's parties."""
        return partial(topics.of, self)


@dataclass(frozen=True)
class ParsedTopic:
    """The levels of an incoming topic.

    Attributes:
        branch: first word below the fleet.
        who: device (``up``, ``down``), USER/SLOT of a client (``control``), or token (``enrol``);
            empty elsewhere.
        leaf: word for the message, such as ``task``; ``c`` for a chunk.
    """

    branch: Branch
    who: str
    leaf: str

    @property
    def user(self) -> str:
        """The user of a device or a client; it alone sends messages not sent by the coordinator."""
        return self.who.partition("/")[0]

    @property
    def spec(self) -> TopicSpec:
        """How messages travel here, and of which class they are."""
        return TOPIC_SPECS[self.branch, self.leaf]


@dataclass(frozen=True)
class Topics:
    """Topics and filters of one fleet.

    A topic to publish to is ``topics.task(device)``, ``topics.request(client)`` or
    ``topics.enrolment_request(token)``; methods called ``every_*`` name filters to subscribe to.

    Raises:
        WireError: ``wire.topic`` for a fleet, device, client or digest that cannot be a level of a
            topic.
    """

    fleet: str

    task = PartyTopic("down", "task", Task)
    receipt = PartyTopic("down", "receipt", Receipt)
    cancel = PartyTopic("down", "cancel", Cancel)
    down_need = PartyTopic("down", "need", Need)
    down_chunk = PartyTopic("down", CHUNK_LEAF, Chunk)
    renewal_order = PartyTopic("down", "renewal", RenewalOrder)
    certificate = PartyTopic("down", "certificate", IssuedCertificate)
    left = PartyTopic("down", "leave", Leave)
    """The coordinator confirms to a device that it has left."""
    ping = PartyTopic("down", "ping", Ping, qos=0)
    log_request = PartyTopic("down", "log", LogRequest, qos=0)
    model_offer = PartyTopic("down", "model", ModelOffer)
    update_offer = PartyTopic("down", "update", UpdateOffer)
    down_site = PartyTopic("down", "site", SiteMessages)
    birth = PartyTopic("up", "birth", Birth, retained=True)
    progress = PartyTopic("up", "progress", Progress)
    telemetry = PartyTopic("up", "telemetry", Telemetry, qos=0)
    reply = PartyTopic("up", "reply", Reply)
    up_need = PartyTopic("up", "need", Need)
    up_chunk = PartyTopic("up", CHUNK_LEAF, Chunk)
    renewal = PartyTopic("up", "renewal", RenewalRequest)
    leave = PartyTopic("up", "leave", Leave)
    pong = PartyTopic("up", "ping", Pong, qos=0)
    log_tail = PartyTopic("up", "log", LogTail, qos=0)
    model_answer = PartyTopic("up", "model", ModelAnswer)
    update_state = PartyTopic("up", "update", UpdateState)
    gateway = PartyTopic("up", "gateway", GatewayState, retained=True)
    up_site = PartyTopic("up", "site", SiteMessages)
    request = PartyTopic("control", "request", Request)
    response = PartyTopic("control", "response", Response)
    enrolment_request = PartyTopic("enrol", "request", EnrolmentRequest)
    enrolment_response = PartyTopic("enrol", "response", EnrolmentResponse)

    def __post_init__(self) -> None:
        _level(_NAME, self.fleet)

    @property
    def root(self) -> str:
        """The prefix of every topic of the fleet."""
        return f"{ROOT}/{self.fleet}"

    def of(self, spec: TopicSpec, who: str) -> str:
        """Return the topic of a kind for a device, a client (USER/SLOT) or a token."""
        prefix, pattern = _PARTIES[spec.branch]
        return f"{self.root}/{spec.branch}/{prefix}{_level(pattern, who)}/{spec.leaf}"

    def coordinator(self) -> str:
        """Where the coordinator's retained state is."""
        return f"{self.root}/all/coordinator"

    def broadcast_chunk(self, digest: str) -> str:
        """Where the chunks of a blob for everybody go; devices subscribe to those that they lack.

        Only the coordinator writes there, so that its digest may be a level.
        """
        return f"{self.root}/all/{CHUNK_LEAF}/{_level(_DIGEST, digest)}"

    def events(self) -> str:
        """Where the run's events appear."""
        return f"{self.root}/events"

    def every_down(self, device: str) -> str:
        """Filter for all that is meant for one device."""
        return f"{self.root}/down/{_level(_NAME, device)}/#"

    def every_up(self) -> str:
        """Filter for all that devices send."""
        return f"{self.root}/up/#"

    def written_by_device(self, device: str) -> tuple[str, ...]:
        """Return each topic that a device may write, on all of which it can have retained."""
        return tuple(self.of(spec, device) for spec in TOPIC_SPECS.values() if spec.branch == "up")

    def written_by_client(self, user: str) -> tuple[str, ...]:
        """Return each topic that an operator or a viewer may write."""
        slots = range(CLIENT_SLOTS)
        requests = (self.request(f"{user}/{slot}") for slot in slots)
        return (*requests, *(self.check(user, slot) for slot in slots))

    def check(self, user: str, slot: int) -> str:
        """Where a check of the broker by a user publishes to itself; see ``CLIENT_SLOTS``."""
        return f"{self.root}/check/{_level(_USER, user)}/{slot % CLIENT_SLOTS}"

    def every_request(self) -> str:
        """Filter for the requests of every client."""
        return f"{self.root}/control/+/+/request"

    def every_enrolment_request(self) -> str:
        """Filter for the requests of every holder of a token."""
        return f"{self.root}/enrol/+/request"

    def parse(self, topic: str) -> ParsedTopic | None:
        """Return the parsed ``topic``, or None when it is not one of this fleet's topics."""
        prefix = f"{self.root}/"
        if len(topic) > 512 or not topic.startswith(prefix):
            return None
        match topic[len(prefix) :].split("/"):
            case ["events"]:
                return ParsedTopic("events", "", "events")
            case ["all", *rest]:
                return _place("all", "", rest)
            case [("down" | "up") as branch, who, *rest] if _NAME.fullmatch(who):
                return _place(branch, who, rest)
            case ["control", user, name, *rest] if _CLIENT.fullmatch(f"{user}/{name}"):
                return _place("control", f"{user}/{name}", rest)
            case ["enrol", client, *rest] if _ENROLLING.fullmatch(client):
                return _place("enrol", client.removeprefix(CLIENT_ID_PREFIX), rest)
        return None


_FLEET_WIDE = (
    TopicSpec("all", "coordinator", CoordinatorState, retained=True),
    TopicSpec("all", CHUNK_LEAF, Chunk),
    TopicSpec("events", "events", EventMessage, qos=0),
)
_OF_PARTIES = tuple(spec for spec in vars(Topics).values() if isinstance(spec, PartyTopic))
TOPIC_SPECS: Mapping[tuple[str, str], TopicSpec] = MappingProxyType(
    {(spec.branch, spec.leaf): spec for spec in (*_FLEET_WIDE, *_OF_PARTIES)}
)
"""Every kind of topic, by its branch and leaf."""


def _place(branch: Branch, who: str, rest: list[str]) -> ParsedTopic | None:
    """Return the place whose last levels are ``rest``, or None."""
    if not rest or (branch, rest[0]) not in TOPIC_SPECS:
        return None
    match rest:
        case ["c", digest] if branch == "all" and _DIGEST.fullmatch(digest):
            return ParsedTopic(branch, who, CHUNK_LEAF)
        case [leaf] if (branch, leaf) != ("all", CHUNK_LEAF):
            return ParsedTopic(branch, who, leaf)
    return None


def _level(pattern: re.Pattern[str], word: str) -> str:
    """Return ``word`` when it may be a level of a topic."""
    if not pattern.fullmatch(word):
        raise WireError(
            f"{word[:80]!r} cannot be part of a topic.",
            code="wire.topic",
            hint="names are up to 64 lower-case letters, digits and hyphens",
        )
    return word
