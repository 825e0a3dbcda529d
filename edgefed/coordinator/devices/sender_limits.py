"""The messages that the coordinator reads: limits for each sender, and stray retained messages.

The limits are applied before decoding. A topic names the sender of a message. A device that has
joined has a bucket of its own, so that one which floods delays no other. Of devices that have not
joined, only announcements are read: all births share one bucket, and so do the messages of names
without a birth. The work is the same however many names a flood uses, and so is the memory.

A user, whose certificate the broker compares with the topic, has one bucket for all its clients.
Viewers share one more, of messages and of the time that answers take, so that operators always find
the rest of the coordinator's time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from edgefed.process.clock import Clock
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.rate_limits import Buckets, Rate, RefusalCounts, TokenBucket, cost_of
from edgefed.wire.topics import CHUNK_LEAF, Topics

UNKNOWN, NEW, NOT_ENROLLED = "unknown devices", "new devices", "devices that are not enrolled"
NEW_USERS, VIEWERS = "new users", "all viewers"
ENROLLING = "devices that want to enrol"
COORDINATOR = "the coordinator's topic"

STATES = ("progress", "telemetry")
"""Messages of a device about itself, by which an unknown one is found."""

MAX_EXPECTED = 256
"""Births that were asked for and may come without a token."""


DEVICE = Rate(500, 4000)
"""Messages of a device that has joined; one of 4 KiB or more counts as several.

A device whose rounds take 80 ms sends up to 200 in a second.
"""

CHUNKS = Rate(2000, 8192)
"""Chunks of a device that has joined, which the coordinator asked for."""

NEW_DEVICES = Rate(20, 4096)
"""Births of all the names that have not joined."""

NEWCOMER = Rate(1, 20)
"""Messages of a name whose birth has come and which has not joined yet."""

UNKNOWN_DEVICES = Rate(20, 200)
"""States of all the names without a birth."""

USER = Rate(50, 500)
"""Requests of a user, from whichever of its clients."""

FIRST_REQUESTS = Rate(50, 500)
"""Requests of all the users that have sent none before."""

ALL_VIEWERS = Rate(50, 500)
"""Requests of all the viewers."""

VIEWER_TIME, VIEWERS_TIME = Rate(0.1, 2.0), Rate(0.25, 3.0)
"""Seconds of the coordinator's time for the answers to a viewer, and to all viewers."""

ENROLMENTS = Rate(50, 500)
"""Requests for enrolment, which strangers send; a flood of them delays no command."""

COORDINATOR_STATES = Rate(50, 500)
"""Messages on the topic of the coordinator's state, to which it writes several times a round."""

MAX_DEVICES = 16_384
"""Devices, and names on their way to become one, that have a bucket at one time."""

MAX_USERS = 1024

VIEWER = "viewer."
"""How the names of viewers begin, in certificates and in topics."""


def everybody(device: str) -> bool:
    """Whether a device is enrolled in a fleet without an authority: any is."""
    del device
    return True


def either(one: Callable[[str], bool], other: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return whether one of two things is true of a device."""
    return lambda device: one(device) or other(device)


class SenderLimits:
    """Decides which messages the coordinator reads; safe from any thread.

    Args:
        topics: of the fleet.
        clock: for the rates.
        joined: whether a device is connected, or has taken part before.
        enrolled: whether a device is enrolled; messages of others are ignored.
    """

    def __init__(
        self,
        topics: Topics,
        clock: Clock,
        joined: Callable[[str], bool],
        enrolled: Callable[[str], bool] = everybody,
    ) -> None:
        now = clock.monotonic()
        self._prefix = f"{topics.root}/"
        self._clock = clock
        self._joined = joined
        self._enrolled = enrolled
        self._devices = Buckets(DEVICE, MAX_DEVICES)
        self._chunks = Buckets(CHUNKS, MAX_DEVICES)
        self._newcomers = Buckets(NEWCOMER, MAX_DEVICES)
        self._users = Buckets(USER, MAX_USERS)
        self._viewer_time = Buckets(VIEWER_TIME, MAX_USERS)
        self._viewers_time = TokenBucket(VIEWERS_TIME, now)
        self._viewers = TokenBucket(ALL_VIEWERS, now)
        self._new_devices = TokenBucket(NEW_DEVICES, now)
        self._unknown = TokenBucket(UNKNOWN_DEVICES, now)
        self._new_users = TokenBucket(FIRST_REQUESTS, now)
        self._enrolling = TokenBucket(ENROLMENTS, now)
        self._coordinator = TokenBucket(COORDINATOR_STATES, now)
        self._expected: dict[str, None] = {}
        self._refused = RefusalCounts()
        self._lock = threading.Lock()

    def admit(self, message: Incoming) -> bool:
        """Return whether a message is to be read; others are counted for their sender."""
        with self._lock:
            refused = self._judge(message, self._clock.monotonic())
            if refused:
                self._refused.add(refused)
            return not refused

    def expect(self, device: str) -> None:
        """Admit the next birth of a device: it was requested."""
        with self._lock:
            if len(self._expected) < MAX_EXPECTED:
                self._expected[device] = None

    def has_time(self, user: str) -> bool:
        """Whether a user's request, admitted before others were answered, is answered now."""
        with self._lock:
            return not self._without_time(user, self._clock.monotonic())

    def answered(self, user: str, seconds: float) -> None:
        """Charge a user with the time that an answer took; an operator's is not limited."""
        if not user.startswith(VIEWER):
            return
        with self._lock:
            now = self._clock.monotonic()
            self._viewer_time.charge(user, seconds, now)
            self._viewers_time.charge(seconds, now)

    def refused(self) -> dict[str, int]:
        """Return how many messages were not read, by sender, the largest number first."""
        with self._lock:
            return self._refused.most()

    # -- with the lock held -------------------------------------------------------------------

    def _judge(self, message: Incoming, now: float) -> str:
        """Return whose limit a message is over; empty when it is within."""
        if not message.topic.startswith(self._prefix):
            return ""
        levels = message.topic[len(self._prefix) :].split("/", 3)
        if len(levels) < 3:
            free = self._coordinator.take(cost_of(message.payload), now)
            return "" if free else COORDINATOR
        branch, sender, leaf = levels[:3]
        if len(sender) > 64:  # no name, and no text to remember
            return UNKNOWN
        if branch == "control":
            return self._judge_user(sender, message, now)
        if branch == "enrol":
            return "" if self._enrolling.take(cost_of(message.payload), now) else ENROLLING
        if not self._enrolled(sender):
            return NOT_ENROLLED
        if self._joined(sender):
            return self._judge_device(sender, leaf, message, now)
        return self._judge_stranger(sender, leaf, message, now)

    def _judge_user(self, user: str, message: Incoming, now: float) -> str:
        cost = cost_of(message.payload)
        if user not in self._users and not self._new_users.take(cost, now):
            return NEW_USERS
        if not self._users.take(user, cost, now):
            return f"user {user}"
        if not user.startswith(VIEWER):
            return ""
        return self._without_time(user, now) or ("" if self._viewers.take(cost, now) else VIEWERS)

    def _without_time(self, user: str, now: float) -> str:
        """Return whose share of the coordinator's time is used up; empty for an operator."""
        if not user.startswith(VIEWER):
            return ""
        if not self._viewer_time.take(user, 0.0, now):
            return f"user {user}"
        return "" if self._viewers_time.take(0.0, now) else VIEWERS

    def _judge_device(self, device: str, leaf: str, message: Incoming, now: float) -> str:
        if leaf == CHUNK_LEAF:
            free = self._chunks.take(device, 1, now)
        else:
            free = self._devices.take(device, cost_of(message.payload), now)
        return "" if free else f"device {device}"

    def _judge_stranger(self, device: str, leaf: str, message: Incoming, now: float) -> str:
        """Hear births, and the states by which a device shows that it is alive; nothing else."""
        cost = cost_of(message.payload)
        if leaf in ("birth", "gateway"):
            asked_for = device in self._expected
            self._expected.pop(device, None)
            if not asked_for and not self._new_devices.take(cost, now):
                return NEW
            return "" if self._newcomers.take(device, cost, now) else NEW
        if leaf not in STATES:
            return UNKNOWN
        if device in self._newcomers:
            return "" if self._newcomers.take(device, cost, now) else NEW
        return "" if self._unknown.take(cost, now) else UNKNOWN


class RetainedMessages:
    """Passes on arrivals, and deletes retained messages that should not exist.

    These are messages on topics that retain none, and births of devices that are not enrolled. The
    broker delivers them when the coordinator subscribes. They are passed on all the same: their
    readers know that they are old. Empty messages, which delete retained ones, carry no information
    and are not passed on.

    Args:
        topics: of the fleet.
        enrolled: whether a device is enrolled.
        clear: deletes the retained message of a topic.
        deliver: takes each arrival.
    """

    def __init__(
        self,
        topics: Topics,
        enrolled: Callable[[str], bool],
        clear: Callable[[str], None],
        deliver: Callable[[Arrival], None],
    ) -> None:
        self._topics = topics
        self._enrolled = enrolled
        self._clear = clear
        self._deliver = deliver

    def take(self, arrival: Arrival) -> None:
        """Handle an arrival from a link."""
        if isinstance(arrival, Incoming):
            if not arrival.payload:
                return
            if arrival.retained and self._is_stray(arrival.topic):
                self._clear(arrival.topic)
        self._deliver(arrival)

    def _is_stray(self, topic: str) -> bool:
        parsed = self._topics.parse(topic)
        if parsed is None:
            return True
        if parsed.branch == "up":
            return not parsed.spec.retained or not self._enrolled(parsed.who)
        return parsed.branch == "control"
