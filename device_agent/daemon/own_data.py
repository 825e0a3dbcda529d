"""Read a device's own samples before importing torch, so that problems are reported at once."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR

import numpy as np

from device_agent.daemon.announced_samples import (
    SAMPLES,
    AnnouncedSamples,
    OpenRun,
    described_samples,
    only_announced,
    read_announced,
)
from device_agent.identity.device_name import agent_folder
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import ClassNames, DeviceData
from edgefed.data.devices.growing_split import GrowingSplit, first_split
from edgefed.data.devices.sources import load_device, parse_source
from edgefed.errors import UsageError
from edgefed.files.samples import Samples

log = logging.getLogger(__name__)

DATABASE = "agent.db"
"""In the folder of an agent that was at work."""

DEPTH = 2
"""Levels of folders that are looked at: the source, and the folders of its classes."""


class OwnData:
    """The data of a device, which may change while its agent runs.

    Args:
        settings: the device's.

    Attributes:
        seen: digest of the files as they were when the data were read; empty before, and where
            files were left out.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._folder = agent_folder(settings)
        self._announced = read_announced(self._folder)
        self._described: AnnouncedSamples | None = None
        self._reported: object = None
        self.seen = ""

    def read(self, *, at_start: bool = False) -> DeviceData:
        """Return the device's samples.

        Args:
            at_start: whether an agent starts: in the middle of a run it has the samples that it
                announced, if they are still there.

        Raises:
            UsageError: no data is named.
            DataError: it cannot be trained on.
        """
        settings = self._settings
        if not settings.data:
            raise UsageError(
                "This device has no data to train on.",
                code="data.unset",
                hint="name it with --data npz:FILE or --data folder:FOLDER",
            )
        # Before they are read: a file that changes meanwhile is noticed at the next look.
        self.seen = self.look()
        before = self._announced_of_source()
        split = None if before is None else before.split

        def parts(samples: Samples, names: ClassNames) -> tuple[Samples, Samples]:
            nonlocal split
            if split is None:
                by_order = self._has_older_split
                split = first_split(samples, names, settings.holdout, by_order=by_order)
            return split.parts(samples, names)

        data = load_device(settings.data, settings.holdout, settings.state / "data", parts)
        split = split or GrowingSplit(settings.holdout, *2 * [np.zeros(0, np.uint64)])
        described = described_samples(data, settings.data, split)
        if at_start and before is not None and OpenRun(self._folder).owner is not None:
            kept = only_announced(data, described, before)
            if kept is not None and not described.same_samples(before):
                self.seen = ""
                data, described = kept, described_samples(kept, settings.data, split)
        self._described = described
        return data

    @property
    def _has_older_split(self) -> bool:
        """Whether an earlier version of the agent, which kept no record, was at work here."""
        return (self._folder / DATABASE).exists() and not (self._folder / SAMPLES).exists()

    def _announced_of_source(self) -> AnnouncedSamples | None:
        """Return the samples announced of these data with this share for tests."""
        wanted = (self._settings.data, self._settings.holdout)
        before = self._announced
        return before if before and (before.source, before.split.share) == wanted else None

    @property
    def is_announced(self) -> bool:
        """Whether the samples that were read last are those that were announced last."""
        described, announced = self._described, self._announced
        return described is not None and announced is not None and described.same_samples(announced)

    def announce(self) -> None:
        """Remember the samples that were read last, before a birth tells of them.

        Raises:
            StorageError: the disk does not take them.
        """
        if self._described is not None and (
            not self.is_announced or self._announced_of_source() is None
        ):
            self._described.write(self._folder)
            self._announced = self._described

    def report(self, data: DeviceData) -> None:
        """Log the warnings of data, once for the same files."""
        ignored = (data.ignored, data.ignored_files)
        if ignored != self._reported:
            self._reported = ignored
            for warning in data.warnings:
                log.warning("%s", warning)

    def look(self) -> str:
        """Return a digest of the names, sizes and times of the files."""
        lines = _files(parse_source(self._settings.data).path, DEPTH)
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def missing(self) -> str:
        """Return why the file or folder cannot be reached; empty where it can."""
        path = parse_source(self._settings.data).path
        try:
            path.stat()
        except OSError as error:
            return f"{path} cannot be reached ({error.strerror}); its samples stay in use"
        return ""


def load_data(settings: AgentSettings) -> DeviceData:
    """Return the device's samples, as an agent that starts between two runs reads them.

    Raises:
        UsageError: no data is named.
        DataError: it cannot be trained on.
    """
    return OwnData(settings).read()


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
