"""A poor link: a TCP proxy that can be slow, cut, truncate, and repeat or reorder messages."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.faults.mqtt_packets import PacketSplitter, is_message, unacknowledged_copy

PIECE = 16 * 1024
HISTORY = 32
"""Messages of each direction that can be repeated."""

LARGEST_REPEATED = 64 * 1024
LONGEST_HELD = 1.0
"""Seconds that a message may be held back while others overtake it."""

_History = deque[bytes]


@dataclass(frozen=True)
class TlsEnds:
    """Both ends of a link that reads what it forwards: it is the broker, and then the client."""

    towards_client: ssl.SSLContext
    towards_broker: ssl.SSLContext


class FaultyLink:
    """Listens on a port of its own and forwards every connection to a broker.

    All methods may be called from any thread.

    Args:
        target: port of the broker on loopback.
        down, up: bytes per second towards the client and from it.
        reads: whether it knows the messages in what it forwards, which takes ``tls`` where the
            stream is encrypted; it can repeat and reorder them only then.
        tls: ends of an encrypted stream.
        beside: a second port so far from the first is forwarded to one so far from the target.
        rng: which messages are repeated and held back.

    Attributes:
        carried: bytes carried to the client and from it.
    """

    def __init__(
        self,
        target: int,
        *,
        down: float,
        up: float,
        reads: bool = False,
        tls: TlsEnds | None = None,
        beside: int = 0,
        rng: random.Random | None = None,
    ) -> None:
        self._target = target
        self._beside = beside
        self._rates = (down, up)
        self._limit = float("inf")
        self._reads = reads
        self._tls = tls
        self._rng = rng or random.Random(0)
        self._refusing = self._truncating = False
        self._repeating = self._reordering = 0.0
        self.repeated = self.reordered = 0
        self.carried = [0, 0]
        # Of all connections: a message of an earlier session may come again in a later one.
        self._histories = (_History(maxlen=HISTORY), _History(maxlen=HISTORY))
        self._transports: set[asyncio.WriteTransport] = set()
        self._loop = asyncio.new_event_loop()
        self._servers = self._loop.run_until_complete(self._listen_to_all())
        self.port: int = self._servers[0].sockets[0].getsockname()[1]
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Cut every connection and stop."""
        self._call(self._stop)
        self._thread.join()
        self._loop.run_until_complete(self._end_tasks())
        self._loop.close()

    def cut(self) -> None:
        """Cut every connection, and refuse new ones until ``restore``."""
        self._refusing = True
        self._call(self._abort)

    def truncate(self) -> None:
        """Cut every connection in the middle of the next thing that it carries."""
        self._truncating = True

    def slow(self, rate: float) -> None:
        """Carry so many bytes per second in each direction until ``restore``."""
        self._limit = rate

    def repeat(self, share: float) -> None:
        """Carry this share of messages twice, half of them a while later, until ``restore``."""
        self._repeating = share

    def reorder(self, share: float) -> None:
        """Let later messages overtake this share of them, until ``restore``."""
        self._reordering = share

    def restore(self) -> None:
        """End all faults."""
        self._refusing = self._truncating = False
        self._repeating = self._reordering = 0.0
        self._limit = float("inf")

    def _is_cut(self) -> bool:
        return self._refusing

    # -- the loop's thread --------------------------------------------------------------------

    def _call(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # closed before
            self._loop.call_soon_threadsafe(act)

    def _stop(self) -> None:
        for server in self._servers:
            server.close()
        self._abort()
        self._loop.stop()

    def _abort(self) -> None:
        for each in list(self._transports):
            each.abort()

    async def _end_tasks(self) -> None:
        tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen_to_all(self) -> list[asyncio.Server]:
        while True:
            first = await self._listen(0, self._target)
            if not self._beside:
                return [first]
            port = first.sockets[0].getsockname()[1] + self._beside
            try:
                return [first, await self._listen(port, self._target + self._beside)]
            except (OSError, OverflowError):  # it is taken: try other ports
                first.close()

    async def _listen(self, port: int, target: int) -> asyncio.Server:
        context = self._tls.towards_client if self._tls else None
        connect = partial(self._connect, target)
        return await asyncio.start_server(connect, "127.0.0.1", port, ssl=context)

    async def _connect(
        self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._is_cut():
            writer.transport.abort()
            return
        context = self._tls.towards_broker if self._tls else None
        try:
            broker = await asyncio.open_connection("127.0.0.1", target, ssl=context)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer.transport, broker[1].transport)
        self._transports.update(ends)
        try:
            if self._is_cut():  # meanwhile
                return
            await asyncio.gather(
                self._pump(broker[0], writer, 0),
                self._pump(reader, broker[1], 1),
            )
        except (OSError, asyncio.CancelledError):  # the latter when the link is closed
            pass
        finally:
            self._transports.difference_update(ends)
            for each in ends:
                each.abort()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: int,
    ) -> None:
        rate = self._rates[way]
        direction = _Direction(PacketSplitter() if self._reads else None, self._histories[way])
        while True:
            for piece in self._changed(direction, await self._next(source, direction)):
                if self._truncating:
                    sink.write(piece[: len(piece) // 2])
                    await sink.drain()
                    self._truncating = False
                    raise ConnectionResetError
                # Bytes arrive once they have passed the link
                await asyncio.sleep(len(piece) / min(rate, self._limit))
                sink.write(piece)
                self.carried[way] += len(piece)
                await sink.drain()

    async def _next(self, source: asyncio.StreamReader, direction: _Direction) -> list[bytes]:
        """Return what comes next; nothing when it is time for a message that was held back."""
        try:
            due = LONGEST_HELD if direction.held else None
            data = await asyncio.wait_for(source.read(PIECE), due)
        except asyncio.TimeoutError:
            return []
        if not data:
            raise ConnectionResetError
        return direction.splitter.take(data) if direction.splitter else [data]

    def _changed(self, direction: _Direction, pieces: list[bytes]) -> list[bytes]:
        """Return what to forward instead of some pieces."""
        if direction.splitter is None:
            return pieces
        if not pieces:
            return direction.release()
        sent = []
        for piece in pieces:
            if not is_message(piece):
                sent.append(piece)
                continue
            direction.remember(piece)
            if self._rng.random() < self._reordering:
                self.reordered += 1
                direction.held.append(piece)
                continue
            sent.append(piece)
            if self._rng.random() < self._repeating:
                self.repeated += 1
                sent.append(direction.repeated(self._rng, piece))
            if len(direction.held) > 3 or not self._reordering:
                sent += direction.release()
        return sent


class _Direction:
    """The state of one direction of a connection."""

    def __init__(self, splitter: PacketSplitter | None, history: _History) -> None:
        self.splitter = splitter
        self.held: list[bytes] = []
        self._history = history

    def remember(self, packet: bytes) -> None:
        if len(packet) <= LARGEST_REPEATED:
            self._history.append(packet)

    def repeated(self, rng: random.Random, packet: bytes) -> bytes:
        """Return a copy of a message, or of one that was carried before it."""
        earlier = bool(self._history) and rng.random() < 0.5
        return unacknowledged_copy(rng.choice(self._history) if earlier else packet)

    def release(self) -> list[bytes]:
        """Return what was held back, the last first."""
        released, self.held = self.held[::-1], []
        return released
