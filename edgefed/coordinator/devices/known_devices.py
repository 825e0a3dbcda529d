"""The devices that may join: those that have taken part, and new ones after a second message.

Any client that may publish can publish births, and the broker retains them. A name that has never
taken part therefore joins only when a message of the same session follows its birth, as every agent
sends one. It is never asked before that. The names of the devices that have taken part, those of
open exchanges and of accepted replies, are kept across restarts, so that a flood of births never
excludes a device that a run needs.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import StorageError
from edgefed.wire.messages import Birth

log = logging.getLogger(__name__)

MAX_KNOWN = 10_000
"""Names that are kept."""

MAX_NEW = 4096
"""Births that wait."""

MAX_NEW_BYTES = 32 * 1024**2
"""Payload bytes of the births that wait."""


class KnownDevices:
    """Devices that have taken part; safe from any thread.

    Args:
        store: keeps their names.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names = store.devices()
        self._new: set[str] = set()
        self._lock = threading.Lock()

    def __contains__(self, device: str) -> bool:
        return device in self._names

    def add(self, device: str) -> None:
        """Note that a device's reply was accepted; it is written down by ``save``."""
        with self._lock:
            if device not in self._names and len(self._names) < MAX_KNOWN:
                self._names.add(device)
                self._new.add(device)

    def forget(self, device: str) -> None:
        """Forget a device that an operator has removed."""
        with self._lock:
            self._names.discard(device)
            self._new.discard(device)
        self._store.forget_device(device)

    def save(self) -> None:
        """Write down the devices that were added; a full disk only costs their precedence."""
        with self._lock:
            new, self._new = self._new, set()
        if not new:
            return
        try:
            self._store.add_devices(new)
        except StorageError as error:
            log.warning("%s", error.message)


class NewDevices:
    """The births that wait, the oldest first; owned by one thread."""

    def __init__(self) -> None:
        self._births: OrderedDict[str, tuple[Birth, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._births)

    def take(self, device: str, birth: Birth, size: int) -> None:
        """Keep a birth in place of an earlier one; a will ends the waiting of its session."""
        before = self._births.get(device)
        if birth.status == "lost":
            if before is not None and before[0].session == birth.session:
                self._drop(device)
            return
        self._drop(device)
        self._births[device] = birth, size
        self._bytes += size
        while len(self._births) > MAX_NEW or self._bytes > MAX_NEW_BYTES:
            self._drop(next(iter(self._births)))

    def hear(self, device: str, session: str) -> Birth | None:
        """Return the birth of a device of which a message has come; None when there is none."""
        waiting = self._births.get(device)
        if waiting is None or waiting[0].session != session:
            return None
        self._drop(device)
        return waiting[0]

    def _drop(self, device: str) -> None:
        dropped = self._births.pop(device, None)
        if dropped is not None:
            self._bytes -= dropped[1]
