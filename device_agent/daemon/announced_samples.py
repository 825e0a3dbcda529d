"""The samples that an agent announced last, and how they are split, in its state folder.

An agent that is started again while a run is at work takes these samples from its data, so that its
tasks have the samples that it announced, whatever was added meanwhile.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.data.base.types import DeviceData, joined, take
from edgefed.data.devices.growing_split import GrowingSplit, Keys, sample_keys
from edgefed.errors import StorageError
from edgefed.files.samples import Samples
from edgefed.files.writing import write_atomic
from edgefed.terminal.units import counted

log = logging.getLogger(__name__)

SAMPLES = "samples.npz"
"""In the agent's folder: the samples."""

RUN_AT_WORK = "run-at-work"
"""In the agent's folder: the coordinator whose run is at work; no file without one."""


@dataclass(frozen=True, eq=False)
class AnnouncedSamples:
    """Samples that were announced.

    Attributes:
        source: setting that names the data.
        split: of the data, also of those to come.
        train, test: keys of the samples, in their order.
        classes, class_names: of the labels.
    """

    source: str
    split: GrowingSplit
    train: Keys
    test: Keys
    classes: int
    class_names: tuple[str, ...]

    def same_samples(self, other: AnnouncedSamples) -> bool:
        """Whether both have the same samples and classes."""
        return (
            (self.classes, self.class_names) == (other.classes, other.class_names)
            and np.array_equal(self.train, other.train)
            and np.array_equal(self.test, other.test)
        )

    def write(self, folder: Path) -> None:
        """Write them into an agent's folder.

        Raises:
            StorageError: the disk does not take them; those of before are intact.
        """
        about = {
            "source": self.source,
            "share": self.split.share,
            "classes": self.classes,
            "class_names": self.class_names,
        }
        buffer = io.BytesIO()
        np.savez(
            buffer,
            about=np.array(json.dumps(about)),
            held=self.split.held,
            trained=self.split.trained,
            train=self.train,
            test=self.test,
        )
        write_atomic(folder / SAMPLES, buffer.getvalue())


def described_samples(data: DeviceData, source: str, split: GrowingSplit) -> AnnouncedSamples:
    """Return a device's data as they are announced."""
    train, test = (sample_keys(part, data.class_names) for part in (data.train, data.test))
    return AnnouncedSamples(source, split, train, test, data.classes, data.class_names)


def read_announced(folder: Path) -> AnnouncedSamples | None:
    """Return the samples in an agent's folder; None where there are none that can be read."""
    path = folder / SAMPLES
    try:
        with np.load(path, allow_pickle=False) as file:
            about: dict[str, Any] = json.loads(str(file["about"]))
            held, trained, train, test = (
                file[name].astype(np.uint64) for name in ("held", "trained", "train", "test")
            )
        return AnnouncedSamples(
            str(about["source"]),
            GrowingSplit(float(about["share"]), held, trained),
            train,
            test,
            int(about["classes"]),
            tuple(map(str, about["class_names"])),
        )
    except FileNotFoundError:
        return None
    except Exception as error:  # NumPy's readers fail in many ways
        log.warning("%s is damaged, and the samples are split anew: %s", path, error)
        return None


def only_announced(
    data: DeviceData, described: AnnouncedSamples, announced: AnnouncedSamples
) -> DeviceData | None:
    """Return the announced samples of a device's data; None if none to train on are left.

    Args:
        data: the present data.
        described: describes it.
        announced: the samples of before.
    """
    pool = joined([data.train, data.test]) if len(data.test) else data.train
    places: dict[int, list[int]] = {}  # several of equal samples
    for place, key in enumerate([*described.train.tolist(), *described.test.tolist()]):
        places.setdefault(key, []).append(place)
    parts = []
    for keys in (announced.train.tolist(), announced.test.tolist()):
        kept = np.array([places[key].pop(0) for key in keys if places.get(key)], np.int64)
        if len(kept) < len(keys):
            gone = counted(len(keys) - len(kept), "sample")
            log.warning("%s of the run at work cannot be read any more", gone)
        parts.append(_renumbered(take(pool, kept), data.class_names, announced.class_names))
    if not len(parts[0]):
        return None
    return replace(
        data,
        train=parts[0],
        test=parts[1],
        classes=announced.classes,
        class_names=announced.class_names,
    )


def _renumbered(samples: Samples, names: Sequence[str], wanted: Sequence[str]) -> Samples:
    """Return samples with the labels that their classes have in another list."""
    if not samples.has_labels or not names or list(names) == list(wanted):
        return samples
    numbers = {name: number for number, name in enumerate(wanted)}
    labels = np.array([numbers.get(name, 0) for name in names], np.int64)
    return replace(samples, targets=labels[samples.targets])


class OpenRun:
    """Whose run is at work, beyond the end of the agent's process.

    Args:
        folder: the agent's.

    Attributes:
        owner: of the coordinator; None without a run.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RUN_AT_WORK
        try:
            self.owner: str | None = self._path.read_text()
        except (OSError, ValueError):
            self.owner = None

    def note(self, owner: str | None) -> None:
        """Note that a run of a coordinator is at work, or none."""
        if owner == self.owner:
            return
        try:
            if owner is None:
                self._path.unlink(missing_ok=True)
            else:
                write_atomic(self._path, owner.encode())
        except (OSError, StorageError) as error:
            log.warning("after a restart, this agent may train on other samples: %s", error)
        self.owner = owner
