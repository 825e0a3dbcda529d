"""The versions of one payload that devices were sent last, bounded in number and bytes.

They say from which older versions a patch is worth making. A device may hold less than is noted
here, when its disk was full or it never saw the task; it then takes another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

MOST_VERSIONS = 16
"""Most versions of a payload whose arrays are kept on disk."""

MOST_BYTES = 512 * 1024**2
"""Most bytes of these arrays, but for the newest version."""

MOST_DEVICES = 4096
"""Most devices whose version is known: a commit writes them down."""


class HeldVersions:
    """Which device was sent which version; iterates over the digests, oldest first.

    Args:
        stored: from ``to_json`` of a previous process.
    """

    def __init__(self, stored: Iterable[Any] = ()) -> None:
        self._sizes: dict[str, int] = {}
        self._of: dict[str, str] = {}  # longest unchanged first
        for digest, size, devices in stored:
            self.note(str(digest), int(size), map(str, devices))

    def __iter__(self) -> Iterator[str]:
        return iter(self._sizes)

    def of(self, device: str) -> str | None:
        """Return the digest of the version that a device was sent last; None if it is not kept."""
        return self._of.get(device)

    def note(self, digest: str, size: int, devices: Iterable[str]) -> None:
        """Note that devices are sent a version, which is the newest one.

        Args:
            digest: of its packed arrays.
            size: their bytes.
            devices: ids; they no longer count for their earlier versions.
        """
        for device in devices:
            # Moved to the end, so that the devices that are forgotten are those unchanged longest
            self._of.pop(device, None)
            self._of[device] = digest
        for device in list(self._of)[: max(0, len(self._of) - MOST_DEVICES)]:
            del self._of[device]
        # Moved to the end, also where devices are sent an older version again
        self._sizes.pop(digest, None)
        self._sizes[digest] = size
        self._trim()

    def to_json(self) -> list[list[Any]]:
        """Return the versions, oldest first: digest, bytes and devices of each."""
        devices: dict[str, list[str]] = {digest: [] for digest in self._sizes}
        for device, digest in self._of.items():
            devices[digest].append(device)
        return [[digest, size, devices[digest]] for digest, size in self._sizes.items()]

    def _trim(self) -> None:
        """Forget versions that nobody holds, and the oldest ones beyond the bounds."""
        held = set(self._of.values())
        # The newest one stays however large it is: the next difference is from it
        newest, *older = (digest for digest in reversed(self._sizes))
        kept, room = [newest], MOST_BYTES
        for digest in (digest for digest in older if digest in held):
            room -= self._sizes[digest]
            if room >= 0 and len(kept) < MOST_VERSIONS:
                kept.append(digest)
        self._sizes = {digest: self._sizes[digest] for digest in reversed(kept)}
        self._of = {device: digest for device, digest in self._of.items() if digest in self._sizes}
