"""Send the chunks of blobs, one window at a time, so that they do not delay small messages.

The application limits the window, because a queue in paho or in the broker would delay every later
message by its length. Transfers alternate, chunk by chunk.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import paho.mqtt.client as paho

from edgefed.transport.link import Link
from edgefed.wire.blobs import chunk
from edgefed.wire.envelope import encode
from edgefed.wire.limits import WINDOW_BROADCAST
from edgefed.wire.messages import Chunk

log = logging.getLogger(__name__)

Pieces = bytes | Callable[[int], bytes | None]
"""A blob, or a function that reads one of its chunks when it is sent; None where the blob is
gone."""

PATIENCE = 1.0
"""Longest wait before ``stop`` is looked at, in seconds."""


@dataclass
class Transfer:
    """Chunks of one blob under way to one topic.

    Attributes:
        topic: their target.
        digest: names the blob; a second request for a waiting chunk of the two is dropped.
        pieces: the blob.
        connection: number of the connection on which it was requested; it ends with that.
        chunks: numbers still to send.
    """

    topic: str
    digest: str
    pieces: Pieces
    connection: int
    chunks: deque[int] = field(default_factory=deque)


class ChunkSender:
    """A thread that sends chunks for one link."""

    def __init__(self, link: Link, window: int = WINDOW_BROADCAST) -> None:
        self._link = link
        self._window = window
        self._transfers: deque[Transfer] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._sent: deque[paho.MQTTMessageInfo] = deque()
        self._thread = threading.Thread(target=self._run, name="chunk-sender", daemon=True)
        self._thread.start()

    def send(self, topic: str, digest: str, pieces: Pieces, chunks: Iterable[int]) -> None:
        """Queue chunks of a blob; those that already wait for the topic are not queued twice."""
        with self._wake:
            self._forget_ended()
            same = (
                transfer
                for transfer in self._transfers
                if (transfer.topic, transfer.digest) == (topic, digest)
            )
            transfer = next(same, None)
            if transfer is None:
                transfer = Transfer(topic, digest, pieces, self._link.connections)
                self._transfers.append(transfer)
            waiting = set(transfer.chunks)
            transfer.chunks.extend(
                number for number in dict.fromkeys(chunks) if number not in waiting
            )
            self._wake.notify()

    def stop(self) -> None:
        """End the thread; waiting chunks are not sent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._transfers and not self._closing:
                    self._wake.wait()
                if self._closing:
                    return
                transfer = self._transfers.popleft()
                if not transfer.chunks:
                    continue
                number = transfer.chunks.popleft()
                if transfer.chunks:
                    # The rest goes to the end, so that transfers alternate
                    self._transfers.append(transfer)
            if not self._is_current(transfer):
                with self._wake:
                    self._forget_ended()
                continue
            try:
                self._send(transfer, number)
            except Exception:  # one chunk that cannot be sent must not end the thread
                log.exception("chunk %d of %s was not sent", number, transfer.digest[:12])

    def _is_current(self, transfer: Transfer) -> bool:
        """Whether the connection on which a transfer was asked for is still the same."""
        return self._link.connected and transfer.connection == self._link.connections

    def _forget_ended(self) -> None:
        """Drop the transfers of earlier connections: their receivers request missing chunks again.

        The connection may have been replaced while this thread waited, which ``connected`` alone
        does not show. Unacknowledged chunks still count, because paho sends them again.
        """
        self._transfers = deque(
            transfer for transfer in self._transfers if self._is_current(transfer)
        )

    def _send(self, transfer: Transfer, number: int) -> None:
        pieces = transfer.pieces
        data = chunk(pieces, number) if isinstance(pieces, bytes) else pieces(number)
        if data is None:
            return
        # Unsigned, as the blob's digest proves it
        payload = encode(Chunk(digest=transfer.digest, index=number, data=data))
        while self._is_current(transfer) and not self._closing:
            if self._has_room():
                self._sent.append(self._link.publish(transfer.topic, payload))
                return
            with contextlib.suppress(ValueError, RuntimeError):
                self._sent[0].wait_for_publish(PATIENCE)

    def _has_room(self) -> bool:
        """Whether less than a window of chunks is unacknowledged."""
        while self._sent and _is_over(self._sent[0]):
            self._sent.popleft()
        return len(self._sent) < self._window


def _is_over(info: paho.MQTTMessageInfo) -> bool:
    """Whether a chunk is acknowledged, or paho says that it never will be."""
    try:
        return info.is_published()
    except (ValueError, RuntimeError):
        return True
