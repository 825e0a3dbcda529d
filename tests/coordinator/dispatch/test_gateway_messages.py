"""What a coordinator takes from gateways, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.process.service import Service
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import NotAllowedError
from edgefed.events.base.coordinator_states import REMOVED
from edgefed.process.clock import SystemClock
from edgefed.transport.inbox import Arrival, Incoming
from edgefed.transport.link import Link
from edgefed.wire.envelope import decode
from edgefed.wire.messages import Birth, CoordinatorState, Message, Progress, Receipt
from edgefed.wire.site_messages import (
    TO_DEVICES,
    GatewayState,
    SiteMessages,
    pack_batches,
    unpack_batch,
)
from edgefed.wire.topics import Topics
from tests.coordinator.dispatch.test_dispatcher import exchange
from tests.transport.listening import PATIENCE, wait_until

pytestmark = pytest.mark.mosquitto

TOPICS = Topics("plant")
M = TypeVar("M", bound=Message)
ONE, TWO = "1" * 16, "2" * 16


def birth(session: str = ONE, samples: int = 5, status: str = "online") -> Birth:
    return Birth.model_validate({"session": session, "status": status, "samples": samples})


class FakeGateway:
    """A program that announces itself as a gateway and says what a test wants."""

    def __init__(self, broker: MosquittoBroker, name: str, session: str = ONE) -> None:
        self.name, self.session = name, session
        self.asked = 0
        self.heard: list[tuple[str, Message]] = []
        self.heard_before: dict[int, int] = {}
        self.link = Link(
            broker.address,
            f"gateway-{name}-{session}",
            self._take,
            subscriptions=(TOPICS.down_site(name), TOPICS.coordinator()),
        )
        self.link.start_now(PATIENCE)
        self.announce()
        wait_until(lambda: self.asked > 0, "the coordinator to ask for the devices")

    def announce(self, status: str = "online") -> None:
        state = GatewayState.model_validate(
            {"session": self.session, "status": status, "site": f"site-{self.name}"}
        )
        self.link.send(TOPICS.gateway(self.name), state, retain=True)

    def say(self, *messages: tuple[str, Message], session: str = "") -> None:
        for batch in pack_batches(messages):
            said = SiteMessages(session=session or self.session, batch=batch)
            self.link.send(TOPICS.up_site(self.name), said)

    def _take(self, arrival: Arrival) -> None:
        if not isinstance(arrival, Incoming):
            return
        if arrival.topic == TOPICS.coordinator():
            through = decode(arrival.payload, CoordinatorState).closed_through
            self.heard_before[through] = len(self.heard)
        else:
            batch = decode(arrival.payload, SiteMessages).batch
            self.asked += not batch
            unpacked = unpack_batch(batch, *TO_DEVICES)
            self.heard += [(device, message) for device, message, _ in unpacked]

    def of(self, kind: type[M]) -> list[tuple[str, M]]:
        """Return the messages of a class to its devices or itself."""
        return [(to, message) for to, message in self.heard if isinstance(message, kind)]


@pytest.fixture
def service(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Service]:
    made = Service(ServiceSettings(mosquitto.address, "plant", tmp_path / "hub"), SystemClock())
    thread = threading.Thread(target=made.serve)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join()


@contextmanager
def gateway(broker: MosquittoBroker, name: str, session: str = ONE) -> Iterator[FakeGateway]:
    made = FakeGateway(broker, name, session)
    try:
        yield made
    finally:
        made.link.stop()


def there(service: Service) -> set[str]:
    return {member.device for member in service.registry.roster()}


def reason(service: Service, device: str) -> str:
    return {view.device: view.reason for view in service.journal.snapshot.devices}[device]


def warned(service: Service, text: str) -> bool:
    return any(text in line.text for line in service.journal.snapshot.lines)


def test_a_gateway_speaks_for_its_devices_until_it_is_lost(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    with gateway(mosquitto, "gw-a") as first:
        first.say(("cam-1", birth()), ("cam-2", birth()))
        wait_until(lambda: there(service) == {"cam-1", "cam-2"}, "the devices")
        views = {view.device: view.site for view in service.journal.snapshot.devices}
        assert views == {"cam-1": "gw-a", "cam-2": "gw-a"}
        leave = Progress(session=ONE, state="lost", reason=REMOVED)
        first.say(("cam-2", leave), ("cam-2", birth(status="lost")))
        wait_until(lambda: there(service) == {"cam-1"}, "the loss of one")
        first.announce("lost")
        wait_until(lambda: there(service) == set(), "the loss of the site")
        assert [reason(service, f"cam-{n}") for n in (1, 2)] == ["gateway gw-a is lost", REMOVED]
        first.say(("cam-1", birth(TWO)))  # it may say so only after it has announced itself
        first.announce()
        wait_until(lambda: first.asked == 2, "to be asked again")
        assert there(service) == set()
        first.say(("cam-1", birth()))
        wait_until(lambda: there(service) == {"cam-1"}, "the device")


def test_verdicts_come_before_the_word_that_their_exchange_is_closed(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    with gateway(mosquitto, "gw-a") as one:
        one.say(("cam-1", birth()))
        wait_until(lambda: there(service) == {"cam-1"}, "the device")
        service.announcements.change(run="r-1")
        service.dispatcher.send_receipt("cam-1", "r-1-0", "accepted", "")
        service.fleet.closed("r-1", 0)
        wait_until(lambda: 0 in one.heard_before, "the close")
        (verdict,) = one.heard[: one.heard_before[0]]
        assert verdict == ("cam-1", Receipt(exchange="r-1-0", outcome="accepted"))


def test_a_gateway_that_restarts_has_lost_its_devices_before(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    with gateway(mosquitto, "gw-a") as first:
        first.say(("cam-1", birth()))
        wait_until(lambda: there(service) == {"cam-1"}, "the device")
        with gateway(mosquitto, "gw-a", TWO):
            assert there(service) == set(), "each is told again, so that it is asked again"
            first.say(("cam-1", birth()))  # of the process before
            first.say(("cam-9", birth()), session=TWO)
            wait_until(lambda: there(service) == {"cam-9"}, "the other")


def test_what_a_gateway_may_not_say_is_refused(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    direct = Link(mosquitto.address, "direct", lambda arrival: None)
    direct.start_now(PATIENCE)

    def joined() -> bool:  # the coordinator may not have subscribed yet
        direct.send(TOPICS.birth("cam-1"), birth(), retain=True)
        direct.send(TOPICS.progress("cam-1"), Progress(session=ONE, state="idle"))
        return there(service) == {"cam-1"}

    wait_until(joined, "the device without a gateway")
    with gateway(mosquitto, "gw-a") as one, gateway(mosquitto, "gw-b") as other:
        one.say(("cam-1", birth(TWO)))
        wait_until(lambda: warned(service, "cam-1 is a device of this fleet"), "a warning")
        assert service.registry.session("cam-1") == ONE

        one.say(("cam-2", birth()))
        wait_until(lambda: "cam-2" in there(service), "a device")
        other.say(("cam-2", birth(TWO)))
        wait_until(lambda: warned(service, "cam-2 is at site gw-a"), "a warning")
        other.say(("cam-2", Progress(session=ONE, state="train")))
        wait_until(lambda: warned(service, "it speaks for cam-2"), "a warning")
        states = {view.device: view.state for view in service.journal.snapshot.devices}
        assert states["cam-2"] == "idle"

        one.say(("cam-2", birth(status="lost")))
        wait_until(lambda: "cam-2" not in there(service), "the loss")
        other.say(("cam-2", birth(TWO)))
        wait_until(lambda: service.registry.session("cam-2") == TWO, "the move to another site")
        one.say(("cam-2", birth()))
        other.link.send(TOPICS.up_site("gw-b"), SiteMessages(session=ONE, batch=b"none"))
        wait_until(lambda: warned(service, "A batch cannot be read"), "a warning")
        assert service.registry.session("cam-2") == TWO
    direct.stop()


def test_a_run_whose_devices_send_across_sites_is_refused(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    def put(*receivers: str) -> None:
        opened = exchange()
        asked = opened.tasks[0].model_copy(update={"device": "cam-1", "receivers": receivers})
        service.fleet.put(replace(opened, tasks=(asked,)))
        service.fleet.drop(opened)

    with gateway(mosquitto, "gw-a") as one, gateway(mosquitto, "gw-b") as other:
        one.say(("cam-1", birth()), ("cam-2", birth()))
        other.say(("cam-3", birth()))
        wait_until(lambda: len(there(service)) == 3, "the devices")
        put("cam-2")
        for far in ("cam-3", "cam-9"):
            with pytest.raises(NotAllowedError) as caught:
                put("cam-2", far)
            assert caught.value.code == "site.relays"


def test_a_device_leaves_a_site_only_after_it_was_lost_there(
    mosquitto: MosquittoBroker, service: Service
) -> None:
    direct = Link(mosquitto.address, "direct", lambda arrival: None)
    direct.start_now(PATIENCE)

    def appears() -> None:
        direct.send(TOPICS.birth("cam-1"), birth(TWO))
        direct.send(TOPICS.progress("cam-1"), Progress(session=TWO, state="idle"))

    with gateway(mosquitto, "gw-a") as one:
        one.say(("cam-1", birth()))
        wait_until(lambda: there(service) == {"cam-1"}, "the device at the site")
        appears()
        wait_until(lambda: warned(service, "cam-1 is at site gw-a"), "a warning")
        assert service.registry.session("cam-1") == ONE
        one.say(("cam-1", birth(status="lost")))
        wait_until(lambda: there(service) == set(), "the loss")
        appears()
        wait_until(lambda: service.registry.session("cam-1") == TWO, "the device by itself")
        assert service._sites.gateway_of("cam-1") == ""
    direct.stop()
