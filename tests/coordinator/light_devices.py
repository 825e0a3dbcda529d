"""A dispatcher and a thousand simulated devices that share a few connections."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from edgefed.config.values.address import Address
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sender_limits import SenderLimits, everybody
from edgefed.coordinator.dispatch.dispatcher import Dispatcher
from edgefed.coordinator.dispatch.dispatcher_deps import DispatcherDeps
from edgefed.coordinator.dispatch.mqtt_fleet import MqttFleet
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.process.clock import SystemClock
from edgefed.transport.inbox import Arrival, Inbox, Incoming, Subscribed
from edgefed.transport.link import Link
from edgefed.transport.reply_resender import ReplyResender
from edgefed.wire.blobs import BlobCache
from edgefed.wire.envelope import decode, encode
from edgefed.wire.messages import (
    Birth,
    BlobRef,
    DeviceState,
    Message,
    Progress,
    Receipt,
    Reply,
    Request,
    Task,
    Telemetry,
)
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics
from tests.transport.listening import PATIENCE, wait_until

TOPICS = Topics("light")
OURS, THEIRS = "a" * 16, "b" * 16
STATES: Sequence[DeviceState] = ("invited", "download", "train", "train", "train", "upload")
"""What a device says of itself before its reply."""


def exchange(devices: Sequence[str], index: int) -> OpenExchange:
    """An exchange that asks every device."""
    tasks = tuple(
        Task(
            run="r-1",
            exchange=f"r-1-{index}",
            index=index,
            round=index + 1,
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
        for device in devices
    )
    return OpenExchange(
        exchange=f"r-1-{index}",
        index=index,
        name="fit",
        round=index + 1,
        tasks=tasks,
        wanted=len(devices),
        quorum=1,
        deadline=4 * PATIENCE,
    )


def blob_of(device: str, exchange: str) -> bytes:
    """What a device answers."""
    return random.Random(f"{device} {exchange}").randbytes(2000)


class HandClock(SystemClock):
    """A monotonic clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


class LightDevices:
    """Devices on one connection.

    Attributes:
        at_once: whether they answer a task when it comes.
        loses: whether the next receipt does not arrive.
        lost: receipts that did not arrive.
        replies, tasks, receipts: how many of each there were, by device and exchange.
        outcomes: how many receipts said each of them.
    """

    def __init__(self, address: Address, devices: Sequence[str], clock: HandClock) -> None:
        self.devices = devices
        self.at_once = True
        self.loses: Callable[[], bool] = lambda: False
        self.lost = 0
        self.replies: Counter[tuple[str, str]] = Counter()
        self.tasks: Counter[tuple[str, str]] = Counter()
        self.receipts: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.subscribed = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._resenders = {device: ReplyResender(self._send_reply) for device in devices}
        filters = tuple(TOPICS.every_down(device) for device in devices)
        self.link = Link(address, f"light-{devices[0]}", self._take, subscriptions=filters)

    def join(self, *, introduced: bool = True) -> None:
        """Connect; devices that never took part speak a second time, as agents do."""
        self.link.start_now(PATIENCE)
        wait_until(lambda: self.subscribed == len(self.devices), "subscriptions")
        for device in self.devices:
            birth = Birth(session=THEIRS, status="online", samples=5)
            self.send(TOPICS.birth(device), birth, retain=True)
            if not introduced:
                self.progress(device, "idle")

    def send(self, topic: str, message: Message, *, qos: int = 1, retain: bool = False) -> None:
        self.link.publish(topic, encode(message), qos=qos, retain=retain)

    def progress(self, device: str, state: DeviceState, exchange: str = "") -> None:
        told = Progress(session=THEIRS, state=state, exchange=exchange)
        self.send(TOPICS.progress(device), told)

    def answer(self, device: str, exchange: str, index: int) -> None:
        """Do what an agent says and sends while it works on a task."""
        for state in STATES:
            self.progress(device, state, exchange)
        self.send(TOPICS.telemetry(device), Telemetry(session=THEIRS, cpu=1.0), qos=0)
        blob = blob_of(device, exchange)
        name = digest(blob)
        reply = Reply(
            run="r-1",
            exchange=exchange,
            index=index,
            device=device,
            session=THEIRS,
            bases={},
            status="ok",
            samples=5,
            blobs={"delta": BlobRef(digest=name, size=len(blob))},
            inline={name: blob},
        )
        with self._lock:
            self._resenders[device].put(reply, self._clock.monotonic())

    def repeat(self) -> int:
        """Send replies again whose receipt is due; return how many have none."""
        now = self._clock.monotonic()
        with self._lock:
            for resender in self._resenders.values():
                resender.due(now)
            return sum(each.next_due() is not None for each in self._resenders.values())

    def _send_reply(self, reply: Reply) -> None:
        self.replies[reply.device, reply.exchange] += 1
        self.send(TOPICS.reply(reply.device), reply)

    def _take(self, arrival: Arrival) -> None:
        if isinstance(arrival, Subscribed):
            self.subscribed += 1
        if not isinstance(arrival, Incoming):
            return
        place = TOPICS.parse(arrival.topic)
        assert place is not None
        message = decode(arrival.payload, place.spec.message)
        match message:
            case Task():
                self.tasks[place.who, message.exchange] += 1
                if self.at_once:
                    self.answer(place.who, message.exchange, message.index)
            case Receipt() if self.loses():
                self.lost += 1
            case Receipt():
                self.outcomes[message.outcome] += 1
                self.receipts[place.who, message.exchange] += 1
                with self._lock:
                    self._resenders[place.who].heard(message.exchange)
                self.progress(place.who, "done")


class Fleet:
    """A real dispatcher on a real broker, and light devices on a few connections.

    Its clock stands still unless a test sets it, so that nobody repeats anything by itself.

    Args:
        address: of the broker.
        folder: of the blobs.
        devices: how many.
        connections: that they share.
        limited: whether the limits of senders hold, and no device has ever taken part.
    """

    def __init__(
        self, address: Address, folder: Path, devices: int, connections: int, *, limited: bool
    ) -> None:
        self._limited = limited
        clock = self.clock = HandClock()
        self._held, self._released = threading.Event(), threading.Event()
        self.names = [f"d-{number:04d}" for number in range(devices)]
        self.journal = EventJournal("light", clock)
        self.registry = DeviceRegistry(self.journal, clock)
        limits = SenderLimits(TOPICS, clock, self.registry.knows) if limited else None
        self.inbox: Inbox[NoReturn] = Inbox(clock, gate=limits)
        self.link = Link(
            address,
            "dispatcher",
            self.inbox.put,
            subscriptions=(TOPICS.every_up(), TOPICS.every_request(), TOPICS.coordinator()),
        )
        cache = BlobCache(folder / "blobs", 2**30)
        self.dispatcher = Dispatcher(
            DispatcherDeps(
                link=self.link,
                inbox=self.inbox,
                topics=TOPICS,
                registry=self.registry,
                cache=cache,
                relays=RelayedBlobs(cache, folder / "relays"),
                staging=folder / "staging",
                journal=self.journal,
                clock=clock,
                jitter=random.Random(1),
                on_request=lambda client, request, signer: self._hold(),
                on_up=lambda: None,
                session=OURS,
                known=(lambda device: False) if limited else everybody,
            )
        )
        self.fleet = MqttFleet(
            self.dispatcher, self.registry, self.journal, clock, lambda run, through: None
        )
        self.groups = [
            LightDevices(address, self.names[n::connections], clock) for n in range(connections)
        ]

    def total(self, what: str) -> Counter[tuple[str, str]]:
        """Return a count of all devices: ``replies``, ``tasks`` or ``receipts``."""
        counts = (dict(getattr(group, what)) for group in self.groups)  # threads still add to them
        return sum(map(Counter, counts), Counter())

    def states(self) -> Counter[str]:
        """Return how many devices are in each state, as the fleet's snapshot has it."""
        return Counter(view.state for view in self.journal.snapshot.devices)

    def hold(self) -> None:
        """Keep the dispatcher's thread busy from now on, with a request."""
        request = Request(nonce=THEIRS, action="hold")
        self.groups[0].send(TOPICS.request("local/0"), request)
        assert self._held.wait(PATIENCE)

    def release(self) -> None:
        """Let the dispatcher's thread go on."""
        self._released.set()

    def _hold(self) -> None:
        self._held.set()
        self._released.wait(4 * PATIENCE)

    def start(self) -> None:
        self.link.start_now(PATIENCE)
        self.dispatcher.start()
        for group in self.groups:
            group.join(introduced=not self._limited)
        self.wait_for(self.names)

    def wait_for(self, devices: Sequence[str]) -> None:
        """Return once these devices have joined, and no others."""
        wait_until(lambda: len(self.registry.roster()) == len(devices), "the devices")
        assert [member.device for member in self.registry.roster()] == sorted(devices)

    def stop(self) -> None:
        self.release()
        for group in self.groups:
            group.link.stop()
        self.dispatcher.stop()
        self.link.stop()
        self.journal.close()


@contextmanager
def light_fleet(
    address: Address, folder: Path, *, devices: int, connections: int = 8, limited: bool = False
) -> Iterator[Fleet]:
    """A fleet whose devices have joined."""
    made = Fleet(address, folder, devices, connections, limited=limited)
    made.start()
    try:
        yield made
    finally:
        made.stop()
