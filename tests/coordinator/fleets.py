"""Fleets in front of virtual devices that lose, repeat, delay and falsify replies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
import zstandard

from edgefed.algorithms.interface.member import Roster
from edgefed.coordinator.exchanges.fleet import Delivered, Fleet, Overdue, Verdict
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.base.types import Tensors
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.tensors import digest

Tamper = Callable[[OpenExchange, Iterator[Delivered]], Iterator[Delivered]]
"""What becomes of an exchange's replies on their way."""

Forge = Callable[[Delivered], Delivered]


class TamperedFleet(Fleet):
    """A fleet whose replies go through a tamperer, but for those to ``shared`` exchanges.

    Attributes:
        asked: every exchange that was put.
        verdicts: device, outcome and reason of every judged reply.
        through: the last exchange index that is over.
    """

    simulated = False

    def __init__(self, inner: Fleet, tamper: Tamper | None = None) -> None:
        self._inner = inner
        self._tamper: Tamper = tamper or (lambda _, replies: replies)
        self.asked: list[OpenExchange] = []
        self.verdicts: list[tuple[str, Verdict, str]] = []
        self.through = -1
        self.contributions = inner.contributions

    def roster(self) -> Roster:
        return self._inner.roster()

    def wait_for(self, devices: int, timeout: float, stop: Callable[[], bool]) -> Roster:
        return self._inner.wait_for(devices, timeout, stop)

    def put(self, exchange: OpenExchange, *, shared: bool = False) -> None:
        self.asked.append(exchange)
        self._inner.put(exchange, shared=shared)

    def replies(self, exchange: OpenExchange, stop: Callable[[], bool]) -> Iterator[Delivered]:
        yield from self._tamper(exchange, self._inner.replies(exchange, stop))

    def next_reply(self, until: float, stop: Callable[[], bool]) -> Delivered | None:
        return self._inner.next_reply(until, stop)

    def overdue(self) -> dict[str, Overdue]:
        return self._inner.overdue()

    def postpone(self, seconds: float) -> None:
        self._inner.postpone(seconds)

    def forget(self, exchanges: Collection[str]) -> None:
        self._inner.forget(exchanges)

    def drop(self, exchange: OpenExchange, *, put_again: bool = False) -> None:
        self._inner.drop(exchange, put_again=put_again)

    def verdict(self, reply: Reply, outcome: Verdict, reason: str) -> None:
        self.verdicts.append((reply.device, outcome, reason))

    def closed(self, run: str, through: int) -> None:
        self.through = through

    def traffic(self) -> tuple[int, int]:
        return self._inner.traffic()


def silent(*devices: str) -> Tamper:
    """Lose every reply of these devices; the exchange then ends as at its deadline."""

    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (each for each in replies if each.reply.device not in devices)

    return tamper


def forged(device: str, forge: Forge) -> Tamper:
    """Falsify every reply of a device."""

    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (forge(each) if each.reply.device == device else each for each in replies)

    return tamper


def told(**changes: object) -> Forge:
    """Change fields of the reply."""
    return lambda each: _replace(each, each.reply.model_copy(update=changes), {})


def with_blob(blob: bytes, role: str = "delta") -> Forge:
    """Put other bytes in the place of a blob."""
    ref = BlobRef(digest=digest(blob), size=len(blob))

    def forge(each: Delivered) -> Delivered:
        reply = each.reply.model_copy(update={"blobs": {**each.reply.blobs, role: ref}})
        return _replace(each, reply, {ref.digest: blob})

    return forge


def with_delta(change: Callable[[Tensors], Tensors]) -> Forge:
    """Send another delta than the device's."""

    def forge(each: Delivered) -> Delivered:
        return with_blob(exact(change(delta_of(each))))(each)

    return forge


def with_bits(high: int, low: int, role: str = "delta") -> Forge:
    """Set the two upper bytes of every float of the first tensor, which no encoder of ours does."""

    def forge(each: Delivered) -> Delivered:
        delta = delta_of(each, role)
        blob = exact(delta)
        start = blob.index(zstandard.FRAME_HEADER)
        content = bytearray(zstandard.ZstdDecompressor().decompress(blob[start:]))
        count = next(iter(delta.values())).size
        content[: 2 * count] = bytes([high]) * count + bytes([low]) * count
        changed = blob[:start] + zstandard.ZstdCompressor().compress(bytes(content))
        return with_blob(changed, role)(each)

    return forge


def delta_of(each: Delivered, role: str = "delta") -> Tensors:
    """Return what a device says that its training changed, or sends in another role."""
    return decode(each.read(each.reply.blobs[role].digest), None)


def exact(arrays: Tensors) -> bytes:
    """Return a lossless blob."""
    return CODECS["fp32"].encode(arrays, np.random.default_rng(0))


def _replace(each: Delivered, reply: Reply, blobs: Mapping[str, bytes]) -> Delivered:
    def read(name: str) -> bytes:
        return blobs[name] if name in blobs else each.read(name)

    return Delivered(reply, read, each.seconds, each.size)
