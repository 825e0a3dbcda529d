"""The keys of other devices that a device has seen, in a folder with a file for each name."""

from __future__ import annotations

import logging
from pathlib import Path

from edgefed.errors import NotAllowedError
from edgefed.files.writing import make_folder, write_atomic
from edgefed.trust.succession import Succession

log = logging.getLogger(__name__)


class KnownKeys:
    """Remembers the key of each device, from its first certificate on; owned by one thread.

    The authority can issue a second certificate for a device's name. Its key is refused unless the
    known one leads to it.

    Args:
        folder: holds the keys; created when missing.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._folder = folder

    def check(self, device: str, key: bytes, succession: Succession) -> None:
        """Check that a key is the one that a device had before, or follows it; remember it.

        Call it for keys that the authority certified only.

        Raises:
            NotAllowedError: ``trust.known_key``: the device had another key.
            StorageError: the disk does not take it.
        """
        known = self._known(device)
        if known == key.hex():
            return
        if known and not _leads(succession, known, key):
            raise NotAllowedError(
                f"{device} has another key than before, which its known key did not sign.",
                code="trust.known_key",
                hint=f"if {device} was really enrolled again, delete the file"
                f" {self._folder / device}, or let it enrol under another name",
            )
        if not known:
            log.info("the key of %s is seen for the first time", device)
        write_atomic(self._folder / device, key.hex().encode())

    def _known(self, device: str) -> str:
        """Return the known key in hexadecimal, or nothing."""
        try:
            return (self._folder / device).read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise NotAllowedError(
                f"The known key of {device} cannot be read: {error.strerror}.",
                code="trust.known_key",
            ) from error


def _leads(succession: Succession, known: str, key: bytes) -> bool:
    try:
        return succession.leads(bytes.fromhex(known), key)
    except ValueError:
        return False  # the file is damaged
