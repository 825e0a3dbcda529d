"""Hundreds of light devices: nothing is sent twice, and nothing waits for a busy coordinator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.devices.device_reports import EVERY
from edgefed.coordinator.exchanges.awaited_replies import REPEAT, PendingExchange
from tests.coordinator.light_devices import STATES, TOPICS, Fleet, exchange, light_fleet
from tests.transport.listening import PATIENCE, wait_until

pytestmark = pytest.mark.mosquitto

DEVICES = 300


def each_once(fleet: Fleet, *exchanges: str) -> Counter[tuple[str, str]]:
    return Counter({(device, name): 1 for name in exchanges for device in fleet.names})


def test_a_round_of_many_devices_sends_nothing_twice(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    """Since the clocks stand still nobody repeats: each round ends only if nothing was lost."""
    with light_fleet(mosquitto.address, tmp_path, devices=DEVICES) as fleet:
        for index in range(2):
            for delivered in fleet.fleet.ask(exchange(fleet.names, index), lambda: False):
                fleet.fleet.verdict(delivered.reply, "accepted", "")
        expected = each_once(fleet, "r-1-0", "r-1-1")
        wait_until(lambda: fleet.total("receipts") == expected, "every receipt")
        assert fleet.total("tasks") == fleet.total("replies") == expected
        assert fleet.inbox.counts.dropped == 0


def test_a_busy_coordinator_still_reads_its_connection_and_asks_nobody_twice(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with light_fleet(mosquitto.address, tmp_path, devices=DEVICES) as fleet:
        for group in fleet.groups:
            group.at_once = False
        pending = PendingExchange(exchange(fleet.names, 0), fleet.clock.monotonic())
        fleet.dispatcher.open(pending)
        once = each_once(fleet, "r-1-0")
        wait_until(lambda: fleet.total("tasks") == once, "the tasks")
        fleet.hold()
        silent = fleet.names[0]
        received = fleet.link.received
        sent = sum(group.link.sent for group in fleet.groups)
        for group in fleet.groups:
            for device in group.devices:
                if device != silent:
                    group.answer(device, "r-1-0", 0)
        sent = sum(group.link.sent for group in fleet.groups) - sent

        wait_until(lambda: fleet.link.received - received == sent, "all to be read meanwhile")
        ping = fleet.link.publish(f"{TOPICS.root}/ping", b"")
        wait_until(ping.is_published, "an acknowledgement meanwhile")
        assert fleet.inbox.counts.replaced == (len(STATES) - 1) * (DEVICES - 1)
        assert fleet.inbox.counts.dropped == 0

        fleet.clock.seconds += REPEAT + 1  # by now every task would be sent again
        fleet.release()
        for _ in range(DEVICES - 1):
            delivered = pending.arrivals.get(timeout=PATIENCE)
            assert delivered is not None
            fleet.fleet.verdict(delivered.reply, "accepted", "")
        del once[silent, "r-1-0"]
        wait_until(lambda: fleet.total("receipts") == once, "the receipts")
        assert fleet.total("replies") == once
        assert fleet.total("tasks") == each_once(fleet, "r-1-0")

        # What still waits is older than the time by which the task is due.
        wait_until(lambda: not fleet.inbox.waiting, "the states to be handled")
        fleet.clock.seconds += 1
        wait_until(lambda: fleet.total("tasks")[silent, "r-1-0"] == 2, "the silent one's task")
        assert fleet.total("tasks").total() == DEVICES + 1

        def shows_all() -> bool:
            fleet.clock.seconds += EVERY  # so many changes are reported together
            return fleet.states() == Counter(done=DEVICES - 1, asked=1)

        wait_until(shows_all, "the states")
        fleet.dispatcher.close(pending)
