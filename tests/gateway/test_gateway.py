"""A gateway between two real brokers; the test plays the coordinator upstream and a device."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from edgefed.config.values.address import Address
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.errors import EdgeFedError, StorageError
from edgefed.events.base.coordinator_states import REMOVED, STOPPED
from edgefed.events.base.model import Event
from edgefed.gateway.gateway import MOST_OTHERS, REPEAT_EVERY, Gateway, Upstream
from edgefed.transport.inbox import Arrival, Incoming, LinkUp
from edgefed.transport.link import Link
from edgefed.transport.reply_resender import MAX_REPEAT
from edgefed.wire.blobs import chunk
from edgefed.wire.codecs import CODECS
from edgefed.wire.envelope import decode, encode
from edgefed.wire.message_parts import BlobRef, Patch
from edgefed.wire.messages import (
    Birth,
    Cancel,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Task,
)
from edgefed.wire.site_messages import (
    FROM_DEVICES,
    GatewayState,
    SiteMessages,
    SumReply,
    SumRequest,
    pack_batches,
    unpack_batch,
)
from edgefed.wire.tensors import digest, pack
from edgefed.wire.topics import Topics
from edgefed.worker.task_inputs import TaskInputs
from tests.coordinator.light_devices import HandClock
from tests.transport.listening import PATIENCE, wait_until

pytestmark = pytest.mark.mosquitto

UP, SITE = Topics("plant"), Topics("hall")
SESSION, HUB = "a" * 16, "b" * 16
WEIGHTS, OLD_PATCH = pack({}), b"an older patch that the gateway does not need itself"
DELTA = bytes(range(256)) * 400


class Hub:
    """The coordinator upstream, as a test plays it."""

    def __init__(self, address: Address) -> None:
        self.blobs = {digest(data): data for data in (WEIGHTS, OLD_PATCH)}
        self.session = ""
        self.states: list[GatewayState] = []
        self.heard: list[tuple[str, Message]] = []
        self.needs: list[Need] = []
        self.chunks: list[Chunk] = []
        self.link = Link(address, "hub", self._take, subscriptions=(UP.every_up(),))
        self.link.start_now(PATIENCE)

    def say(self, *messages: tuple[str, Message]) -> None:
        for batch in pack_batches(messages) if messages else (b"",):
            said = SiteMessages(session=self.session, batch=batch)
            self.link.send(UP.down_site("gw"), said)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for _, message in self.heard if isinstance(message, kind)]

    def _take(self, arrival: Arrival) -> None:
        parsed = UP.parse(arrival.topic) if isinstance(arrival, Incoming) else None
        if not isinstance(arrival, Incoming) or parsed is None:
            return
        match decode(arrival.payload, parsed.spec.message):
            case GatewayState() as state:
                self.session = self.session or state.session
                self.states.append(state)
            case SiteMessages() as messages:
                pairs = unpack_batch(messages.batch, *FROM_DEVICES)
                self.heard += [(device, message) for device, message, _ in pairs]
            case Need() as need:
                self.needs.append(need)
                data = self.blobs[need.digest]
                piece = Chunk(digest=need.digest, index=0, data=chunk(data, 0))
                self.link.send(UP.down_chunk("gw"), piece)
            case Chunk() as piece:
                self.chunks.append(piece)


class Device:
    """A device at the site."""

    def __init__(self, address: Address, name: str = "cam-1", site: Topics = SITE) -> None:
        self.name, self.site, self.heard = name, site, list[Message]()
        filters = (site.every_down(name), site.coordinator())
        self.link = Link(address, name, self._take, subscriptions=filters)
        self.link.start_now(PATIENCE)
        wait_until(lambda: self.of(CoordinatorState) != [], "the site")
        birth = Birth(session=SESSION, status="online", samples=5)
        self.link.send(self.site.birth(self.name), birth, retain=True)
        self.progress("idle")

    def progress(self, state: str) -> None:
        said = Progress.model_validate({"session": SESSION, "state": state})
        self.link.send(self.site.progress(self.name), said)

    def send(self, topic: str, message: Message) -> None:
        self.link.send(topic, message)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    def _take(self, arrival: Arrival) -> None:
        parsed = self.site.parse(arrival.topic) if isinstance(arrival, Incoming) else None
        if isinstance(arrival, Incoming) and parsed is not None:
            self.heard.append(decode(arrival.payload, parsed.spec.message))


class Scene:
    def __init__(self, upstream: Address, site: Address, folder: Path) -> None:
        self.hub, self.clock = Hub(upstream), HandClock()
        self.gateway = Gateway(
            Upstream("plant", "gw", upstream, folder / "gateway"),
            ServiceSettings(site, "hall", folder / "site", gateway="gw"),
            self.clock,  # it stands still: nothing is sent again by itself
        )
        self.errors: list[EdgeFedError] = []
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        wait_until(lambda: self.hub.session != "", "the gateway")
        self.hub.say()
        self.device = Device(site)
        wait_until(lambda: self.hub.of(Birth) != [], "the device")

    def _serve(self) -> None:
        try:
            self.gateway.serve()
        except EdgeFedError as error:
            self.errors.append(error)

    def close(self) -> None:
        self.gateway.stop()
        self.thread.join()
        self.device.link.stop()
        self.hub.link.stop()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    up, down = (Address(LOOPBACK, free_port()) for _ in range(2))
    with MosquittoBroker(up, tmp_path / "up"), MosquittoBroker(down, tmp_path / "down"):
        made = Scene(up, down, tmp_path)
        try:
            yield made
        finally:
            made.close()


def task(index: int = 0) -> Task:
    patch = Patch(base="9" * 64, blob=digest(OLD_PATCH), size=len(OLD_PATCH))
    far = Patch(base="8" * 64, blob="7" * 64, size=9)
    ref = BlobRef(digest=digest(WEIGHTS), size=len(WEIGHTS), patches=(patch,), direct=(far, patch))
    return Task(
        run="r-1",
        exchange=f"r-1-{index}",
        index=index,
        round=1,
        question="fit",
        device="cam-1",
        deadline=PATIENCE,
        seed=1,
        algorithm="fedavg",
        settings={},
        model={},
        training={},
        codec="fp32",
        samples=5,
        blobs={"weights": ref},
        params={},
        nonce="0" * 16,
    )


def answer(scene: Scene, device: Device | None = None) -> Reply:
    """Let a device answer its task with a blob that the gateway pulls."""
    name, device = digest(DELTA), device or scene.device
    reply = Reply(
        run="r-1",
        exchange="r-1-0",
        index=0,
        device=device.name,
        session=SESSION,
        bases={"weights": digest(WEIGHTS)},
        status="ok",
        samples=5,
        blobs={"delta": BlobRef(digest=name, size=len(DELTA))},
        inline={name: DELTA},
    )
    device.send(device.site.reply(device.name), reply)
    wait_until(lambda: scene.hub.of(Reply) != [], "the reply")
    return reply


def test_a_task_goes_down_with_its_blobs_and_a_reply_up_until_its_verdict(scene: Scene) -> None:
    hub, device = scene.hub, scene.device
    hub.say(("cam-1", task()))
    wait_until(lambda: device.of(Task) != [], "the task")
    (given,) = device.of(Task)
    assert isinstance(given, Task)
    sent = task()
    ref = sent.blobs["weights"]
    ref = ref.model_copy(update={"direct": ref.direct[1:]})  # the first is not at the gateway
    assert given == sent.model_copy(update={"session": SESSION, "blobs": {"weights": ref}})
    assert {need.digest for need in hub.needs} == {digest(WEIGHTS), digest(OLD_PATCH)}
    for wanted in (WEIGHTS, OLD_PATCH):  # an older device may need what the gateway does not
        device.send(SITE.up_need("cam-1"), Need(digest=digest(wanted), first=False, chunks=(0,)))
    wait_until(lambda: len(device.of(Chunk)) == 2, "both blobs")

    reply = answer(scene)
    assert hub.of(Reply) == [reply.model_copy(update={"inline": {}})]
    asked = len(device.of(Task))
    hub.say(("cam-1", task()))  # as after its own restart
    wait_until(lambda: len(hub.of(Reply)) == 2, "the reply again")
    assert len(device.of(Task)) == asked, "the device is left in peace"

    scene.gateway._inbox.put(LinkUp())  # what was on its way may be lost
    wait_until(lambda: len(hub.of(Reply)) == 3, "the reply after a connection that was lost")

    hub.link.send(UP.down_need("gw"), Need(digest=digest(WEIGHTS), first=False, chunks=(0,)))
    hub.link.send(UP.down_need("gw"), Need(digest=digest(DELTA), first=False, chunks=(0,)))
    wait_until(lambda: hub.chunks != [], "the delta")
    assert [piece.digest for piece in hub.chunks] == [digest(DELTA)], "and no other blob"

    hub.say(("cam-1", Receipt(exchange="r-1-0", outcome="accepted")))
    wait_until(lambda: device.of(Receipt) != [], "the receipt")
    births = len(hub.of(Birth))
    scene.clock.seconds += MAX_REPEAT
    wait_until(lambda: len(hub.of(Birth)) > births, "news of later")
    assert len(hub.of(Reply)) == 3, "and no reply that has its verdict"
    state = CoordinatorState(
        session=HUB, owner="hub", status="online", run="r-1", run_status="running", closed_through=0
    )
    hub.link.send(UP.coordinator(), state, retain=True)
    closed = Link(scene.device.link.address, "all", device._take, subscriptions=("#",))
    closed.start_now(PATIENCE)

    def told() -> bool:
        states = device.of(CoordinatorState)
        return any(s.run == "r-1" and s.closed_through == 0 for s in states)  # type: ignore[attr-defined]

    wait_until(told, "the end of the exchange at the site")
    closed.stop()


def test_a_sum_goes_up_in_place_of_the_replies_until_each_has_its_verdict(scene: Scene) -> None:
    hub = scene.hub
    devices = {"cam-1": scene.device, "cam-2": Device(scene.device.link.address, "cam-2")}
    asked = {
        name: task().model_copy(
            update={"device": name, "settings": {"weighting": "examples"}, "nonce": SESSION}
        )
        for name in devices
    }
    request = SumRequest(
        run="r-1",
        exchange="r-1-0",
        index=0,
        total=10,
        always=True,
        lost_grace=None,
        seconds=PATIENCE,
        devices=(*devices,),
    )
    delta = CODECS["fp32"].encode({}, np.random.default_rng(0))
    answered = Reply(
        run="r-1",
        exchange="r-1-0",
        index=0,
        device="cam-1",
        session=SESSION,
        bases={"weights": digest(WEIGHTS)},
        status="ok",
        samples=5,
        blobs={"delta": BlobRef(digest=digest(delta), size=len(delta))},
        inline={digest(delta): delta},
        nonce=SESSION,
    )

    def ask(name: str) -> None:
        before = len(devices[name].of(Task))
        hub.say(("gw", request), (name, asked[name]))
        wait_until(lambda: len(devices[name].of(Task)) > before, "the task")

    def answer_again(name: str, **changes: str) -> None:
        changed = answered.model_copy(update={"device": name, **changes})
        devices[name].send(SITE.reply(name), changed)

    def cancel(name: str) -> None:
        before = len(devices[name].of(Cancel))
        hub.say((name, Cancel(exchange="r-1-0")))
        wait_until(lambda: len(devices[name].of(Cancel)) > before, "the cancelling")

    def kept(*names: str) -> None:
        known = scene.gateway._tasks._sums._open["r-1-0"]
        wait_until(lambda: [*known.replies] == [*names], "what is to be summed")

    ask("cam-1")
    answer_again("cam-1", status="failed")
    wait_until(lambda: hub.of(Reply) != [], "the failure, passed on")
    failed = hub.of(Reply)
    cancel("cam-1")
    ask("cam-1")
    answer_again("cam-1")
    kept("cam-1")
    cancel("cam-1")
    ask("cam-2")
    answer_again("cam-2")
    kept("cam-2")
    ask("cam-1")
    assert hub.of(Reply) == failed, "it waits for cam-1, and what that answered does not count"
    answer_again("cam-1")
    wait_until(lambda: hub.of(SumReply) != [], "the sum")
    (made,) = hub.of(SumReply)
    assert isinstance(made, SumReply)
    assert [one.device for one in made.answers] == [*devices]
    name = made.blobs["sum"].digest
    for wanted in (digest(delta), name):
        hub.link.send(UP.down_need("gw"), Need(digest=wanted, first=False, chunks=(0,)))
    wait_until(lambda: hub.chunks != [], "the sum's blob")
    assert [piece.digest for piece in hub.chunks] == [name], "and no update"

    cancel("cam-1")  # as when the coordinator is stopped
    ask("cam-1")
    answer_again("cam-1")
    wait_until(lambda: len(hub.of(SumReply)) == 2, "the sum again")
    hub.say(("cam-1", Receipt(exchange="r-1-0", outcome="accepted")))
    wait_until(lambda: scene.device.of(Receipt) != [], "the receipt")
    hub.say(("cam-2", asked["cam-2"]))
    wait_until(lambda: len(hub.of(SumReply)) == 3, "the sum, for the other receipt")
    assert hub.of(Reply) == [*failed, *[made] * 3], "and never an update"
    state = CoordinatorState(
        session=HUB, owner="hub", status="online", run="r-1", run_status="running", closed_through=0
    )
    cache = scene.gateway._site.cache
    assert cache.has(name)
    hub.link.send(UP.coordinator(), state, retain=True)
    wait_until(lambda: not cache.has(name), "the end of the exchange")
    devices["cam-2"].link.stop()


def test_a_pause_at_the_site_reaches_the_fleet(scene: Scene) -> None:
    orders = scene.gateway._site._make_device_orders()
    orders.pause("cam-1", "maria", "")

    def last() -> Message:
        return scene.hub.of(Progress)[-1]

    paused = Progress(session=SESSION, state="paused", reason="paused at its site by maria")
    wait_until(lambda: last() == paused, "the pause")
    seen = len(scene.hub.of(Progress))
    scene.device.progress("done")
    wait_until(lambda: len(scene.hub.of(Progress)) > seen, "the device's progress")
    assert last() == paused
    orders.resume("cam-1")
    wait_until(lambda: last() == Progress(session=SESSION, state="done"), "the end of the pause")


def test_why_a_device_leaves_its_site_reaches_the_fleet(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def news(seen: int, of: str = "cam-1") -> list[tuple[str, str]]:
        heard = (message for device, message in scene.hub.heard[seen:] if device == of)
        said = [message for message in heard if isinstance(message, Birth | Progress)]
        return [(m.status, "") if isinstance(m, Birth) else (m.state, m.reason) for m in said]

    wait_until(lambda: ("idle", "") in news(0), "its progress")
    leave = Progress(session=SESSION, state="lost", reason=STOPPED)
    scene.device.send(SITE.progress("cam-1"), leave)
    seen = len(scene.hub.heard)
    scene.device.send(SITE.birth("cam-1"), Birth(session=SESSION, status="lost", samples=5))
    wait_until(lambda: ("lost", "") in news(seen), "its end")
    assert news(seen)[:2] == [("lost", STOPPED), ("lost", "")]
    other = Device(scene.device.link.address, "cam-2")
    wait_until(lambda: ("idle", "") in news(0, "cam-2"), "another device")
    for name, linked in (("cam-1", True), ("cam-2", False)):
        seen = len(scene.hub.heard)
        with monkeypatch.context() as link:
            if not linked:  # the next announcement says so
                link.setattr(Link, "connected", False)
            scene.gateway._site.dispatcher.drop_device(name)
        scene.clock.seconds += 0 if linked else REPEAT_EVERY
        wait_until(lambda: ("lost", "") in news(seen, name), "its removal")  # noqa: B023
        assert news(seen, name)[-2:] == [("lost", REMOVED), ("lost", "")]
    other.link.stop()


def test_a_site_shows_the_run_that_its_devices_work_for(scene: Scene) -> None:
    def shown() -> tuple[object, ...]:
        run = journal.snapshot.run
        return () if run is None else (run.run, run.status, run.round, run.rounds, run.algorithm)

    def upstream(status: str, number: int) -> None:
        state = {"session": HUB, "owner": "o", "status": "online", "run_status": status}
        said = CoordinatorState.model_validate({**state, "run": "r-1", "round": number})
        scene.hub.link.send(UP.coordinator(), said, retain=True)

    def asked(number: int) -> None:
        changed = {"round": number, "rounds": 5, "exchange": f"r-1-{number}", "index": number}
        scene.hub.say(("cam-1", task().model_copy(update=changed)))

    begun, statuses = list[int](), list[str]()
    journal = scene.gateway._site.journal

    def hear(event: Event, number: int) -> None:
        del number
        if event.kind == "round":
            begun.append(event.fields["round"])
        statuses.extend(event.fields.get("status", "") for _ in range(event.kind == "run"))

    journal.listen(hear)
    upstream("running", 0)
    wait_until(lambda: shown() == ("r-1", "running", 0, 0, ""), "the run")
    asked(2)
    wait_until(lambda: shown() == ("r-1", "running", 2, 5, "fedavg"), "its round")
    asked(1)  # repeated, or late
    asked(3)
    wait_until(lambda: shown() == ("r-1", "running", 3, 5, "fedavg"), "the next round")
    upstream("a status of a later version", 3)
    upstream("aborted", 2)
    wait_until(lambda: shown() == ("r-1", "aborted", 2, 5, "fedavg"), "its end")
    assert begun == [2, 3]
    assert statuses == ["running", "", "aborted"]


def test_what_is_meant_for_another_life_of_a_gateway_is_ignored(scene: Scene) -> None:
    own, scene.hub.session = scene.hub.session, "c" * 16
    scene.hub.say(("cam-1", task(1)))
    scene.hub.session = own
    scene.hub.say(("cam-2", task(2)))  # of another device than it names
    scene.hub.say(("cam-1", task(3)))
    wait_until(lambda: scene.device.of(Task) != [], "a task")
    assert [given.exchange for given in scene.device.of(Task)] == ["r-1-3"]  # type: ignore[attr-defined]


def test_a_task_that_met_a_full_disk_is_passed_on_when_it_is_repeated(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(inputs: TaskInputs) -> bool:
        failed.set()
        raise StorageError("The disk is full.", code="storage.full")

    failed = threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(TaskInputs, "assemble", full)
        scene.hub.say(("cam-1", task()))
        assert failed.wait(PATIENCE)
    assert scene.device.of(Task) == []
    scene.hub.say(("cam-1", task()))
    wait_until(lambda: scene.device.of(Task) != [], "the task")


def test_an_exchange_past_its_deadline_is_waited_for_without_turning(scene: Scene) -> None:
    """Upstream decides who is late; the link may be cut for longer than a deadline."""
    scene.hub.say(("cam-1", task()))
    wait_until(lambda: scene.device.of(Task) != [], "the task")
    scene.clock.seconds += 10 * PATIENCE
    turns = scene.gateway._site.fleet.next_reply
    counted = Counter[str]()

    def counting(until: float, stop: Callable[[], bool]) -> Delivered | None:
        counted["turns"] += 1
        return turns(until, stop)

    scene.gateway._site.fleet.next_reply = counting  # type: ignore[method-assign]
    time.sleep(1.5)
    assert counted["turns"] < 20
    answer(scene)


def test_devices_are_announced_again_without_a_sign_of_life(scene: Scene) -> None:
    """One may have been refused until now."""
    births, states = len(scene.hub.of(Birth)), len(scene.hub.of(Progress))
    scene.clock.seconds += REPEAT_EVERY
    wait_until(lambda: len(scene.hub.of(Birth)) > births, "the device again")
    assert len(scene.hub.of(Progress)) == states


def test_a_gateway_may_be_at_the_site_of_another(scene: Scene, tmp_path: Path) -> None:
    third, room = Address(LOOPBACK, free_port()), Topics("room")
    with MosquittoBroker(third, tmp_path / "third"):
        inner = Gateway(
            Upstream("hall", "room", scene.device.link.address, tmp_path / "inner"),
            ServiceSettings(third, "room", tmp_path / "room", gateway="room"),
            scene.clock,
        )
        thread = threading.Thread(target=inner.serve)
        thread.start()
        device = Device(third, "cam-2", room)
        wait_until(lambda: "cam-2" in [name for name, _ in scene.hub.heard], "the device")
        scene.hub.say(("cam-2", task().model_copy(update={"device": "cam-2"})))
        wait_until(lambda: device.of(Task) != [], "the task")
        reply = answer(scene, device)
        assert scene.hub.of(Reply) == [reply.model_copy(update={"inline": {}})]
        scene.hub.say(("cam-2", Receipt(exchange="r-1-0", outcome="accepted")))
        closed = CoordinatorState(
            session=HUB, owner="hub", status="online", run="r-1", closed_through=0
        )
        scene.hub.link.send(UP.coordinator(), closed, retain=True)
        wait_until(lambda: closed_at(device) != [], "the close")
        assert [isinstance(m, Receipt) for m in device.heard[: closed_at(device)[0]]][-1]
        inner.stop()
        thread.join()
        device.link.stop()


def closed_at(device: Device) -> list[int]:
    """Return where a device heard that the first exchange is over."""
    heard = enumerate(device.heard)
    return [n for n, m in heard if isinstance(m, CoordinatorState) and m.closed_through == 0]


def test_an_outage_upstream_names_the_option_of_that_broker_and_the_end_a_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    up, down = (Address(LOOPBACK, free_port()) for _ in range(2))
    with MosquittoBroker(down, tmp_path / "down"):
        gateway = Gateway(
            Upstream("plant", "gw", up, tmp_path / "gateway"),
            ServiceSettings(down, "hall", tmp_path / "site", gateway="gw"),
            HandClock(),
        )
        thread = threading.Thread(target=gateway.serve)
        thread.start()
        wait_until(lambda: f"No MQTT broker at {up}" in caplog.text, "the outage")
        caplog.set_level("INFO", "edgefed")
        gateway.stop()
        thread.join()
    assert "the gateway stopped" in caplog.text
    assert "or check --upstream mqtt://HOST:PORT" in caplog.text
    assert "--broker" not in caplog.text


def test_of_two_gateways_of_one_name_the_older_one_ends(scene: Scene) -> None:
    other = GatewayState(session="d" * 16, status="online", site="hall")
    lost = other.model_copy(update={"status": "lost"})
    scene.hub.link.send(UP.gateway("gw"), lost, retain=True)  # a will that came late
    wait_until(lambda: scene.hub.states[-1].status == "online", "its announcement again")
    assert scene.hub.states[-1].session == scene.hub.session
    scene.hub.link.send(UP.gateway("gw"), other, retain=True)
    scene.thread.join(PATIENCE)
    assert not scene.thread.is_alive()
    assert [error.code for error in scene.errors] == ["gateway.taken"]


def test_an_announcement_that_the_broker_kept_too_long_ends_no_gateway(scene: Scene) -> None:
    other = GatewayState(session="d" * 16, status="online", site="hall")
    payload = encode(other)
    for _ in range(MOST_OTHERS - 1):
        scene.gateway._take_message(Incoming(UP.gateway("gw"), payload, retained=True))
    assert scene.thread.is_alive()
    scene.gateway._take_message(Incoming(UP.gateway("gw"), payload, retained=True))
    scene.thread.join(PATIENCE)
    assert [error.code for error in scene.errors] == ["gateway.taken"]
