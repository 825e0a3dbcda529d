"""The coordinator's side of the broker: one thread that reads the inbox and keeps every promise.

It takes births, replies, needs, chunks and requests, repeats what was not heard, and never trains,
merges or waits. The engine hands it a ``PendingExchange`` and gets whole replies through
its queue.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from edgefed.clock import Clock
from edgefed.coordinator.blob_distributor import BlobDistributor
from edgefed.coordinator.device_registry import DeviceRegistry
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.fleet import Delivered, Verdict
from edgefed.coordinator.pending_exchange import PendingExchange
from edgefed.coordinator.reply_checks import is_too_large
from edgefed.coordinator.reply_uploads import ReplyUploads
from edgefed.errors import EdgeFedError, StorageError, WireError
from edgefed.files import free_bytes
from edgefed.transport.inbox import Inbox
from edgefed.transport.intake import Ask, Intake
from edgefed.transport.link import Arrival, Incoming, Link, LinkDown, LinkUp
from edgefed.transport.reading import read_arrival
from edgefed.transport.sender import ChunkSender
from edgefed.wire.blobs import BlobCache
from edgefed.wire.envelope import encode
from edgefed.wire.limits import MAX_MESSAGE_BYTES
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
    Request,
    Task,
    Telemetry,
)
from edgefed.wire.topics import ParsedTopic, Topics

log = logging.getLogger(__name__)

TICK = 1.0
"""Longest sleep of the thread; all real waits have their own due time."""

CHECK_EVERY = 0.1
"""Seconds between two looks at every device: who is lost, and whose task is to be sent again."""

ROOM = 4 * MAX_MESSAGE_BYTES
"""Free bytes above which a disk that was full is tried again."""

COMPLAIN_EVERY = 60.0
MAX_COMPLAINTS = 1024
LOOK_EVERY = 30.0
"""Seconds between two looks at the retained births, when somebody speaks who has none here."""


class Dispatcher:
    """The dispatch thread.

    Args:
        link: the connection; not yet started.
        inbox: where the link delivers.
        on_request: takes requests of dashboards and the command line.
        on_up: called when the connection is there (again), and when our retained state was lost.
        session: this life of the coordinator.
    """

    def __init__(
        self,
        link: Link,
        inbox: Inbox[NoReturn],
        topics: Topics,
        registry: DeviceRegistry,
        cache: BlobCache,
        staging: Path,
        journal: EventJournal,
        clock: Clock,
        jitter: random.Random,
        on_request: Callable[[str, Request], None],
        on_up: Callable[[], None],
        session: str = "",
    ) -> None:
        self._link = link
        self._inbox = inbox
        self._topics = topics
        self._registry = registry
        self._cache = cache
        self._journal = journal
        self._clock = clock
        self._on_request = on_request
        self._on_up = on_up
        self._session = session
        self._sender = ChunkSender(link)
        self._distributor = BlobDistributor(cache, self._sender, topics)
        self._intake = Intake(cache, staging, jitter)
        self._uploads = ReplyUploads(self._intake)
        self._pending_exchange: PendingExchange | None = None
        self._last: PendingExchange | None = None
        self._brought: set[str] = set()
        self._lock = threading.RLock()
        self._sizes: dict[str, int] = {}
        self._complaints: dict[tuple[str, str], float] = {}
        self._looked = -LOOK_EVERY
        self._dropped = 0
        self._next_check = 0.0
        self._staging = staging
        self._full_since: float | None = None
        self._up = 0
        self._down = 0
        self._was_down = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read the inbox."""
        self._thread.start()

    def stop(self) -> None:
        """End the threads."""
        self._closing = True
        self._thread.join(timeout=5)
        self._sender.stop()
        self._intake.close()

    # -- what the engine's thread calls -------------------------------------------------------

    def open(self, pending: PendingExchange) -> None:
        """Put an exchange's tasks to their devices."""
        with self._lock:
            self._pending_exchange = pending
            self._sizes.clear()
            for task in list(pending.wanting.values()):
                self._send_task(task)

    def close(self, pending: PendingExchange) -> None:
        """Stop waiting for an exchange; whoever still works on it is told."""
        with self._lock:
            self._pending_exchange, self._last = None, pending
            self._uploads.clear()
            for device in pending.wanting:
                if self._registry.online(device):
                    cancel = Cancel(exchange=pending.exchange.exchange)
                    self._publish(self._topics.cancel(device), cancel)

    def forget(self, through: int) -> None:
        """Delete what came for the last exchange if it is over: its replies are in the state."""
        with self._lock:
            if self._last is None or self._last.exchange.index > through:
                return
            self._last = None
            brought, self._brought = self._brought, set()
            try:
                for digest in brought:
                    self._cache.discard(digest)
            except StorageError as error:
                log.warning("%s", error.message)
            self._intake.prune()

    def release_space(self) -> None:
        """Delete blobs and parts of blobs that the open exchange, if any, does not need."""
        with self._lock:
            self._cache.shed(self._brought if self._pending_exchange is not None else ())
            self._intake.prune()

    def send_receipt(self, device: str, exchange: str, outcome: Verdict, reason: str) -> None:
        """Tell a device what became of its reply."""
        receipt = Receipt(exchange=exchange, outcome=outcome, reason=reason[:1000])
        self._publish(self._topics.receipt(device), receipt)

    def traffic(self) -> tuple[int, int]:
        """Return payload bytes from and to devices."""
        return self._up, self._down + self._distributor.delivered

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            arrival = self._inbox.get(timeout=self._patience())
            with self._lock:
                try:
                    if arrival is not None:
                        self._take(arrival)
                    self._tick()
                except EdgeFedError as error:
                    if error.code == "storage.full":
                        self._full()
                    self._complain("coordinator", error.code, error.message)
                except Exception:
                    log.exception("error in the dispatcher")

    def _full(self) -> None:
        """Make room; until there is some, no deadline comes nearer and chunks are asked again."""
        if self._full_since is None:
            self._full_since = self._clock.monotonic()
        self.release_space()

    def _see_whether_full(self, now: float) -> None:
        """Move the deadline by as long as the disk takes no replies."""
        if self._full_since is None:
            return
        if self._pending_exchange is not None:
            self._pending_exchange.extend(now - self._full_since)
        self._full_since = now
        if free_bytes(self._staging) >= ROOM:
            self._full_since = None
            for ask in self._intake.reconnected(now):
                self._send_need(ask)

    def _patience(self) -> float:
        dues = (self._distributor.next_due(), self._intake.next_due())
        nearest = min((due for due in dues if due is not None), default=None)
        if nearest is None:
            return TICK
        return min(TICK, max(0.001, nearest - self._clock.monotonic()))

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._distributor.due(now)
        self._note_dropped()
        if not self._link.connected:
            return
        self._see_whether_full(now)
        for ask in self._intake.due(now):
            self._send_need(ask)
        while self._intake.failures:
            for reply in self._uploads.failed(self._intake.failures.pop()):
                self._complain(reply.device, "blob", "a blob of its reply never came")
        if now >= self._next_check:
            self._next_check = now + CHECK_EVERY
            self._check_devices(now)

    def _check_devices(self, now: float) -> None:
        """Give up the devices that are silent, and repeat the tasks that nobody works on."""
        for device in self._registry.expire():
            self._go_on(*self._uploads.leave(device, now))
        if self._pending_exchange is not None:
            # A reply that waits in the inbox is no reason to ask again.
            for task in self._pending_exchange.to_repeat(self._inbox.handled_until()):
                device = task.device
                busy = self._registry.working_on(device, task.exchange)
                if self._registry.online(device) and not busy:
                    self._send_task(task)

    def _take(self, arrival: Arrival) -> None:
        match arrival:
            case Incoming():
                self._take_message(arrival)
            case LinkUp():
                self._registry.doubt()
                self._on_up()
                if self._was_down:
                    self._journal.emit("note", text="connection to the broker restored")
                else:
                    log.info("connected to the broker")
                self._was_down = False
                for ask in self._intake.reconnected(self._clock.monotonic()):
                    self._send_need(ask)
            case LinkDown():
                self._was_down = True
                text = f"connection to the broker lost: {arrival.reason}; reconnecting"
                self._journal.emit("note", level="warning", text=text)

    def _take_message(self, arrival: Incoming) -> None:
        read = read_arrival(self._topics, arrival, self._refuse)
        if read is None:
            return
        parsed, message = read
        if isinstance(message, CoordinatorState):
            self._meet(message, live=not arrival.retained)
        elif isinstance(message, Request) and not arrival.retained:
            self._on_request(parsed.who, message)
        elif parsed.branch == "up" and (not arrival.retained or parsed.leaf == "birth"):
            self._up += len(arrival.payload)
            if isinstance(message, Birth):
                self._take_birth(parsed.who, message, live=not arrival.retained)
            else:
                self._take_from_device(parsed, message, len(arrival.payload))

    def _refuse(self, parsed: ParsedTopic, reason: str) -> None:
        self._complain(parsed.who, parsed.leaf, f"message on {parsed.leaf} refused: {reason}")

    def _meet(self, state: CoordinatorState, *, live: bool) -> None:
        """Meet a message on our own topic: an earlier life's will, or another coordinator."""
        if not live or not self._session or state.session == self._session:
            return
        if state.status == "lost":
            self._on_up()
        else:
            self._complain("coordinator", "second", "another one is at work in this fleet")

    def _take_birth(self, device: str, birth: Birth, *, live: bool) -> None:
        if self._registry.take_birth(device, birth, live=live):
            self._welcome(device)
        elif not self._registry.online(device):
            self._go_on(*self._uploads.leave(device, self._clock.monotonic()))

    def _take_from_device(self, parsed: ParsedTopic, message: Message, size: int) -> None:
        device, now = parsed.who, self._clock.monotonic()
        self._registry.hear(device)
        match message:
            case Progress():
                self._look_again(known=self._registry.take_progress(device, message))
            case Telemetry():
                self._look_again(known=self._registry.take_telemetry(device, message))
            case Reply():
                self._take_reply(device, message, size, now)
            case Need():
                self._distributor.take(device, message, self._expected(), now)
            case Chunk():
                self._take_chunk(parsed, message, now)

    def _look_again(self, *, known: bool) -> None:
        """Have the broker send the retained births again: one was lost on its way to us."""
        now = self._clock.monotonic()
        if not known and now - self._looked >= LOOK_EVERY:
            self._looked = now
            self._link.subscribe(self._topics.every_up())

    # -- replies ------------------------------------------------------------------------------

    def _take_reply(self, device: str, reply: Reply, size: int, now: float) -> None:
        if reply.device != device:
            self._complain(device, "name", f"it replied in the name of {reply.device}")
            return
        if self._pending_exchange is None or not self._pending_exchange.wants(reply):
            if self._is_over(reply):
                self.send_receipt(device, reply.exchange, "late", "its exchange is closed")
            return
        self._sizes[device] = size
        if reply.status != "ok" or is_too_large(reply, self._pending_exchange.exchange):
            self._go_on([], [reply])  # it will be declined; its blobs are not wanted
            return
        self._brought.update(ref.digest for ref in reply.blobs.values())
        asks, whole = self._uploads.take(reply, size, now)
        self._go_on(asks, whole)

    def _is_over(self, reply: Reply) -> bool:
        """Whether a reply belongs to an earlier exchange of the run at work.

        While nothing is asked, the reply may be to an exchange that is about to be asked again.
        """
        if self._pending_exchange is None:
            return False
        current = self._pending_exchange.exchange
        same_run = current.tasks and current.tasks[0].run == reply.run
        return bool(same_run) and reply.index < current.index

    def _take_chunk(self, parsed: ParsedTopic, message: Chunk, now: float) -> None:
        ask = self._intake.chunk(parsed.digest, parsed.index, message.data, now)
        if ask is not None:
            self._send_need(ask)
        elif self._cache.has(parsed.digest):
            self._sizes[parsed.who] = self._sizes.get(parsed.who, 0) + len(message.data)
            self._go_on(*self._uploads.arrived(parsed.digest, now))
        else:
            self._sizes[parsed.who] = self._sizes.get(parsed.who, 0) + len(message.data)

    def _go_on(self, asks: list[Ask], whole: list[Reply]) -> None:
        for ask in asks:
            self._send_need(ask)
        pending = self._pending_exchange
        for reply in whole:
            if pending is None or not pending.wants(reply):
                continue
            seconds = self._clock.monotonic() - pending.started
            size = self._sizes.get(reply.device, 0)
            pending.deliver(Delivered(reply, self._read, seconds, size))

    def _read(self, digest: str) -> bytes:
        data = self._cache.get(digest)
        if data is None:
            raise WireError(f"Blob {digest[:12]} is no longer in the cache.", code="wire.blob")
        return data

    # -- sending ------------------------------------------------------------------------------

    def _welcome(self, device: str) -> None:
        """Ask a device that began a new life again what it was asked."""
        task = self._pending_exchange.task(device) if self._pending_exchange else None
        if task is not None:
            self._send_task(task)

    def _send_task(self, task: Task) -> None:
        payload = encode(task)
        self._down += len(payload)
        self._link.publish(self._topics.task(task.device), payload)

    def _send_need(self, ask: Ask) -> None:
        self._publish(self._topics.down_need(ask.source), ask.need)

    def _publish(self, topic: str, message: Message) -> None:
        payload = encode(message)
        self._down += len(payload)
        self._link.publish(topic, payload)

    def _expected(self) -> int:
        """Return how many devices may ask for the open exchange's blobs."""
        if self._pending_exchange is None:
            return 1
        return sum(self._registry.online(device) for device in list(self._pending_exchange.wanting))

    def _note_dropped(self) -> None:
        """Tell of messages that the inbox had no room for."""
        dropped = self._inbox.counts.dropped
        if dropped > self._dropped:
            text = f"messages dropped because they came too fast: {dropped}; they are sent again"
            if self._complain("coordinator", "inbox", text):
                self._dropped = dropped

    def _complain(self, who: str, what: str, text: str) -> bool:
        """Note what is wrong with somebody's messages, once a minute for each wrong.

        Returns:
            Whether it was noted.
        """
        now = self._clock.monotonic()
        if now - self._complaints.get((who, what), -COMPLAIN_EVERY) >= COMPLAIN_EVERY:
            recent = {key: at for key, at in self._complaints.items() if now - at < COMPLAIN_EVERY}
            if len(recent) >= MAX_COMPLAINTS:  # whoever floods us chose the names
                return False
            self._complaints = {**recent, (who, what): now}
            self._journal.emit("note", level="warning", text=f"{who}: {text}")
            return True
        return False
