"""The measurements of a run's devices, from the rows of its rounds.

A row says which devices were asked to train, and of those whose answers were merged the training
loss, the seconds from question to answer, and the local steps. A run that is resumed reads them
again; of an exchange that was open then, the seconds are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.selection.base import Candidate
from edgefed.events.base.method_tables import DEVICE, Column, MethodTable, method_table
from edgefed.events.history.early_stopping import MEASURED


@dataclass(frozen=True)
class Measured:
    """A merged answer.

    Attributes:
        loss: mean of the training; None where it is not sent.
        seconds: from the question to the answer; None where they do not count.
        steps: of the training; 0 where they are not sent.
    """

    loss: float | None = None
    seconds: float | None = None
    steps: int = 0


@dataclass(frozen=True)
class DeviceMeasurements:
    """The measurements of one device.

    Attributes:
        asked: how often it was asked to train.
        last: the last round in which it was.
        answer: the last merged answer; None before the first.
    """

    asked: int = 0
    last: int = 0
    answer: Measured | None = None


COLUMNS = (
    Column(name="asked", format=",d"),
    Column(name="last", unit="round", format=",d"),
    Column(name="loss", format=".4f"),
    Column(name="seconds", unit="s", format=".3g"),
    Column(name="steps", format=",d"),
)


class Measurements:
    """The measurements of a run's devices; see the module. They are shown as a table."""

    name = "measurements"
    names_devices = True

    def __init__(self) -> None:
        self._devices: dict[str, DeviceMeasurements] = {}

    def begin(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Begin with the rows of the rounds so far, with their details."""
        self._devices.clear()
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a round's row, with its details."""
        for device, values in row.get(MEASURED, {}).items():
            before = self.of(device)
            answer = Measured(*values) if values else before.answer
            self._devices[device] = replace(
                before, asked=before.asked + 1, last=row["round"], answer=answer
            )

    def series(self) -> Mapping[str, float]:
        """Return the number of devices that have been asked; nothing before the first."""
        return {"devices": float(len(self._devices))} if self._devices else {}

    def table(self) -> MethodTable | None:
        """Return the table, with the loss, seconds and steps of each device's last answer."""
        if not self._devices:
            return None
        rows = []
        for device, known in sorted(self._devices.items()):
            answer = known.answer or Measured()
            own = (answer.loss, answer.seconds, answer.steps or None)
            rows.append((device, (known.asked, known.last, *own)))
        return method_table(self.name, COLUMNS, rows, key=DEVICE, series=self.series())

    def of(self, device: str) -> DeviceMeasurements:
        """Return the measurements of a device."""
        return self._devices.get(device, DeviceMeasurements())

    def paced(self, roster: Roster) -> Roster:
        """Return a roster whose members have the pace of their last answer."""
        return tuple(replace(member, pace=self._pace(member.device)) for member in roster)

    def _pace(self, device: str) -> float | None:
        answer = self.of(device).answer
        if answer is None or answer.seconds is None or answer.steps < 1:
            return None
        return answer.seconds / answer.steps

    def candidates(self, members: Iterable[Member]) -> list[Candidate]:
        """Return devices with their measurements; those without samples are left out."""
        return [self._candidate(member) for member in members if member.samples > 0]

    def _candidate(self, member: Member) -> Candidate:
        known = self.of(member.device)
        answer = known.answer or Measured()
        return Candidate(
            member.device, member.samples, known.asked, known.last, answer.loss, answer.seconds
        )


def measured_row(
    asked: Iterable[str], answers: Mapping[str, Measured]
) -> dict[str, list[float | int | None]]:
    """Return the value of ``MEASURED``: a list for each device, empty without a merged answer."""
    rows = {device: answers.get(device) for device in sorted(asked)}
    return {
        device: [answer.loss, answer.seconds, answer.steps] if answer else []
        for device, answer in rows.items()
    }
