"""The coordinator's dispatcher with a real broker and a scripted device."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import numpy as np
import psutil
import pytest

from broker.mosquitto import MosquittoBroker
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.dispatch.dispatcher import Dispatcher
from edgefed.coordinator.dispatch.dispatcher_deps import DispatcherDeps
from edgefed.coordinator.dispatch.mqtt_fleet import MqttFleet
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.exchanges.reply_checks import LEAST_ROOM
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.events.base.coordinator_states import CONNECTION_BROKE, STOPPED
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.process.lock import FolderLock
from edgefed.transport import blob_intake
from edgefed.transport.inbox import Inbox as Arrivals
from edgefed.transport.inbox import InboxLimits, Subscribed
from edgefed.transport.link import Link
from edgefed.version import PROTOCOL
from edgefed.wire.blobs import BlobCache, chunk, chunk_count
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import (
    Birth,
    BlobRef,
    Chunk,
    CoordinatorState,
    Message,
    Need,
    Progress,
    Receipt,
    Reply,
    Request,
    Task,
    Telemetry,
)
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics
from tests.transport.listening import PATIENCE, Inbox, wait_until

pytestmark = pytest.mark.mosquitto

TOPICS = Topics("review")
OURS, OTHER = "a" * 16, "b" * 16
DEVICES = ("one", "two")
DATA = np.random.default_rng(1).bytes(3 * 120 * 1024)


def task(device: str, index: int = 0) -> Task:
    return Task(
        run="r-1",
        exchange=f"r-1-{index}",
        index=index,
        round=1,
        question="fit",
        device=device,
        deadline=PATIENCE,
        seed=1,
        algorithm="fedavg",
        settings={},
        model={},
        training={},
        codec="fp32",
        samples=5,
        blobs={},
        params={},
    )


def exchange(index: int = 0) -> OpenExchange:
    tasks = tuple(task(device, index) for device in DEVICES)
    return OpenExchange(
        exchange=f"r-1-{index}",
        index=index,
        name="fit",
        round=1,
        tasks=tasks,
        wanted=1,
        quorum=1,
        deadline=PATIENCE,
    )


def reply(device: str, size: int, name: str, **changes: str) -> Reply:
    fields = {
        "run": "r-1",
        "exchange": "r-1-0",
        "index": 0,
        "device": device,
        "session": OTHER,
        "bases": {},
        "status": "ok",
        "samples": 5,
        "blobs": {"delta": BlobRef(digest=name, size=size)},
        **changes,
    }
    return Reply.model_validate(fields)


class Scene:
    """A dispatcher at work, and one client that plays every device."""

    def __init__(
        self, broker: MosquittoBroker, folder: Path, limits: InboxLimits | None = None
    ) -> None:
        clock = SystemClock()
        inbox: Arrivals[NoReturn] = Arrivals(clock, limits)
        self.notes: list[str] = []
        self.requests: list[str] = []
        self.greetings = 0
        self.staging = folder / "staging"
        self.cache = BlobCache(folder / "blobs", 2**30)
        self.relays = RelayedBlobs(self.cache, folder / "relays")
        journal = EventJournal("review", clock)
        self.journal = journal
        journal.listen(lambda event, _: self.notes.append(str(event.fields.get("text", ""))))
        self.registry = DeviceRegistry(journal, clock)
        filters = (TOPICS.every_up(), TOPICS.every_request(), TOPICS.coordinator())
        self.link = Link(broker.address, "dispatcher", inbox.put, subscriptions=filters)
        self.dispatcher = Dispatcher(
            DispatcherDeps(
                link=self.link,
                inbox=inbox,
                topics=TOPICS,
                registry=self.registry,
                cache=self.cache,
                relays=self.relays,
                staging=self.staging,
                journal=journal,
                clock=clock,
                jitter=random.Random(1),
                on_request=lambda _, request, signer: self.requests.append(request.action),
                on_up=self._greet,
                session=OURS,
            )
        )
        self.fleet = MqttFleet(
            self.dispatcher, self.registry, journal, clock, lambda run, through: None
        )
        self.heard = Inbox()
        self.device = Link(
            broker.address, "device", self.heard, subscriptions=(f"{TOPICS.root}/down/#",)
        )

    def _greet(self) -> None:
        self.greetings += 1

    def start(self, *, play_births: bool = True) -> None:
        """Connect; with ``play_births`` the one client is every device, else there are agents."""
        self.link.start_now(PATIENCE)
        self.dispatcher.start()
        self.device.start_now(PATIENCE)
        self.heard.wait(Subscribed)
        for device in DEVICES if play_births else ():
            birth = Birth(session=OTHER, status="online", samples=5)
            self.send(TOPICS.birth(device), birth, retain=True)
        wait_until(lambda: len(self.registry.roster()) == len(DEVICES), "the devices")

    def stop(self) -> None:
        self.device.stop()
        self.dispatcher.stop()
        self.link.stop()

    def send(self, topic: str, message: Message, *, retain: bool = False) -> None:
        self.device.publish(topic, encode(message), retain=retain)

    def told(self, topic: str, kind: type[Message]) -> list[Message]:
        found = [each for each in self.heard.messages() if each.topic == topic]
        return [decode(each.payload, kind) for each in found]

    def upload(self, device: str, name: str) -> None:
        """Send every chunk of ``DATA`` as a device would."""
        for number in range(chunk_count(len(DATA))):
            part = Chunk(digest=name, index=number, data=chunk(DATA, number))
            self.send(TOPICS.up_chunk(device), part)


@contextmanager
def at_work(
    broker: MosquittoBroker,
    folder: Path,
    limits: InboxLimits | None = None,
    *,
    play_births: bool = True,
) -> Iterator[Scene]:
    made = Scene(broker, folder, limits)
    made.start(play_births=play_births)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def scene(mosquitto: MosquittoBroker, tmp_path: Path) -> Iterator[Scene]:
    with at_work(mosquitto, tmp_path) as made:
        yield made


def never() -> bool:
    return False


def test_a_stalled_connection_is_looked_for_even_if_nothing_is_published(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    monkeypatch.setattr(scene.link, "end_if_stalled", looked.set)
    assert looked.wait(PATIENCE)


def test_without_a_broker_no_chunk_that_is_due_wakes_the_dispatcher(scene: Scene) -> None:
    scene.link.stop()
    scene.dispatcher._intake.next_due = 0.0
    assert scene.dispatcher._patience() > 0.1


def test_due_times_are_looked_at_while_messages_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arrivals, "waiting", True)
    looked = threading.Event()
    monkeypatch.setattr(scene.link, "end_if_stalled", looked.set)
    assert looked.wait(PATIENCE)


def test_the_files_of_a_transfer_are_closed_when_it_stops(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with at_work(mosquitto, tmp_path) as scene:
        scene.dispatcher.open(PendingExchange(exchange(), time.monotonic()))
        name = digest(DATA)
        scene.send(TOPICS.reply("one"), reply("one", len(DATA), name))
        wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
        assert open_files(scene.staging) != []
    assert open_files(scene.staging) == []


def open_files(folder: Path) -> list[str]:
    return [each.path for each in psutil.Process().open_files() if str(folder) in each.path]


def test_a_folder_that_is_moved_away_is_told_without_a_write(scene: Scene) -> None:
    folder = scene.staging.parent
    lock = FolderLock(folder, "a coordinator")
    folder.rename(folder.with_name("moved"))
    try:
        wait_until(lambda: any("was moved" in note for note in scene.notes), "the note")
    finally:
        folder.with_name("moved").rename(folder)
        lock.release()


@pytest.mark.parametrize(
    ("size", "status"), [(3 * LEAST_ROOM, "ok"), (4 * 2**30, "ok"), (len(DATA), "failed")]
)
def test_what_will_not_be_merged_is_judged_without_its_blobs(
    scene: Scene, size: int, status: str
) -> None:
    pending = PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    scene.send(TOPICS.reply("one"), reply("one", size, "0" * 64, status=status))
    delivered = pending.arrivals.get(timeout=PATIENCE)
    assert delivered is not None
    assert delivered.reply.device == "one"
    assert scene.told(TOPICS.down_need("one"), Need) == []
    assert not scene.staging.exists()
    scene.dispatcher.close(pending)


def test_blobs_of_an_exchange_that_is_over_are_deleted(scene: Scene) -> None:
    kept = scene.cache.put(b"weights")
    name, other = digest(DATA), "0" * 64
    pending = PendingExchange(exchange(3), time.monotonic())
    scene.dispatcher.open(pending)
    half = reply("two", len(DATA), other, exchange="r-1-3")
    scene.send(TOPICS.reply("two"), half)
    whole = reply("one", len(DATA), name, exchange="r-1-3")
    scene.send(TOPICS.reply("one"), whole)
    wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
    scene.upload("one", name)
    delivered = pending.arrivals.get(timeout=PATIENCE)
    assert delivered is not None
    assert delivered.read(name) == DATA
    scene.dispatcher.close(pending)
    scene.dispatcher.forget("r-1", 2)  # the exchange is still to be merged
    assert scene.cache.has(name)
    assert list(scene.staging.iterdir())
    scene.dispatcher.forget("r-1", 3)
    assert not scene.cache.has(name)
    assert scene.cache.has(kept)
    assert list(scene.staging.iterdir()) == []


def blobs_in(folder: Path) -> list[str]:
    return [path.name for path in (folder / "blobs").iterdir()]


@pytest.mark.parametrize("inside", [False, True])
def test_a_small_blob_is_in_memory_until_every_reply_with_it_has_its_verdict(
    scene: Scene, tmp_path: Path, *, inside: bool
) -> None:
    data = b"x" * 1000
    name, pending = digest(data), PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    for device in DEVICES:
        whole = reply(device, len(data), name)
        carried = {"inline": {name: data}} if inside else {}
        scene.send(TOPICS.reply(device), whole.model_copy(update=carried))
    if not inside:
        wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
        scene.send(TOPICS.up_chunk("one"), Chunk(digest=name, index=0, data=data))
    arrived = [pending.arrivals.get(timeout=PATIENCE) for _ in DEVICES]
    assert blobs_in(tmp_path) == []
    for delivered in arrived:
        assert delivered is not None
        assert delivered.read(name) == data
        scene.fleet.verdict(delivered.reply, "accepted", "")
    assert not scene.cache.has(name)
    scene.dispatcher.close(pending)


@pytest.mark.parametrize("shared", [False, True])
def test_a_blob_without_a_verdict_goes_with_its_exchange_unless_it_is_read_later(
    scene: Scene, tmp_path: Path, *, shared: bool
) -> None:
    data = b"x" * 1000
    name = digest(data)
    pending = PendingExchange(exchange(), time.monotonic(), shared=shared)
    scene.dispatcher.open(pending)
    whole = reply("one", len(data), name).model_copy(update={"inline": {name: data}})
    scene.send(TOPICS.reply("one"), whole)
    assert pending.arrivals.get(timeout=PATIENCE) is not None
    scene.dispatcher.close(pending)
    assert scene.cache.has(name) == shared
    assert blobs_in(tmp_path) == [name] * shared


@pytest.mark.parametrize("ends", ["lost", "failed"])
def test_a_half_reply_that_is_given_up_leaves_no_blob_behind(
    scene: Scene, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ends == "failed":
        monkeypatch.setattr(blob_intake, "RETRY", 0.01)
        monkeypatch.setattr(blob_intake, "MAX_RETRIES", 1)
    here, lacking = b"x" * 1000, b"y" * 1000
    pending = PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    refs = {
        role: BlobRef(digest=digest(data), size=1000)
        for role, data in {"a": here, "b": lacking}.items()
    }
    carried = {"blobs": refs, "inline": {digest(here): here}}
    scene.send(TOPICS.reply("one"), reply("one", 1000, digest(here)).model_copy(update=carried))
    wait_until(lambda: bool(scene.told(TOPICS.down_need("one"), Need)), "a request")
    if ends == "lost":
        scene.send(TOPICS.birth("one"), Birth(session=OTHER, status="lost"), retain=True)
    wait_until(lambda: not scene.cache.has(digest(here)), "the blob to go")
    scene.dispatcher.close(pending)


def test_a_reply_that_came_twice_can_be_read_after_its_device_is_lost(scene: Scene) -> None:
    data = b"x" * 1000
    name, pending = digest(data), PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    for times in (1, 2):
        scene.send(TOPICS.reply("one"), reply("one", len(data), name))
        scene.send(TOPICS.request(f"local/{times}"), Request(nonce=OTHER, action="mark"))
        wait_until(lambda times=times: len(scene.requests) == times, "the reply")  # type: ignore[misc]
    scene.send(TOPICS.up_chunk("one"), Chunk(digest=name, index=0, data=data))
    delivered = pending.arrivals.get(timeout=PATIENCE)
    assert delivered is not None
    scene.send(TOPICS.birth("one"), Birth(session=OTHER, status="lost"), retain=True)
    wait_until(lambda: not scene.registry.online("one"), "the loss")
    scene.send(TOPICS.request("local/3"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: len(scene.requests) == 3, "the end of its handling")
    assert delivered.read(name) == data
    scene.fleet.verdict(delivered.reply, "accepted", "")
    assert not scene.cache.has(name)
    scene.dispatcher.close(pending)


def test_a_reply_cannot_have_the_models_own_blob_deleted(scene: Scene) -> None:
    weights = scene.cache.put(DATA)
    scene.cache.pin(weights)
    pending = PendingExchange(exchange(), time.monotonic())
    scene.dispatcher.open(pending)
    scene.send(TOPICS.reply("one"), reply("one", len(DATA), weights))
    assert pending.arrivals.get(timeout=PATIENCE) is not None
    scene.dispatcher.close(pending)
    scene.dispatcher.forget("r-1", 0)
    assert scene.cache.get(weights) == DATA


def test_who_answers_after_enough_others_is_told_so(scene: Scene) -> None:
    blob = b"x"

    def answer() -> None:
        wait_until(lambda: all(scene.told(TOPICS.task(each), Task) for each in DEVICES), "tasks")
        for device in DEVICES:
            told = reply(device, 1, digest(blob)).model_copy(
                update={"inline": {digest(blob): blob}}
            )
            scene.send(TOPICS.reply(device), told)

    player = threading.Thread(target=answer)
    player.start()
    answers = scene.fleet.ask(exchange(), never)
    first = next(answers).reply.device
    player.join()
    # Its request is taken after the replies before it, in the order in which they were sent.
    scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: scene.requests == ["mark"], "the request")
    cast(Generator[Delivered, None, None], answers).close()
    (second,) = set(DEVICES) - {first}
    wait_until(lambda: bool(scene.told(TOPICS.receipt(second), Receipt)), "a receipt")
    (receipt,) = scene.told(TOPICS.receipt(second), Receipt)
    assert isinstance(receipt, Receipt)
    assert receipt.outcome == "late"
    assert scene.told(TOPICS.receipt(first), Receipt) == []


def state(session: str, status: str) -> CoordinatorState:
    return CoordinatorState.model_validate({"session": session, "owner": "o", "status": status})


def test_the_late_will_of_an_earlier_life_is_answered(scene: Scene) -> None:
    wait_until(lambda: scene.greetings == 1, "the first greeting")
    scene.send(TOPICS.coordinator(), state(OURS, "lost"))
    scene.send(TOPICS.coordinator(), state(OTHER, "lost"), retain=True)
    wait_until(lambda: scene.greetings == 2, "the second greeting")
    scene.send(TOPICS.coordinator(), state(OTHER, "online"))
    wait_until(lambda: any("another one is at work" in note for note in scene.notes), "a warning")
    assert scene.greetings == 2


def test_a_retained_request_is_not_carried_out(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    with at_work(mosquitto, tmp_path / "before") as scene:
        old = Request(nonce=OURS, action="old")
        scene.send(TOPICS.request("local/0"), old, retain=True)
        wait_until(lambda: scene.requests == ["old"], "the request")
    with at_work(mosquitto, tmp_path / "after") as scene:
        scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="new"))
        wait_until(lambda: bool(scene.requests), "the request")
        assert scene.requests == ["new"]


def test_wrongs_of_one_kind_are_noted_once_a_minute(scene: Scene) -> None:
    for number in range(50):
        scene.device.publish(TOPICS.reply("one"), b"garbage %d" % number)
    scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: scene.requests == ["mark"], "the request")
    assert len([note for note in scene.notes if "refused" in note]) == 1


def test_a_message_of_no_sender_is_told_with_its_topic(scene: Scene) -> None:
    scene.device.publish(TOPICS.coordinator(), b"garbage")
    wait_until(lambda: any("message on coordinator" in note for note in scene.notes), "a note")
    (note,) = (note for note in scene.notes if "message on coordinator" in note)
    assert note.startswith("the coordinator's topic: message on coordinator refused: ")


def test_a_device_of_a_version_that_is_too_old_is_not_taken(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefed.coordinator.dispatch.dispatcher.OLDEST_PROTOCOL", PROTOCOL)
    for device, version in (("older", PROTOCOL - 1), ("newer", PROTOCOL)):
        born = Birth(session="a" * 8, status="online", samples=5, protocol=version)
        scene.send(TOPICS.birth(device), born)
        scene.send(TOPICS.progress(device), Progress(session="a" * 8, state="idle"))
    wait_until(lambda: scene.registry.online("newer"), "the newer device")
    assert not scene.registry.online("older")
    why = f"it has protocol version {PROTOCOL - 1}; {PROTOCOL} is the oldest taken"
    assert f"older: message on birth refused: {why}" in scene.notes


def test_strangers_share_one_warning_whatever_names_they_invent(scene: Scene) -> None:
    deps = scene.dispatcher._deps
    unknown = replace(deps, known=lambda device: False)
    scene.dispatcher._deps = unknown
    for number in range(50):
        for topic in (TOPICS.reply(f"n-{number}"), TOPICS.request(f"viewer.v-{number}/0")):
            scene.device.publish(topic, b"garbage")
    scene.device.publish(TOPICS.reply("one"), b"garbage")
    scene.dispatcher._deps = replace(unknown, enrolled=lambda device: False)
    for number in range(50):
        birth = Birth(session=OTHER, status="online", samples=5)
        scene.send(TOPICS.birth(f"m-{number}"), birth)
    scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
    wait_until(lambda: scene.requests == ["mark"], "the request")
    refused = [note for note in scene.notes if "refused" in note]
    assert len(refused) == 2, refused
    assert any(note.startswith("strangers: ") for note in refused)
    assert any(note.startswith("one: message on reply refused: ") for note in refused)


def test_dropped_messages_are_noted_once_a_minute(
    mosquitto: MosquittoBroker, tmp_path: Path
) -> None:
    with at_work(mosquitto, tmp_path, InboxLimits(chunks=0)) as scene:
        for _ in range(2):
            scene.upload("one", digest(DATA))
            scene.requests.clear()
            scene.send(TOPICS.request("local/0"), Request(nonce=OTHER, action="mark"))
            wait_until(lambda: scene.requests == ["mark"], "the request")
            wait_until(lambda: any("too fast" in each for each in scene.notes), "the note")
        assert len([note for note in scene.notes if "too fast" in note]) == 1


def test_a_birth_that_was_lost_is_looked_up_when_its_device_speaks(scene: Scene) -> None:
    scene.registry._entries.clear()
    for device in DEVICES:
        scene.send(TOPICS.telemetry(device), Telemetry(session=OTHER))
    wait_until(lambda: len(scene.registry.roster()) == len(DEVICES), "the births")


def test_a_birth_that_is_published_again_ends_a_silence(scene: Scene) -> None:
    scene.registry.note_silent("one", 20.0)
    assert scene.registry.unheard_since("one", 0.0) is None
    scene.send(TOPICS.birth("one"), Birth(session=OTHER, status="online", samples=5), retain=True)
    wait_until(lambda: scene.registry.unheard_since("one", 0.0) is not None, "the end of it")


def test_a_farewell_has_its_reason_although_births_overtake_states(scene: Scene) -> None:
    reasons: list[str] = []

    def note(event: Event, number: int) -> None:
        if event.fields.get("state") == "lost":
            reasons.append(event.fields["reason"])

    scene.journal.listen(note)
    inbox, before = scene.dispatcher._deps.inbox, scene.link.received
    with scene.dispatcher._lock:  # the dispatcher takes the first message and waits
        scene.send(TOPICS.telemetry("one"), Telemetry(session=OTHER))
        wait_until(lambda: scene.link.received > before and not inbox._latest, "its first message")
        scene.send(TOPICS.progress("one"), Progress(session=OTHER, state="lost", reason=STOPPED))
        scene.send(TOPICS.birth("one"), Birth(session=OTHER, status="lost"), retain=True)
        wait_until(lambda: bool(inbox._urgent and inbox._latest), "the farewell")
    wait_until(lambda: not scene.registry.online("one"), "the end of the device")
    scene.send(TOPICS.birth("two"), Birth(session=OTHER, status="lost"), retain=True)
    wait_until(lambda: len(reasons) == 2, "the end of the other one")
    assert reasons == [STOPPED, CONNECTION_BROKE]
