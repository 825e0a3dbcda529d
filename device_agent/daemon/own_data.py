"""Read a device's own samples before importing torch, so that problems are reported at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR

from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.data.devices.sources import load_device, parse_source
from edgefed.errors import UsageError

DEPTH = 2
"""Levels of folders that are looked at: the source, and the folders of its classes."""


class OwnData:
    """The data of a device, which may change while its agent runs.

    Args:
        settings: the device's.

    Attributes:
        seen: digest of the files as they were when the data were read; empty before.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self.seen = ""

    def read(self) -> DeviceData:
        """Return the device's samples.

        Raises:
            UsageError: no data is named.
            DataError: it cannot be trained on.
        """
        # Before they are read: a file that changes meanwhile is noticed at the next look.
        self.seen = self.look() if self._settings.data else ""
        return load_data(self._settings)

    def look(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        lines = _files(parse_source(self._settings.data).path, DEPTH)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def load_data(settings: AgentSettings) -> DeviceData:
    """Return the device's samples.

    Raises:
        UsageError: no data is named.
        DataError: it cannot be trained on.
    """
    if not settings.data:
        raise UsageError(
            "This device has no data to train on.",
            code="data.unset",
            hint="name it with --data npz:FILE or --data folder:FOLDER",
        )
    return load_device(settings.data, settings.holdout, settings.state / "data")


def _files(path: Path, depth: int) -> Iterator[str]:
    """Yield a line for a file, or for each of a folder down to ``depth``; not for hidden ones."""
    try:
        status = path.stat()
        if not S_ISDIR(status.st_mode):
            yield f"{path} {status.st_size} {status.st_mtime_ns}"
            return
        inside = sorted(path.iterdir())
    except OSError as error:
        yield f"{path} {error.errno}"
        return
    yield f"{path}/"
    for entry in inside if depth else ():
        if not entry.name.startswith("."):
            yield from _files(entry, depth - 1)
