"""Receive replies: route each to its exchange, fetch its blobs, and pass it to the engine."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from edgefed.coordinator.dispatch.device_publisher import DevicePublisher
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange, PendingExchanges
from edgefed.coordinator.exchanges.fleet import Delivered, Verdict
from edgefed.coordinator.exchanges.relayed_blobs import RelayedBlobs
from edgefed.coordinator.exchanges.reply_checks import LOST_BLOB, fetch_problem
from edgefed.coordinator.journal.rate_limited_notes import RateLimitedNotes
from edgefed.errors import StorageError, WireError
from edgefed.process.clock import Clock
from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.wire.messages import Chunk, Reply
from edgefed.wire.site_messages import SumReply
from edgefed.wire.tensors import digest

log = logging.getLogger(__name__)

MOST_VERDICTS = 16_384
"""Last verdicts that are remembered, for devices whose receipt was lost."""


class ReplyReceiver:
    """Receives the replies of all open exchanges; guarded by the dispatcher's lock.

    Args:
        exchanges: the open exchanges.
        intake: receives blobs into the coordinator's cache.
        relays: notified of blobs for other devices before they arrive, and when they are deleted.
        publisher: to the devices.
        notes: takes warnings about invalid replies.
        clock: measures how long a reply took.
        on_delivered: called with each device whose reply the engine has received.
        gateway_of: returns the gateway that speaks for a device; empty for one without.
    """

    def __init__(
        self,
        exchanges: PendingExchanges,
        intake: BlobIntake,
        relays: RelayedBlobs,
        publisher: DevicePublisher,
        notes: RateLimitedNotes,
        clock: Clock,
        on_delivered: Callable[[str], None],
        gateway_of: Callable[[str], str] = lambda device: "",
    ) -> None:
        self._gateway_of = gateway_of
        self._exchanges = exchanges
        self._intake = intake
        self._cache = intake.cache
        self._relays = relays
        self._publisher = publisher
        self._notes = notes
        self._clock = clock
        self._on_delivered = on_delivered
        self._uploads = ReplyUploads(intake)
        self._sizes: dict[tuple[str, str], int] = {}
        self._blobs: dict[str, set[str]] = {}
        self._dropped: dict[str, tuple[str, int]] = {}
        self._pinned: dict[tuple[str, str], list[str]] = {}
        self._sums: dict[str, dict[str, SumReply]] = {}
        self._verdicts: OrderedDict[tuple[str, str], tuple[Verdict, str]] = OrderedDict()
        self._lock = threading.Lock()

    # -- what devices send --------------------------------------------------------------------

    def take(self, device: str, reply: Reply, size: int) -> None:
        # The topic's name is checked by the broker, that in the reply is not
        """Take a reply: pull the blobs that it names, decline it, or ignore it."""
        if reply.device != device:
            self._notes.warn(device, "name", f"it replied in the name of {reply.device}")
            return
        if isinstance(reply, SumReply) and self._refuses_sum(reply):
            return
        pending = self._exchanges.wanting(reply)
        if pending is None:
            self._decline(reply)
            return
        pending.note_upload(device, self._clock.monotonic())
        self._sizes[device, reply.exchange] = size
        if reply.status != "ok" or fetch_problem(reply, pending.exchange):
            self._deliver([reply])  # it will be declined; its blobs are not wanted
            return
        self._blobs.setdefault(reply.exchange, set()).update(reply.needed)
        if reply.relays:
            self._relays.announce({sent.digest for sent in reply.relays.values()})
        # Answers of buffered rounds are on disk, and pinned by their questions
        if not pending.shared and (device, reply.exchange) not in self._pinned:
            self._pin(reply)
        now = self._clock.monotonic()
        self._go_on(*self._uploads.take(reply, size, now, sync=pending.shared))

    def take_chunk(self, sender: str, chunk: Chunk) -> None:
        """Take a chunk of a blob that a reply names, from its device or that device's gateway."""
        now, digest = self._clock.monotonic(), chunk.digest
        for device, exchange in self._uploads.lacking(digest):
            # The chunks of a device behind a gateway come from the gateway
            if sender in (device, self._gateway_of(device)):
                size = self._sizes.get((device, exchange), 0)
                self._sizes[device, exchange] = size + len(chunk.data)
                break
        ask = self._intake.chunk(chunk, now)
        if ask is not None:
            self._publisher.need(ask)
        elif self._cache.has(digest):
            self._go_on(*self._uploads.arrived(digest, now))

    def leave(self, device: str) -> None:
        """Stop waiting for a lost device's blobs; it sends its replies again when it is back."""
        for key in [key for key in list(self._pinned) if key[0] == device]:
            # Complete replies stay pinned until they are judged
            if self._uploads.knows(*key):
                self.settle(*key)
        self._go_on(*self._uploads.leave(device, self._clock.monotonic()))

    # -- what time brings ---------------------------------------------------------------------

    def due(self, now: float) -> None:
        """Request missing chunks again, and give up on blobs that never arrived."""
        self._ask(self._intake.due(now))
        while self._intake.failures:
            for reply in self._uploads.failed(self._intake.failures.pop()):
                self.settle(reply.device, reply.exchange)
                self._notes.warn(reply.device, "blob", "a blob of its reply did not arrive")

    def ask_again(self) -> None:
        """Request all incoming blobs again: chunks may have been lost."""
        self._ask(self._intake.reconnected(self._clock.monotonic()))

    # -- what becomes of an exchange ----------------------------------------------------------

    def open(self, pending: PendingExchange) -> None:
        """Note that an exchange is put, perhaps again."""
        self._dropped.pop(pending.exchange.exchange, None)
        self._sums.pop(pending.exchange.exchange, None)

    def close(self, pending: PendingExchange) -> None:
        """Stop receiving replies of an exchange that was dropped; its blobs are still read."""
        opened = pending.exchange
        run = opened.tasks[0].run if opened.tasks else ""
        self._dropped[opened.exchange] = (run, opened.index)
        self._sizes = {key: size for key, size in self._sizes.items() if key[1] != opened.exchange}
        self._go_on(*self._uploads.drop(opened.exchange, self._clock.monotonic()))
        for key in [key for key in list(self._pinned) if key[1] == opened.exchange]:
            self.settle(*key)

    def forget(self, run: str, through: int) -> None:
        """Delete the replies to dropped exchanges that are over: they are merged into the state."""
        over = [
            exchange
            for exchange, (its_run, index) in self._dropped.items()
            if its_run != run or index <= through
        ]
        self.forget_exchanges(over)

    def forget_exchanges(self, over: Collection[str]) -> None:
        """Delete the replies to dropped exchanges, with their blobs."""
        if not over:
            return
        gone: set[str] = set()
        for exchange in over:
            self._dropped.pop(exchange, None)
            self._sums.pop(exchange, None)
            gone |= self._blobs.pop(exchange, set())
        # Equal blobs of other exchanges are kept
        kept = self._named_by(self._blobs)
        try:
            for digest in gone - kept:
                self._cache.discard(digest)
            self._relays.settle(gone - kept)
        except StorageError as error:
            log.warning("%s", error.message)
        self._intake.prune(kept)

    def release_space(self) -> None:
        """Delete blobs and parts of blobs that no open exchange needs."""
        self._cache.shed(self._named_by(self._blobs.keys() - self._dropped.keys()))
        self._intake.prune()

    def stop(self) -> None:
        """Stop receiving."""
        self._intake.close()

    def _named_by(self, exchanges: Iterable[str]) -> set[str]:
        return {digest for exchange in exchanges for digest in self._blobs[exchange]}

    # -- on to the engine ---------------------------------------------------------------------

    def _pin(self, reply: Reply) -> None:
        """Keep the blobs of a reply until it is settled."""
        names = self._pinned[reply.device, reply.exchange] = list(reply.needed)
        for name in names:
            self._cache.pin(name)

    def settle(self, device: str, exchange: str) -> None:
        """Let the blobs of a reply go: it is merged, refused or given up; safe from any thread."""
        for name in self._pinned.pop((device, exchange), ()):
            self._cache.unpin(name)

    def judge(self, device: str, exchange: str, outcome: Verdict, reason: str) -> None:
        """Send the verdict on a reply, whose blobs are not read again; safe from any thread."""
        self._publisher.receipt(device, exchange, outcome, reason)
        self.settle(device, exchange)
        with self._lock:
            self._verdicts[device, exchange] = outcome, reason
            self._verdicts.move_to_end((device, exchange))
            if len(self._verdicts) > MOST_VERDICTS:
                self._verdicts.popitem(last=False)

    def _decline(self, reply: Reply, verdict: tuple[Verdict, str] | None = None) -> None:
        """Repeat the verdict on a reply, or say that it is late if nobody will put its exchange.

        ``verdict`` is for devices that have none yet.
        """
        if verdict is None and self._exchanges.is_over(reply):
            verdict = "late", "its exchange is closed"
        for one in reply.replies if isinstance(reply, SumReply) else (reply,):
            # Verdicts come from the engine's thread
            with self._lock:
                given = self._verdicts.get((one.device, one.exchange), verdict)
            if given is not None:
                self._publisher.receipt(one.device, one.exchange, *given)

    # -- sums of sites ------------------------------------------------------------------------

    def _refuses_sum(self, reply: SumReply) -> bool:
        """Refuse a sum that is not taken whatever it holds; whether it is one."""
        gateway = self._gateway_of(reply.device)
        pending = self._exchanges.get(reply.exchange)
        # The first sum of a site counts; the same one again is a repetition
        first = self._sums.get(reply.exchange, {}).get(gateway, reply)
        if (first.blobs, first.answers) != (reply.blobs, reply.answers):
            problem = "its site has sent another sum already"
        elif pending is not None and pending.exchange.site_sums == "never":
            problem = "this exchange takes no sums of sites"
        else:
            return False
        self._notes.warn(gateway, "sum", f"a sum for {reply.exchange} was refused: {problem}")
        self._decline(reply, ("rejected", problem))
        return True

    def _shared_out(
        self, delivered: Delivered, reply: SumReply, pending: PendingExchange
    ) -> Delivered:
        """Return a sum with the share of each of its devices, and give up those without one.

        A device whose own reply is on its way is not given up.
        """
        gateway, now = self._gateway_of(reply.device), self._clock.monotonic()
        self._sums.setdefault(reply.exchange, {})[gateway] = reply
        # Shared out evenly, since nobody measured the bytes of a device
        size = delivered.size // len(reply.answers)
        parts: dict[str, Delivered] = {}
        problem = ""
        for one in reply.replies:
            device = one.device
            if device in parts or self._gateway_of(device) != gateway or not pending.wants(one):
                problem = f"the sum of its site names {device}, which was not to answer there"
            else:
                times = pending.measured(one, now)
                parts[device] = Delivered(one, self._read, delivered.seconds, size, *times)
        for device in reply.without:
            running = self._uploads.knows(device, reply.exchange)
            if self._gateway_of(device) == gateway and pending.task(device) and not running:
                pending.withdraw(device)
                self._publisher.cancel(device, reply.exchange)
                self._on_delivered(device)
        return replace(delivered, parts=tuple(parts.values()), problem=problem)

    def _go_on(self, asks: list[Ask], whole: list[Reply]) -> None:
        self._ask(asks)
        self._deliver(whole)

    def _ask(self, asks: list[Ask]) -> None:
        for ask in asks:
            self._publisher.need(ask)

    def _deliver(self, whole: list[Reply]) -> None:
        for reply in whole:
            pending = self._exchanges.wanting(reply)
            # Its exchange was dropped while the blobs were on their way
            if pending is None:
                continue
            now = self._clock.monotonic()
            size = self._sizes.pop((reply.device, reply.exchange), 0)
            measured = pending.measured(reply, now)
            delivered = Delivered(reply, self._read, now - pending.began, size, *measured)
            if isinstance(reply, SumReply):
                delivered = self._shared_out(delivered, reply, pending)
            pending.deliver(delivered)
            for device in (one.device for one in delivered.replies):
                self._on_delivered(device)

    def _read(self, digest: str) -> bytes:
        data = self._cache.get(digest)
        if data is None:
            # An evicted blob costs one reply, not the run
            raise WireError(f"Blob {digest[:12]} is no longer in the cache.", code=LOST_BLOB)
        return data


MAX_UPLOAD_BYTES = 16 * 1024**2
"""Bytes of the replies that are uploaded at one time; the others wait, so that memory and link are
bounded."""

LEAST_UPLOADS = 8
"""Replies that are uploaded at one time, however large they are."""

_Key = tuple[str, str]
"""Device and exchange of a reply."""


@dataclass
class _Upload:
    reply: Reply
    size: int
    lacking: set[str] = field(default_factory=set)

    sync: bool = False

    @property
    def key(self) -> _Key:
        return self.reply.device, self.reply.exchange

    @property
    def blob_bytes(self) -> int:
        """Bytes of the blobs that its reply names."""
        return sum(self.reply.needed.values())


class ReplyUploads:
    """Assembles replies; owned by one thread.

    Args:
        intake: receives blobs into the coordinator's cache.
    """

    def __init__(self, intake: BlobIntake) -> None:
        self._intake = intake
        self._running: dict[_Key, _Upload] = {}
        self._waiting: OrderedDict[_Key, _Upload] = OrderedDict()
        self._running_bytes = 0

    def take(
        self, reply: Reply, size: int, now: float, *, sync: bool = False
    ) -> tuple[list[Ask], list[Reply]]:
        """Take a reply; return the requests to send, and the complete replies.

        Args:
            reply: names the blobs.
            size: bytes of its message.
            now: the monotonic second.
            sync: whether the disk has to hold its blobs before its receipt is sent. Otherwise its
                device keeps them until the exchange is over, and small ones are held in memory.
        """
        if self.knows(reply.device, reply.exchange):
            return [], []
        named = reply.needed
        relayed = {sent.digest for sent in reply.relays.values()}
        # What does not have its digest is ignored, and fetched in chunks
        valid = {n: data for n, data in reply.inline.items() if n in named and digest(data) == n}
        # Waiting for the disk, reply after reply, would hold up a large fleet's receipts. Relayed
        # blobs are needed for longer than their device keeps them.
        for name in valid.keys() - relayed:
            if sync:
                self._intake.cache.put(valid[name])
            else:
                self._intake.cache.hold(name, valid[name])
        self._intake.cache.put_all([valid[name] for name in valid if name in relayed])
        lacking = {name for name in named if not self._intake.cache.has(name)}
        upload = _Upload(reply, size, lacking, sync)
        if not lacking:
            return [], [reply]
        self._waiting[upload.key] = upload
        return self._start(now)

    def knows(self, device: str, exchange: str) -> bool:
        """Whether a reply is on its way."""
        return (device, exchange) in self._running or (device, exchange) in self._waiting

    def lacking(self, blob: str) -> Iterator[_Key]:
        """Yield device and exchange of each reply whose upload lacks a blob."""
        return (key for key, upload in self._running.items() if blob in upload.lacking)

    def arrived(self, blob: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Note that a blob is whole; return the requests to send, and the replies now whole."""
        whole: list[Reply] = []
        for key, upload in list(self._running.items()):
            upload.lacking.discard(blob)
            if not upload.lacking:
                self._end(key)
                whole.append(upload.reply)
        asks, more = self._start(now)
        return asks, [*whole, *more]

    def leave(self, device: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Give a lost device's place to the next one; it sends its reply again when it is back."""
        return self._remove(
            [upload for upload in self._all() if upload.reply.device == device], now
        )

    def drop(self, exchange: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Forget the replies of an exchange that is closed; others replace them."""
        gone = [upload for upload in self._all() if upload.reply.exchange == exchange]
        return self._remove(gone, now)

    def _all(self) -> list[_Upload]:
        return [*self._running.values(), *self._waiting.values()]

    def _end(self, key: _Key) -> _Upload:
        upload = self._running.pop(key)
        self._running_bytes -= upload.blob_bytes
        return upload

    def _remove(self, gone: list[_Upload], now: float) -> tuple[list[Ask], list[Reply]]:
        keys = {upload.key for upload in gone}
        for key in keys & self._waiting.keys():
            del self._waiting[key]
        running = [self._end(key) for key in keys & self._running.keys()]
        # The lost device sends no chunks, and an equal blob can be asked of another one
        lost = {blob for upload in running for blob in upload.lacking}
        for blob in lost:
            self._intake.drop(blob)
        asks: list[Ask] = []
        for upload in self._running.values():
            if upload.lacking & lost:  # an equal blob, which was being asked of another device
                asks += self._fetch(upload, now)
        more, whole = self._start(now)
        return [*asks, *more], whole

    def failed(self, blob: str) -> list[Reply]:
        """Give up on replies with a blob that never arrived; return them."""
        gone = [upload for upload in self._running.values() if blob in upload.lacking]
        for upload in gone:
            self._end(upload.key)
        return [upload.reply for upload in gone]

    def _start(self, now: float) -> tuple[list[Ask], list[Reply]]:
        asks: list[Ask] = []
        whole: list[Reply] = []
        while self._waiting:
            upload = next(iter(self._waiting.values()))
            fits = self._running_bytes + upload.blob_bytes <= MAX_UPLOAD_BYTES
            # A few at least, so that models larger than the limit are received at all
            if not fits and len(self._running) >= LEAST_UPLOADS:
                break
            del self._waiting[upload.key]
            asks += self._fetch(upload, now)
            if upload.lacking:
                self._running[upload.key] = upload
                self._running_bytes += upload.blob_bytes
            else:
                whole.append(upload.reply)
        return asks, whole

    def _fetch(self, upload: _Upload, now: float) -> list[Ask]:
        """Request the blobs that a reply lacks; an equal one of another reply may have arrived."""
        asks: list[Ask] = []
        relayed = {sent.digest for sent in upload.reply.relays.values()}
        for name, size in upload.reply.needed.items():
            if name in upload.lacking:
                device, sync = upload.reply.device, upload.sync or name in relayed
                ask = self._intake.fetch(device, name, size, "pull", now, sync=sync)
                if ask is not None:
                    asks.append(ask)
                if self._intake.cache.has(name):
                    upload.lacking.discard(name)
        return asks
