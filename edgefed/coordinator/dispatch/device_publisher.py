"""Send devices their tasks in order, receipts, and the blobs that they lack; count the bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange, PendingExchanges
from edgefed.coordinator.exchanges.fleet import Verdict
from edgefed.process.clock import Clock
from edgefed.transport.batch_sender import BatchSender
from edgefed.transport.blob_intake import Ask
from edgefed.transport.link import Link
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import BlobCache, chunk_count, chunk_span
from edgefed.wire.diagnostic_messages import LogRequest, Ping
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Cancel, Message, Need, Receipt, Task
from edgefed.wire.rollout_messages import ModelOffer
from edgefed.wire.topics import TOPIC_SPECS, Topics, TopicSpec
from edgefed.wire.update_messages import UpdateOffer

GATHER = 0.15
"""Longest wait for others, in seconds, before a blob is broadcast."""


class TaskSender:
    """Sends tasks and cancels them; guarded by the dispatcher's lock.

    Args:
        exchanges: the open exchanges.
        registry: the connected devices, with their current tasks.
        publisher: to the devices.
        clock: for repetitions.
    """

    def __init__(
        self,
        exchanges: PendingExchanges,
        registry: DeviceRegistry,
        publisher: DevicePublisher,
        clock: Clock,
    ) -> None:
        self._exchanges = exchanges
        self._registry = registry
        self._publisher = publisher
        self._clock = clock
        self._given: dict[str, str] = {}

    def put(self, pending: PendingExchange) -> None:
        """Open an exchange: its tasks go to the devices that have nothing else to do."""
        self._exchanges.add(pending)
        sent = [device for device in pending.wanted() if self._send_next(device)]
        self._registry.ask(sent, pending.exchange.exchange)

    def ask_also(self, pending: PendingExchange, task: Task) -> None:
        """Ask another device in an open exchange."""
        self._exchanges.ask_also(pending, task, self._clock.monotonic())
        self._given.pop(task.device, None)  # it may have had this very task before
        self.give_next(task.device)

    def withdraw(self, pending: PendingExchange, device: str) -> None:
        """Stop asking one device of an exchange."""
        pending.withdraw(device)
        self._publisher.cancel(device, pending.exchange.exchange)
        self.give_next(device)

    def withdraw_all(self, device: str) -> None:
        """Wait for no answer of a device that can never give one."""
        for pending in self._exchanges.all():
            if pending.task(device) is not None:
                self.withdraw(pending, device)

    def drop(self, pending: PendingExchange) -> None:
        """Close an exchange: cancel its tasks and send the devices their next ones."""
        exchange = pending.exchange.exchange
        self._exchanges.remove(exchange)
        devices = pending.wanted()
        for device in devices:
            if self._registry.online(device):
                self._publisher.cancel(device, exchange)
        for device in devices:
            self.give_next(device)

    def give_next(self, device: str) -> None:
        """Send a device the task that it is to do now, unless it was sent already."""
        if self._send_next(device):
            self._registry.ask([device], self._given[device])
        elif device not in self._given:
            self._registry.end_asking(device)

    def _send_next(self, device: str) -> bool:
        """Send a device the task that it is to do now; whether there is one not sent before."""
        task = self._exchanges.task(device)
        if task is None:
            self._given.pop(device, None)
            return False
        pending = self._exchanges.get(task.exchange)
        if self._given.get(device) == task.exchange or pending is None:
            return False
        self._given[device] = task.exchange
        pending.sent(device, self._clock.monotonic())
        self._publisher.task(task)
        return True

    def give_again(self, device: str) -> None:
        """Send a device that began a new session its current task again."""
        task = self._exchanges.task(device)
        if task is not None:
            self._publisher.task(task)
            self._registry.ask([device], task.exchange)

    def repeat(self, until: float) -> None:
        """Repeat the tasks that no device works on and that were due by ``until``."""
        for pending in self._exchanges.all():
            for task in pending.to_repeat(until):
                idle = not self._registry.working_on(task.device, task.exchange)
                if idle and self._registry.online(task.device) and self._exchanges.is_current(task):
                    self._publisher.task(task)


_TOPICS: Mapping[type[Message], TopicSpec] = {
    spec.message: spec for spec in TOPIC_SPECS.values() if spec.branch == "down"
}


class DevicePublisher:
    """Publishes on the topics of single devices; safe from any thread.

    Args:
        link: the connection.
        topics: of the fleet.
        addressed: returns a task as it is to be sent now.
        gateway_of: returns the gateway that speaks for a device; empty for one without.
        batches: sends messages to the devices of gateways.
    """

    def __init__(
        self,
        link: Link,
        topics: Topics,
        addressed: Callable[[Task], Task] = lambda task: task,
        gateway_of: Callable[[str], str] = lambda device: "",
        batches: BatchSender | None = None,
    ) -> None:
        self._gateway_of = gateway_of
        self._batches = batches
        self._addressed = addressed
        self._link = link
        self._topics = topics
        self._lock = threading.Lock()
        self._sent = 0

    @property
    def sent(self) -> int:
        """Payload bytes published so far."""
        with self._lock:
            return self._sent

    def task(self, task: Task) -> None:
        """Give a device its task."""
        self.send(task.device, self._addressed(task))

    def cancel(self, device: str, exchange: str) -> None:
        """Tell a device that its reply to an exchange is no longer needed."""
        self.send(device, Cancel(exchange=exchange))

    def receipt(self, device: str, exchange: str, outcome: Verdict, reason: str) -> None:
        """Send a device the verdict on its reply."""
        self.send(device, Receipt(exchange=exchange, outcome=outcome, reason=reason[:1000]))

    def need(self, ask: Ask) -> None:
        """Ask a device for a blob of its reply."""
        source = self._gateway_of(ask.source) or ask.source
        self._publish(self._topics.down_need(source), ask.need)

    def send(
        self,
        device: str,
        message: Task | Cancel | Receipt | Ping | LogRequest | ModelOffer | UpdateOffer,
        qos: int = 1,
    ) -> None:
        """Send a message to a device, through its gateway where it has one."""
        gateway = self._gateway_of(device)
        if gateway and self._batches is not None and not isinstance(message, UpdateOffer):
            self._batches.put(gateway, device, message)
        else:
            self._publish(self._topics.of(_TOPICS[type(message)], device), message, qos)

    def _publish(self, topic: str, message: Message, qos: int = 1) -> None:
        payload = encode(message, topic, self._link.signer)
        with self._lock:
            self._sent += len(payload)
        self._link.publish(topic, payload, qos=qos)


MAX_BROADCASTS = 64
"""Blobs of which it is remembered when they were broadcast last."""


@dataclass
class _Gathering:
    since: float
    expected: int
    devices: set[str] = field(default_factory=set)


class BlobDistributor:
    """Answers devices' needs from a cache; owned by one thread.

    Requests that say "I hold none of it" are collected until all devices that were asked have
    responded, or for a short time; then the blob is broadcast once. A request that had arrived by
    then, and waited behind others, is answered by that broadcast too: its device had subscribed. A
    request for single chunks is answered to its sender only, and so is every request for a blob
    that another device sent to it.

    Args:
        cache: where the blobs are.
        sender: sends chunks.
        topics: of the fleet.
    """

    def __init__(self, cache: BlobCache, sender: ChunkSender, topics: Topics) -> None:
        self._cache = cache
        self._sender = sender
        self._topics = topics
        self._gatherings: dict[str, _Gathering] = {}
        self._broadcasts: OrderedDict[str, float] = OrderedDict()
        self.delivered = 0

    def take(
        self,
        device: str,
        need: Need,
        expected: Callable[[], int],
        now: float,
        *,
        private: bool = False,
        arrived: float | None = None,
    ) -> None:
        """Take a device's request for a blob that it may have.

        Args:
            device: the sender.
            need: its request.
            expected: returns the number of devices that may need the same blob.
            now: the monotonic second.
            private: whether the blob is for this device alone, and so is never broadcast.
            arrived: the monotonic second at which the request arrived; None for now.
        """
        size = self._cache.size(need.digest)
        if size is None:
            return
        if private or not need.first:
            numbers = range(chunk_count(size)) if need.first else need.chunks
            self._send_chunks(device, need.digest, size, numbers)
            return
        if arrived is not None and arrived < self._broadcasts.get(need.digest, arrived):
            self.delivered += size
            return
        gathering = self._gatherings.get(need.digest)
        if gathering is None:
            gathering = self._gatherings[need.digest] = _Gathering(now, expected())
        gathering.devices.add(device)
        if len(gathering.devices) >= gathering.expected:
            self._flush(need.digest, now)

    def due(self, now: float) -> None:
        """Broadcast the blobs whose requests were collected long enough."""
        for digest, gathering in list(self._gatherings.items()):
            if now - gathering.since >= GATHER:
                self._flush(digest, now)

    def next_due(self) -> float | None:
        """Return the monotonic second of the next ``due``, or None."""
        return min(
            (gathering.since + GATHER for gathering in self._gatherings.values()), default=None
        )

    def _flush(self, digest: str, now: float) -> None:
        gathering = self._gatherings.pop(digest)
        size = self._cache.size(digest)
        if size is None:
            return
        devices = gathering.devices
        self.delivered += size * len(devices)
        if len(devices) == 1:
            self._send_to(next(iter(devices)), digest, range(chunk_count(size)))
        else:
            self._broadcasts[digest] = now
            self._broadcasts.move_to_end(digest)
            if len(self._broadcasts) > MAX_BROADCASTS:
                self._broadcasts.popitem(last=False)
            self._send(self._topics.broadcast_chunk(digest), digest, range(chunk_count(size)))

    def _send_chunks(self, device: str, digest: str, size: int, asked: Iterable[int]) -> None:
        numbers = [number for number in asked if number < chunk_count(size)]
        self.delivered += sum(chunk_span(size, number)[1] for number in numbers)
        self._send_to(device, digest, numbers)

    def _send_to(self, device: str, digest: str, numbers: Iterable[int]) -> None:
        self._send(self._topics.down_chunk(device), digest, numbers)

    def _send(self, topic: str, digest: str, numbers: Iterable[int]) -> None:
        """Queue chunks; each is read when it is its turn, so a fleet's transfers need no memory."""
        self._sender.send(topic, digest, lambda number: self._cache.chunk(digest, number), numbers)
