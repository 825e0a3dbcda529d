"""The speeds of a run's devices and rounds, measured and read from its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from edgefed.errors import UnknownNameError
from edgefed.events.base.log import Log
from edgefed.report.run_data import EVENTS

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

LEAST_DOWNLOAD = 64 * 1024
"""Bytes of a download whose rate says something: a smaller one lasts as long as its messages
travel."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """The speed of a device: medians over its answers.

    Attributes:
        seconds_per_sample: to train on one sample once.
        uplink: bytes per second from the device; None where it is unknown, 0 for no limit.
        downlink: bytes per second to the device; None without a download of ``LEAST_DOWNLOAD``.
        joules_per_sample: to train on one sample once; None where the energy was not measured.
    """

    device: str
    seconds_per_sample: float
    uplink: float | None = None
    downlink: float | None = None
    joules_per_sample: float | None = None


class _Answer(BaseModel):
    """The event of an accepted answer whose training was measured."""

    round: int = 0
    exchange: str = ""
    device: str
    outcome: Literal["accepted"]
    trained_samples: Annotated[int, Field(gt=0)]
    bytes: Annotated[int, Field(ge=0)] = 0
    training_seconds: Seconds
    upload_seconds: Seconds | None = None
    download_seconds: Seconds = 0.0
    download_bytes: Annotated[int, Field(ge=0)] = 0
    joules: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @property
    def counted_seconds(self) -> float:
        """The seconds that the device's speeds explain."""
        return self.download_seconds + self.training_seconds + (self.upload_seconds or 0.0)

    @property
    def uplink(self) -> float | None:
        """Bytes per second; None if not known, 0 if the upload took no time."""
        if self.upload_seconds is None or not self.bytes:
            return None
        return self.bytes / self.upload_seconds if self.upload_seconds else 0.0

    @property
    def downlink(self) -> float | None:
        """Bytes per second; None if not known."""
        if self.download_bytes < LEAST_DOWNLOAD or not self.download_seconds:
            return None
        return self.download_bytes / self.download_seconds


def speeds_of_folder(folder: Path) -> tuple[tuple[MeasuredSpeed, ...], tuple[str, ...]]:
    """Return the speeds of the devices whose training was measured, and the names of the others.

    Raises:
        UnknownNameError: it is not a run's folder, or ``speeds.none``: no training was measured.
        StorageError: its event log cannot be read.
    """
    answers = defaultdict[str, list[_Answer]](list)
    devices = set[str]()
    for event in _events(folder):
        if event.get("kind") == "roster":
            devices.update(map(str, event.get("devices", ())))
        if (answer := _answer(event)) is not None:
            answers[answer.device].append(answer)
    if not answers:
        raise UnknownNameError(
            f"Run {folder.name} has no speeds: the training of no answer was measured.",
            code="speeds.none",
            hint="wait for a round, or name a later run; runs of earlier versions and simulations"
            " without [speeds] measure nothing",
        )
    speeds = tuple(_speed(device, answers[device]) for device in sorted(answers))
    return speeds, tuple(sorted(devices - answers.keys()))


def round_overhead(folder: Path) -> float:
    """Return the seconds of a round that its devices' speeds do not explain; 0 if unknown.

    These are the seconds for messages, starts of the work, merging, tests, and waits for the device
    that happens to be late: the median over rounds of the round's time without, for each exchange,
    the usual downloads, training and uploads of the slowest device.

    Raises:
        EdgeFedError: as ``speeds_of_folder``.
    """
    own = defaultdict[str, list[float]](list)
    asked = defaultdict[int, dict[str, set[str]]](dict)
    seconds: dict[int, float] = {}
    for event in _events(folder):
        if (answer := _answer(event)) is not None:
            own[answer.device].append(answer.counted_seconds)
            asked[answer.round].setdefault(answer.exchange, set()).add(answer.device)
        elif event.get("kind") == "scored" and event.get("seconds"):
            seconds[event.get("round", 0)] = event["seconds"]
    usual = {device: median(values) for device, values in own.items()}
    rest = [
        max(
            0.0, seconds[number] - sum(max(map(usual.__getitem__, of)) for of in exchanges.values())
        )
        for number, exchanges in asked.items()
        if number in seconds
    ]
    return _rounded(rest) or 0.0


def _answer(event: Mapping[str, Any]) -> _Answer | None:
    """Return a measured answer; None for another event and that of a version without measures."""
    if event.get("kind") != "reply" or "training_seconds" not in event:
        return None
    try:
        return _Answer.model_validate(event)
    except ValidationError:
        return None


def _events(folder: Path) -> Iterable[Mapping[str, Any]]:
    log = Log(folder / EVENTS)
    if not log.path.is_file():
        raise UnknownNameError(
            f"{folder} is not a run's folder on this machine.",
            code="run.unknown",
            hint="name a run or its folder, on the coordinator's machine",
        )
    return log.events()


def _speed(device: str, answers: Iterable[_Answer]) -> MeasuredSpeed:
    answers = tuple(answers)
    per_sample = median(answer.training_seconds / answer.trained_samples for answer in answers)
    return MeasuredSpeed(
        device,
        _rounded([per_sample]) or 0.0,
        _rounded([answer.uplink for answer in answers if answer.uplink is not None]),
        _rounded([answer.downlink for answer in answers if answer.downlink is not None]),
        _rounded([e.joules / e.trained_samples for e in answers if e.joules is not None]),
    )


def _rounded(values: Sequence[float]) -> float | None:
    """Return the median with six significant digits; None without values."""
    return float(f"{median(values):.6g}") if values else None
