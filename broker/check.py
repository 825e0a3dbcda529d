"""Check whether a broker has the features that EdgeFed needs, and measure its speed."""

from __future__ import annotations

import random
import statistics
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from broker.probe import Probe
from edgefed.config.values.address import Address
from edgefed.wire.limits import CHUNK_BYTES, MAX_MESSAGE_BYTES, MAX_PACKET_BYTES
from edgefed.wire.topics import CLIENT_ID_PREFIX, CLIENT_SLOTS, UNSIGNED_USER, Topics

ROUND_TRIPS = 20


@dataclass(frozen=True)
class CheckReport:
    """The behaviour of a broker with messages on a topic of our own."""

    url: str
    latency_ms: float
    """Median time from publishing a small message with QoS 1 to receiving it, milliseconds."""
    small: bool
    """Whether every small message arrived."""
    chunk: bool
    """Whether a message of one chunk (120 KiB) arrived whole."""
    largest: bool
    """Whether the largest message that EdgeFed sends arrived whole."""
    retained: bool
    """Whether a late subscriber was handed the retained message."""
    last_will: bool
    """Whether the last will of a client that vanished was published."""
    packet_limit: bool
    """Whether the broker cuts a client off that sends more than a packet may hold. Not needed to
    work, but without it any client can fill the broker's memory."""

    @property
    def ok(self) -> bool:
        """Whether all features that EdgeFed needs work."""
        return all((self.small, self.chunk, self.largest, self.retained, self.last_will))


def check(
    address: Address,
    timeout: float = 5.0,
    *,
    fleet: str = "default",
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    monotonic: Callable[[], float] = time.monotonic,
) -> CheckReport:
    """Test a broker and return the working features.

    Args:
        address: the broker; with TLS, including credentials.
        timeout: seconds for every single answer.
        fleet: the fleet below whose topics the check takes one of its own.
        new_id: makes unique names.
        monotonic: seconds that never go back.

    Raises:
        UnreachableError: no broker answers there.
        NotAllowedError: the broker refuses the connection.
    """
    return _BrokerCheck(address.for_commands(), timeout, fleet, new_id(), monotonic).report()


class _BrokerCheck:
    """One check: an address, and names that are this check's own."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        fleet: str,
        name: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._address, self._timeout, self._monotonic = address, timeout, monotonic
        own = address.credentials
        self._tls = own.tls_context() if own else None
        user = own.certificate.user if own else UNSIGNED_USER
        slots = random.Random(name).sample(range(CLIENT_SLOTS), 4)
        topics = [Topics(fleet).check(user, slot) for slot in slots]
        self._echoed, self._retained, self._will, self._big = topics
        self._name = f"{CLIENT_ID_PREFIX}check-{name[:12]}"

    def report(self) -> CheckReport:
        """Run every trial, each on connections that it may lose."""
        with closing(self._probe("echo")) as probe:
            probe.subscribe(self._echoed)
            trips = [
                self._round_trip(probe, f"{self._name} {index}".encode())
                for index in range(ROUND_TRIPS)
            ]
            chunk = self._round_trip(probe, bytes(CHUNK_BYTES)) is not None
            largest = chunk and self._round_trip(probe, bytes(MAX_MESSAGE_BYTES)) is not None
        arrived = [seconds for seconds in trips if seconds is not None]
        return CheckReport(
            url=str(self._address),
            latency_ms=1000 * statistics.median(arrived) if arrived else float("nan"),
            small=len(arrived) == ROUND_TRIPS,
            chunk=chunk,
            largest=largest,
            retained=self._keeps_retained(),
            last_will=self._publishes_will(),
            packet_limit=self._cuts_oversize(),
        )

    def _probe(self, role: str, *, will: tuple[str, bytes] | None = None) -> Probe:
        return Probe(
            self._address,
            self._timeout,
            f"{self._name}-{role}",
            will=will,
            tls=self._tls,
            monotonic=self._monotonic,
        )

    def _round_trip(self, probe: Probe, payload: bytes) -> float | None:
        """Return the seconds until the payload is back, or None when it stays away."""
        start = self._monotonic()
        probe.publish(self._echoed, payload)
        return self._monotonic() - start if probe.receives(self._echoed, payload) else None

    def _keeps_retained(self) -> bool:
        topic = self._retained
        with closing(self._probe("keep")) as probe, closing(self._probe("late")) as late:
            probe.subscribe(topic)
            probe.publish(topic, b"kept", retain=True)
            known = probe.receives(topic, b"kept")
            late.subscribe(topic)
            kept = late.receives(topic, b"kept", retained=True)
            self._clear(probe, topic)
        return known and kept

    def _publishes_will(self) -> bool:
        topic = self._will
        with closing(self._probe("heir")) as heir:
            heir.subscribe(topic)
            self._probe("gone", will=(topic, b"lost")).drop()
            heard = heir.receives(topic, b"lost")
            self._clear(heir, topic)
        return heard

    def _cuts_oversize(self) -> bool:
        with closing(self._probe("big")) as probe:
            return probe.is_cut_by(self._big, bytes(MAX_PACKET_BYTES + 1))

    def _clear(self, probe: Probe, topic: str) -> None:
        """Remove a retained message, and know that the broker did."""
        probe.publish(topic, b"", retain=True)
        probe.receives(topic, b"")
