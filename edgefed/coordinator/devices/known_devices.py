"""Names of the devices that have taken part: those of open exchanges and of accepted replies.

They are kept across restarts, so that a flood of births never excludes a device that a run needs.
"""

from __future__ import annotations

import logging
import threading

from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import StorageError

log = logging.getLogger(__name__)

MAX_KNOWN = 10_000
"""Names that are kept."""


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
