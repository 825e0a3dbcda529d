"""Uploads of replies: pull the blobs that a reply announces, then pass the reply on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from edgefed.transport.blob_intake import Ask, BlobIntake
from edgefed.wire.messages import Reply
from edgefed.wire.tensors import digest

MAX_UPLOADS = 8
"""Replies that are uploaded at one time; the others wait, so that memory and link are bounded."""

_Key = tuple[str, str]
"""Device and exchange of a reply."""


@dataclass
class _Upload:
    reply: Reply
    size: int
    lacking: set[str] = field(default_factory=set)

    @property
    def key(self) -> _Key:
        return self.reply.device, self.reply.exchange


class ReplyUploads:
    """Assembles replies; owned by one thread.

    Args:
        intake: receives blobs into the coordinator's cache.
    """

    def __init__(self, intake: BlobIntake) -> None:
        self._intake = intake
        self._running: dict[_Key, _Upload] = {}
        self._waiting: deque[_Upload] = deque()

    def take(self, reply: Reply, size: int, now: float) -> tuple[list[Ask], list[Reply]]:
        """Take a reply; return the requests to send, and the complete replies."""
        if self.knows(reply.device, reply.exchange):
            return [], []
        named = reply.needed
        relayed = {sent.digest for sent in reply.relays.values()}
        valid = {n: data for n, data in reply.inline.items() if n in named and digest(data) == n}
        # Their device keeps them until the exchange is over: waiting for the disk, reply after
        # reply, would hold up a large fleet's receipts. Relayed ones are needed for longer.
        for name in valid.keys() - relayed:
            self._intake.cache.put(valid[name], sync=False)
        self._intake.cache.put_all([valid[name] for name in valid if name in relayed])
        lacking = {name for name in named if not self._intake.cache.has(name)}
        upload = _Upload(reply, size, lacking)
        if not lacking:
            return [], [reply]
        self._waiting.append(upload)
        return self._start(now)

    def knows(self, device: str, exchange: str) -> bool:
        """Whether a reply is on its way."""
        return any(each.key == (device, exchange) for each in self._all())

    def exchange_of(self, device: str, blob: str) -> str | None:
        """Return the exchange for whose reply a device uploads a blob; None when for none."""
        return next(
            (
                each.reply.exchange
                for each in self._running.values()
                if each.reply.device == device and blob in each.lacking
            ),
            None,
        )

    def arrived(self, blob: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Note that a blob is whole; return the requests to send, and the replies now whole."""
        whole: list[Reply] = []
        for key, upload in list(self._running.items()):
            upload.lacking.discard(blob)
            if not upload.lacking:
                del self._running[key]
                whole.append(upload.reply)
        asks, more = self._start(now)
        return asks, [*whole, *more]

    def leave(self, device: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Give a lost device's place to the next one; it sends its reply again when it is back."""
        return self._remove([each for each in self._all() if each.reply.device == device], now)

    def drop(self, exchange: str, now: float) -> tuple[list[Ask], list[Reply]]:
        """Forget the replies of an exchange that is closed; others replace them."""
        gone = [each for each in self._all() if each.reply.exchange == exchange]
        return self._remove(gone, now)

    def _all(self) -> list[_Upload]:
        return [*self._running.values(), *self._waiting]

    def _remove(self, gone: list[_Upload], now: float) -> tuple[list[Ask], list[Reply]]:
        keys = {each.key for each in gone}
        self._waiting = deque(each for each in self._waiting if each.key not in keys)
        running = [self._running.pop(key) for key in keys & self._running.keys()]
        lost = {blob for each in running for blob in each.lacking}
        for blob in lost:
            self._intake.drop(blob)
        asks: list[Ask] = []
        for each in self._running.values():
            if each.lacking & lost:  # an equal blob, which was being asked of another device
                asks += self._fetch(each, now)
        more, whole = self._start(now)
        return [*asks, *more], whole

    def failed(self, blob: str) -> list[Reply]:
        """Give up on replies with a blob that never arrived; return them."""
        gone = [each for each in self._running.values() if blob in each.lacking]
        for upload in gone:
            del self._running[upload.key]
        return [upload.reply for upload in gone]

    def _start(self, now: float) -> tuple[list[Ask], list[Reply]]:
        asks: list[Ask] = []
        whole: list[Reply] = []
        while self._waiting and len(self._running) < MAX_UPLOADS:
            upload = self._waiting.popleft()
            asks += self._fetch(upload, now)
            if upload.lacking:
                self._running[upload.key] = upload
            else:
                whole.append(upload.reply)
        return asks, whole

    def _fetch(self, upload: _Upload, now: float) -> list[Ask]:
        """Request the blobs that a reply lacks; an equal one of another reply may have arrived."""
        asks: list[Ask] = []
        for name, size in upload.reply.needed.items():
            if name in upload.lacking:
                ask = self._intake.fetch(upload.reply.device, name, size, "pull", now)
                if ask is not None:
                    asks.append(ask)
                if self._intake.cache.has(name):
                    upload.lacking.discard(name)
        return asks
