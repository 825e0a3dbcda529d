"""Blobs on their way from device to device: kept in the coordinator's cache, never decoded.

The store has a row for each blob that was sent and not yet delivered. Each of them is pinned, so
that the cache keeps it. Blobs without a row are deleted. A marker file for each incoming blob,
written before the blob and deleted after it, lets the next process delete the blobs that a killed
process left behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from edgefed.algorithms.interface.exchange import Exchange, Question, Relay
from edgefed.coordinator.exchanges.reply_checks import Rejection
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import StorageError, UsageError, WireError
from edgefed.files.writing import PRIVATE_FILE, make_folder, storage_error
from edgefed.wire import limits
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Task

log = logging.getLogger(__name__)

CACHE_BYTES = 4 * 1024**3
"""Most bytes of blobs on disk; the least recently used are deleted first."""

MAX_HELD_BYTES = 2 * 1024**3
"""Most bytes of blobs that were sent and not yet delivered; answers with more are rejected."""


class RelayedBlobs:
    """Holds the blobs that devices sent to others.

    ``announce``, ``settle`` and ``is_for_another`` are safe from any thread; the rest is for the
    engine's thread.

    Args:
        cache: the coordinator's blobs.
        folder: of the markers; created when missing.
        stored: references that the store has rows for.
        limit_bytes: most bytes that are held.

    Raises:
        StorageError: the folder cannot be used.
    """

    def __init__(
        self,
        cache: BlobCache,
        folder: Path,
        stored: Iterable[Relay] = (),
        limit_bytes: int = MAX_HELD_BYTES,
    ) -> None:
        self._cache = cache
        self._folder = make_folder(folder)
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._held: set[Relay] = set()
        self._bytes = 0
        self._receivers: dict[str, list[str]] = {}
        self._marked = {path.name for path in self._folder.iterdir()}
        self.sync(stored)
        # After the rows' blobs are held, so that only those without a row are deleted
        self._delete(self._marked - {relay.digest for relay in self._held})

    def announce(self, digests: Collection[str]) -> None:
        """Mark blobs that are about to come in, except those that are here for another reason.

        Raises:
            StorageError: a marker cannot be written.
        """
        with self._lock:
            for digest in digests:
                if digest not in self._marked and not self._cache.has(digest):
                    self._mark(digest)

    def keep(self, relayed: Iterable[Relay], read: Callable[[str], bytes]) -> None:
        """Hold the blobs of an answer until ``sync``; ``read`` returns their bytes.

        Raises:
            Rejection: one is not as the answer says, or there is no space for it.
        """
        for relay in relayed:
            try:
                data = read(relay.digest)
            except WireError as error:
                raise Rejection(f"its blob for {relay.receiver}: {error.message}") from error
            if len(data) != relay.size:
                raise Rejection(
                    f"its blob for {relay.receiver} does not have the size that it says"
                )
            if self._bytes + relay.size > self._limit:
                raise Rejection("the coordinator has no space for more blobs between devices")
            # Marked and pinned before it is put: neither a kill nor an eviction loses track of it
            self.announce([relay.digest])
            self._hold(relay)
            self._cache.put(data)

    def sync(self, stored: Iterable[Relay]) -> None:
        """Hold exactly the blobs that the store has rows for; delete the others."""
        wanted = set(stored)
        gone = self._held - wanted
        # New ones first: a blob that gets another receiver keeps a pin throughout
        for relay in wanted - self._held:
            self._hold(relay)
        for relay in gone:
            self._release(relay)
        self._delete({relay.digest for relay in gone})

    def settle(self, digests: Collection[str]) -> None:
        """Delete the markers of blobs that are no longer here."""
        with self._lock:
            for digest in self._marked & set(digests):
                # The marker goes after its blob: a kill leaves at most a marker to settle
                if not self._cache.has(digest):
                    self._unmark(digest)

    def available(self, exchange: Exchange, warn: Callable[[str], None]) -> Exchange:
        """Return an exchange with the blobs that can be delivered; ``warn`` gets the missing ones.

        Raises:
            UsageError: ``algorithm.relay``, as ``check_relays``.
        """
        check_relays(exchange)
        questions = tuple(
            self._available(question, exchange.discarded) for question in exchange.questions
        )
        pairs = zip(exchange.questions, questions, strict=True)
        for asked, kept in pairs:
            if missing := len(set(asked.relays) - set(exchange.discarded)) - len(kept.relays):
                warn(f"{missing} blobs that other devices sent to {asked.device} are gone")
        return replace(exchange, questions=questions)

    def has_all(self, opened: OpenExchange) -> bool:
        """Whether the blobs that an exchange delivers are here."""
        relays = [relay for task in opened.tasks for relay in task_relays(task)]
        return all(relay in self._held and self._has(relay) for relay in relays)

    def is_for_another(self, device: str, digest: str) -> bool:
        """Whether a blob is held for other devices, and not for this one."""
        with self._lock:
            return digest in self._receivers and device not in self._receivers[digest]

    def _available(self, question: Question, discarded: Collection[Relay]) -> Question:
        held = self._held - set(discarded)
        relays = [r for r in dict.fromkeys(question.relays) if r in held and self._has(r)]
        others = dict.fromkeys(
            receiver for receiver in question.receivers if receiver != question.device
        )
        # Sorted, so that a task does not depend on the order in which answers brought them
        by_sender = tuple(sorted(relays, key=lambda relay: relay.sender))
        return replace(question, relays=by_sender, receivers=tuple(others))

    def _has(self, relay: Relay) -> bool:
        return self._cache.intact(relay.digest)

    def _hold(self, relay: Relay) -> None:
        if relay in self._held:
            return
        self._cache.pin(relay.digest)
        self._held.add(relay)
        self._bytes += relay.size
        with self._lock:
            self._receivers.setdefault(relay.digest, []).append(relay.receiver)

    def _release(self, relay: Relay) -> None:
        self._cache.unpin(relay.digest)
        self._held.remove(relay)
        self._bytes -= relay.size
        with self._lock:
            self._receivers[relay.digest].remove(relay.receiver)
            if not self._receivers[relay.digest]:
                del self._receivers[relay.digest]

    def _delete(self, digests: Collection[str]) -> None:
        """Delete blobs that nobody else pinned, then their markers."""
        try:
            for digest in digests:
                self._cache.discard(digest)
            self.settle(digests)
        except StorageError as error:  # the next process deletes them
            log.warning("%s", error.message)

    def _mark(self, digest: str) -> None:
        path = self._folder / digest
        try:
            path.touch(PRIVATE_FILE)
        except OSError as error:
            raise storage_error(path, error) from error
        self._marked.add(digest)

    def _unmark(self, digest: str) -> None:
        path = self._folder / digest
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error
        self._marked.discard(digest)


def open_blobs(
    folder: Path,
    limit_bytes: int = CACHE_BYTES,
    stored: Collection[Relay] = (),
    needed: Iterable[str] = (),
) -> tuple[BlobCache, RelayedBlobs]:
    """Return the cache of a state directory, and the holder of the blobs between devices in it.

    Blobs that the store has rows for are pinned before the cache evicts anything. ``needed`` are
    blobs that stay pinned.
    """
    pinned = [relay.digest for relay in stored]
    # Pins are counted: these keep the blobs until each relay has its own
    cache = BlobCache(folder / "blobs", limit_bytes, [*pinned, *needed])
    relays = RelayedBlobs(cache, folder / "relays", stored)
    for digest in pinned:  # each has its own pin by now
        cache.unpin(digest)
    return cache, relays


def task_relays(task: Task) -> tuple[Relay, ...]:
    """Return references to the blobs that a task delivers."""
    return tuple(
        Relay(relay.exchange, relay.sender, task.device, relay.digest, relay.size)
        for relay in task.relays
    )


def delivered_relays(opened: OpenExchange, devices: Collection[str]) -> tuple[Relay, ...]:
    """Return references to the blobs that an exchange delivered to these devices."""
    answered = (task for task in opened.tasks if task.device in devices)
    return tuple(relay for task in answered for relay in task_relays(task))


def check_relays(exchange: Exchange) -> None:
    """Check the blobs that an algorithm sends from device to device.

    Raises:
        UsageError: ``algorithm.relay``: it exceeds a limit, delivers a blob to another device than
            its receiver, or the exchange is an evaluation.
    """
    if exchange.max_relay_bytes > limits.MAX_RELAY_BYTES:
        raise _wrong(exchange, f"allows blobs of more than {limits.MAX_RELAY_BYTES:,} bytes")
    for question in exchange.questions:
        if problem := _question_problem(exchange, question):
            raise _wrong(exchange, problem)


def _question_problem(exchange: Exchange, question: Question) -> str:
    device, most = question.device, limits.MAX_RELAYS
    if exchange.name == "evaluate" and (question.receivers or question.relays):
        return "is an evaluation, which sends no blobs from device to device"
    if len(question.receivers) > most:
        return f"names {len(question.receivers)} receivers to {device}; the most are {most}"
    if len(question.relays) > most:
        return f"delivers {len(question.relays)} blobs to {device}; the most are {most}"
    for relay in question.relays:
        if relay.receiver != device:
            return f"delivers a blob for {relay.receiver} to {device}"
    return ""


def _wrong(exchange: Exchange, problem: str) -> UsageError:
    return UsageError(
        f"The algorithm's exchange '{exchange.name}' {problem}.",
        code="algorithm.relay",
        hint="this is an error in the algorithm; tell its author",
    )
