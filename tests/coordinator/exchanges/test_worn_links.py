"""What poor links and storms do to a fleet: it is slower, says so, and loses nothing."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.devices.device_reports import EVERY
from edgefed.coordinator.journal.rate_limited_notes import LOOK_EVERY
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.model import Event
from edgefed.transport.reply_resender import MAX_REPEAT, REPEAT
from edgefed.wire.messages import Progress
from tests.coordinator.light_devices import (
    THEIRS,
    TOPICS,
    Fleet,
    LightDevices,
    blob_of,
    exchange,
    light_fleet,
)
from tests.transport.listening import wait_until

pytestmark = pytest.mark.mosquitto

ROUNDS = 3


def number(blob: bytes) -> int:
    """What an answer adds to a sum, exactly."""
    return int.from_bytes(blob, "big")


class Sums:
    """What an engine has of the replies: how often each counted, and their exact sum."""

    def __init__(self, fleet: Fleet) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.total = 0
        self._fleet = fleet

    def merge(self, opened: OpenExchange, most: int) -> None:
        """Merge the replies to an exchange that was put until there are so many in all."""
        for delivered in self._fleet.fleet.replies(opened, lambda: self.counts.total() >= most):
            reply = delivered.reply
            (ref,) = reply.blobs.values()
            self.counts[reply.device, reply.exchange] += 1
            self.total += number(delivered.read(ref.digest))
            self._fleet.fleet.verdict(reply, "accepted", "")


def repeat(fleet: Fleet, seconds: float) -> int:
    """Let time pass and devices repeat; return how many replies have no receipt then."""
    links = [group.link for group in fleet.groups]

    def quiet() -> bool:
        up, down = sum(link.sent for link in links), sum(link.received for link in links)
        arrived = (fleet.link.received, fleet.link.sent) == (up, down)
        return arrived and not fleet.inbox.waiting

    wait_until(quiet, "an empty line")
    fleet.clock.seconds += seconds
    left = sum(group.repeat() for group in fleet.groups)
    wait_until(quiet, "an empty line")
    return left


def test_with_a_twentieth_of_the_receipts_lost_every_reply_counts_once(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    """Devices repeat what was merged while its exchange is open, and while later ones are."""
    with light_fleet(mosquitto.address, tmp_path, devices=120) as fleet:
        for seed, group in enumerate(fleet.groups):
            draws = random.Random(seed)
            group.loses = lambda draws=draws: draws.random() < 0.05  # type: ignore[misc]
        sums = Sums(fleet)
        late = fleet.groups[0]
        late.at_once = False
        for index in range(ROUNDS):
            opened, before = exchange(fleet.names, index), index * len(fleet.names)
            fleet.fleet.put(opened)
            sums.merge(opened, before + len(fleet.names) - len(late.devices))
            assert repeat(fleet, 2 * REPEAT), "receipts were lost"
            for device in late.devices:
                late.answer(device, opened.exchange, index)
            sums.merge(opened, before + len(fleet.names))
            fleet.fleet.drop(opened)
        last = exchange(fleet.names[:1], ROUNDS)
        fleet.fleet.put(last)  # while it is open, those before it are over
        assert any(not repeat(fleet, MAX_REPEAT) for _ in range(10)), "word of every reply"
        fleet.fleet.drop(last)
        places = [(device, f"r-1-{index}") for index in range(ROUNDS) for device in fleet.names]
        assert sums.counts == Counter(places)
        outcomes = {outcome for group in fleet.groups for outcome in group.outcomes}
        assert outcomes == {"accepted"}, "also where the exchange was over"
        assert sums.total == sum(number(blob_of(*place)) for place in places)
        lost = sum(group.lost for group in fleet.groups)
        assert lost > len(places) / 40
        assert fleet.total("replies").total() >= len(places) + lost


def test_a_thousand_births_at_once_beside_a_flood_all_join(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    """The clock stands still, so that all of it happens within one instant of every limit."""
    with light_fleet(mosquitto.address, tmp_path, devices=1, connections=1, limited=True) as fleet:
        (flooding,) = fleet.groups
        events: list[Event] = []
        fleet.journal.listen(lambda event, number: events.append(event))
        names = [f"n-{n:04d}" for n in range(1000)]
        storm = [LightDevices(mosquitto.address, names[n::8], fleet.clock) for n in range(8)]
        idle = Progress(session=THEIRS, state="idle")

        def flooded() -> bool:
            for _ in range(500):
                flooding.send(TOPICS.progress("d-0000"), idle, qos=0)
            return bool(fleet.inbox.counts.refused)

        try:
            for group in storm:
                flooded()
                group.join(introduced=False)
            wait_until(flooded, "a flood")
            fleet.wait_for([*fleet.names, *names])
        finally:
            for group in storm:
                group.link.stop()
        assert fleet.inbox.counts.dropped == 0
        assert fleet.inbox.counts.refused.keys() == {"device d-0000"}
        fleet.clock.seconds += LOOK_EVERY  # what was refused is counted again
        told = "messages over the limit of device d-0000 were not read"
        wait_until(lambda: any(told in str(event) for event in events), "word of the flood")

        def all_shown() -> bool:
            fleet.clock.seconds += EVERY
            return len(fleet.journal.snapshot.devices) == 1 + len(names)

        wait_until(all_shown, "all of them in the snapshot")
        assert len(events) <= len(names) + 100  # one a device, and few together of all
