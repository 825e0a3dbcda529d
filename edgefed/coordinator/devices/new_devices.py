"""Births of devices that are not yet confirmed by a second message, in bounded memory.

Any client that may publish can publish births, and the broker retains them. A name that has never
taken part therefore joins only when a message of the same session follows its birth, as every agent
sends one. It is never asked before that.
"""

from __future__ import annotations

from collections import OrderedDict

from edgefed.wire.messages import Birth

MAX_NEW = 4096
"""Births that wait."""

MAX_NEW_BYTES = 32 * 1024**2
"""Payload bytes of the births that wait."""


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
