"""An event file as a recording: its events by number, read from disk when they are needed.

Values from a file are checked, so that those that are drawn have known types.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timezone
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, get_args

from pydantic import ValidationError

from edgefed.errors import DataError, UsageError
from edgefed.events.base.device_columns import roster_rows
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import (
    DeviceRoundView,
    DeviceSnapshot,
    RoundView,
    RunView,
)
from edgefed.events.base.view import View
from edgefed.events.state.lines import describe
from edgefed.files.writing import storage_error
from edgefed.process.clock import moment_of
from edgefed.terminal.progress import tell_progress
from edgefed.terminal.units import counted

Fields = Mapping[str, Any]


def check_event(event: Event) -> None:
    """Check that the fields of an event have values that this version knows.

    Folding takes fields as they are, because a coordinator of the same version sends them; a file
    may come from a newer version, or may be damaged. Unknown fields are fine.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: a field is missing, or its value is wrong
            or unknown.
    """
    _CHECKS.get(event.kind, _nothing)(event.fields)
    describe(event)


def _nothing(fields: Fields) -> None:
    del fields


def _of_view(view: type[View], **required: Any) -> Callable[[Fields], None]:
    """Return a check by a view's types; ``required`` has its fields that an event may lack."""

    def check(fields: Fields) -> None:
        view.model_validate({**required, **fields})

    return check


def _roster(fields: Fields) -> None:
    for row in roster_rows(fields):
        DeviceSnapshot.model_validate(row)


def _reply(fields: Fields) -> None:
    row = {"round": 0, **fields, "seconds": fields.get("seconds") or 0.0}
    DeviceRoundView.model_validate(row)
    DeviceSnapshot.model_validate({"device": fields["device"], "loss": fields.get("loss")})
    RunView.model_validate({"run": "", "accepted": fields["accepted"]})


_CHECKS: dict[EventKind, Callable[[Fields], None]] = {
    "run": _of_view(RunView),
    "round": _of_view(RoundView),
    "exchange": _of_view(RunView, run=""),
    "reply": _reply,
    "scored": _of_view(RoundView),
    "device": _of_view(DeviceSnapshot),
    "roster": _roster,
    "confusion": _of_view(ConfusionView),
}


LONGEST_GAP = 60.0
"""Seconds to which a longer pause between two events is shortened, so that a replay goes on."""

KINDS = frozenset(get_args(EventKind))
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, ValidationError)
"""Errors of an event whose fields are missing or wrong."""

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line that may be an event; a file that is no event file may have no end of line."""

LONG_FILE = 8 * 1024 * 1024
"""Bytes from which reading a file takes long enough to tell how far it is."""

_STEPS = 100
_LONGEST_KIND = 40
"""Characters of a kind that is named."""
_MOST_KINDS = 20
"""Unknown kinds that are named; a file that is no event file may have any number."""


@dataclass(frozen=True)
class LeftOut:
    """The parts of an event file that are not replayed.

    Attributes:
        unknown: events of kinds that this version does not know.
        kinds: those kinds, in the order of their first event.
        broken: lines that are not events, or whose fields are missing or wrong.
        first_broken: number of the first such line, counted from 1; 0 without one.
        cut: whether the last line is incomplete, as a crash leaves it.
    """

    unknown: int = 0
    kinds: tuple[str, ...] = ()
    broken: int = 0
    first_broken: int = 0
    cut: bool = False

    def in_words(self) -> str:
        """Return the left out parts, such as ``1 broken line (line 7)``; empty without any."""
        parts = []
        if self.unknown:
            parts.append(f"{counted(self.unknown, 'event')} of unknown kinds")
            parts[-1] += f" ({', '.join(self.kinds)})"
        if self.broken:
            first = "the first is " if self.broken > 1 else ""
            parts.append(f"{counted(self.broken, 'broken line')} ({first}line {self.first_broken})")
        if self.cut:
            parts.append("the last line, which is incomplete")
        return ", ".join(parts)


@dataclass
class Recording:
    """The events of a file; only their positions in the file and their times are in memory.

    Attributes:
        path: the file.
        offsets: begin of each event's line.
        seconds: when to replay each event, after the first one; never falls, even where the clock
            of the recording went back, and pauses are at most ``LONGEST_GAP``.
        stamps: POSIX time of each event, as it was recorded.
        round_ends: number of events up to the end of each round.
        rounds: the number of each of these rounds.
        opened: number of events up to the first that opens a round, by the round's number.
        left_out: parts of the file that cannot be replayed.
    """

    path: Path
    offsets: array[int] = field(default_factory=lambda: array("Q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    stamps: array[float] = field(default_factory=lambda: array("d"))
    round_ends: array[int] = field(default_factory=lambda: array("Q"))
    rounds: array[int] = field(default_factory=lambda: array("Q"))
    opened: dict[int, int] = field(default_factory=dict)
    left_out: LeftOut = LeftOut()

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Return the recording in an event file.

        Raises:
            StorageError: the file cannot be read.
        """
        recording = cls(path)
        try:
            with path.open("rb") as file:
                recording._scan(file, path.stat().st_size)
        except OSError as error:
            raise storage_error(path, error) from error
        return recording

    @classmethod
    def read_nonempty(cls, path: Path) -> Recording:
        """Return the recording in an event file, which has events.

        Raises:
            StorageError: the file cannot be read.
            DataError: it has no events.
        """
        recording = cls.read(path)
        if recording.offsets:
            return recording
        left_out = recording.left_out.in_words()
        if left_out:
            raise DataError(
                f"{path} holds no events of this version: {left_out}.",
                code="events.invalid",
                hint="name an unmodified events.jsonl; of a newer version, update EdgeFed",
            )
        raise DataError(
            f"{path} is empty.", code="recording.empty", hint="name a run that has begun"
        )

    def round_starts(self) -> dict[int, int]:
        """Return the number of events up to the start of each finished round, by its number.

        A round starts with the event that opens it, or else with the end of the round before. The
        first one is there in any case.
        """
        ends = dict(zip(self.rounds, self.round_ends, strict=True))
        before = {1: 0, **{number: ends[number - 1] for number in ends if number - 1 in ends}}
        return {number: max(end, self.opened.get(number, 0)) for number, end in before.items()}

    def start_of_round(self, number: int) -> int:
        """Return the number of events up to the start of a round.

        Raises:
            UsageError: ``recording.round``: the recording does not have this round.
        """
        starts = self.round_starts()
        if number not in starts:
            raise UsageError(
                f"{self.path} has no finished round {number}.",
                code="recording.round",
                hint=f"the last one is {max(starts)}" if self.rounds else "leave --round out",
            )
        return starts[number]

    def __len__(self) -> int:
        return len(self.offsets)

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[Event | None]:
        """Yield the events from number ``start`` up to ``stop``, counted from 0.

        None stands for an event that can no longer be read because the file has changed.

        Raises:
            StorageError: the file cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                for offset in self.offsets[start:stop]:
                    file.seek(offset)
                    yield _event_or_none(file.readline(LONGEST_LINE))
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _scan(self, file: BinaryIO, size: int) -> None:
        offset, last_step = 0, -1
        for number, line in enumerate(iter(partial(file.readline, LONGEST_LINE), b""), 1):
            if not line.endswith(b"\n") and len(line) < LONGEST_LINE:
                self.left_out = replace(self.left_out, cut=bool(line.strip()))
            elif line.strip():
                self._take(line, offset, number)
            offset += len(line)
            step = min(_STEPS, offset * _STEPS // max(1, size))
            if size >= LONG_FILE and step != last_step:
                last_step = step
                tell_progress("reading events", step, _STEPS)

    def _take(self, line: bytes, offset: int, number: int) -> None:
        left = self.left_out
        try:
            flat = _flat(line)
            kind, stamp = flat["kind"], moment(flat["time"])
            if kind not in KINDS:
                kind = kind[:_LONGEST_KIND]
                kinds = left.kinds if kind in left.kinds else (*left.kinds, kind)[:_MOST_KINDS]
                self.left_out = replace(left, unknown=left.unknown + 1, kinds=kinds)
                return
            event = Event.from_flat(flat)
            check_event(event)
        except UNREADABLE:
            first = left.first_broken or number
            self.left_out = replace(left, broken=left.broken + 1, first_broken=first)
            return
        self._append(event, stamp, offset)

    def _append(self, event: Event, stamp: float, offset: int) -> None:
        gap = stamp - self.stamps[-1] if self.stamps else 0.0
        after = self.seconds[-1] if self.seconds else 0.0
        self.stamps.append(stamp)
        self.seconds.append(after + min(LONGEST_GAP, max(0.0, gap)))
        self.offsets.append(offset)
        if event.kind == "round":
            self.opened.setdefault(int(event.fields["round"]), len(self.offsets))
        if event.kind == "scored":
            self.round_ends.append(len(self.offsets))
            self.rounds.append(max(0, int(event.fields["round"])))


def moment(stamp: str) -> float:
    """Return an ISO 8601 time as seconds since 1970; one without a zone is UTC.

    Raises:
        ValueError: it is not a time, or in a year without events.
    """
    parsed = moment_of(stamp)
    if not 1969 <= parsed.year <= 9000:  # other zones and ages of it cannot be computed
        raise ValueError(f"{stamp} is not a time of an event")
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def _flat(line: bytes) -> dict[str, Any]:
    flat = json.loads(line)
    if not isinstance(flat, dict) or not isinstance(flat["kind"], str):
        raise ValueError("not an event")
    return flat


def _event_or_none(line: bytes) -> Event | None:
    try:
        return Event.from_flat(_flat(line))
    except UNREADABLE:
        return None
