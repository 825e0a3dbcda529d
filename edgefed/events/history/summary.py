"""A summary of a run, computed from its events, for reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from edgefed.events.base.confusion_events import with_confusion
from edgefed.events.base.device_columns import roster_rows
from edgefed.events.base.evaluation_views import ConfusionView
from edgefed.events.base.method_tables import MethodTables, TableView
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import LineView, RunView, Snapshot
from edgefed.events.base.view import View
from edgefed.events.methods.old_tables import changes_of
from edgefed.events.methods.share_courses import Course, ShareCourses
from edgefed.events.state.fold import SnapshotBuilder, shared_by
from edgefed.events.state.lines import describe

MAX_DEVICES = 2000
"""Devices that a summary tells of; the first by name."""

MAX_LINES = 200
"""Notable events that it tells of; the newest."""


class DeviceSummary(View):
    """A device's part in a run.

    Attributes:
        labels: training samples by label; empty if the device does not share them.
        class_names: names of those labels; empty when they have none.
        accepted, rejected, late: answers merged; not merged; arrived too late.
        sent: bytes of its answers.
        seconds, fastest, slowest: from question to answer: all together, the least, the most.
        joules: energy that it took for its replies; None if not measured.
        loss: the last training loss that it reported.
        lost: how often it was lost.
        excluded: why the run did not ask it; empty if it did.
        shared_entries, shared_group, shared_bytes: averaged data that it shared, as in
            ``DeviceView``.
    """

    device: str
    samples: int = 0
    labels: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    hardware: str = ""
    accelerator: str = ""
    accepted: int = 0
    rejected: int = 0
    late: int = 0
    sent: int = 0
    seconds: float = 0.0
    fastest: float = 0.0
    slowest: float = 0.0
    joules: float | None = None
    loss: float | None = None
    lost: int = 0
    excluded: str = ""
    shared_entries: int = 0
    shared_group: int = 0
    shared_bytes: int = 0


class RunSummary(View):
    """The course and outcome of a run.

    Attributes:
        rounds: the finished rounds, oldest first.
        devices: by name.
        more_devices: number of further devices.
        lines: notable events, newest first.
        tables: that its method shows; of those of devices the first rows.
        courses: the shares in the tables' first rows by round.
        confusions: counts of the last evaluation, of each place at most one.
        left_out: bytes of the log that were not read.
    """

    run: RunView | None = None
    rounds: tuple[dict[str, Any], ...] = ()
    devices: tuple[DeviceSummary, ...] = ()
    more_devices: int = 0
    lines: tuple[LineView, ...] = ()
    tables: tuple[TableView, ...] = ()
    courses: tuple[Course, ...] = ()
    confusions: tuple[ConfusionView, ...] = ()
    left_out: int = 0


def summarise(events: Iterable[Mapping[str, Any]], left_out: int = 0) -> RunSummary:
    """Return the summary of a log's events; unknown ones are skipped."""
    gathered = _Gathered()
    for event in events:
        with suppress(KeyError, TypeError, ValueError, AttributeError, ValidationError):
            gathered.take(event)
    devices = [gathered.devices[name] for name in sorted(gathered.devices)]
    return RunSummary(
        run=gathered.run,
        rounds=tuple(gathered.rounds[number] for number in sorted(gathered.rounds)),
        devices=tuple(DeviceSummary(**device) for device in devices[:MAX_DEVICES]),
        more_devices=max(0, len(devices) - MAX_DEVICES),
        lines=tuple(reversed(gathered.lines)),
        tables=tuple(map(_shortened, gathered.tables.views())),
        courses=gathered.courses.courses(),
        confusions=gathered.confusions,
        left_out=left_out,
    )


def _shortened(view: TableView) -> TableView:
    rows = view.table.rows
    if len(rows) <= MAX_DEVICES:
        return view
    table = view.table.model_copy(update={"rows": rows[:MAX_DEVICES]})
    left_out = view.left_out + len(rows) - MAX_DEVICES
    return view.model_copy(update={"table": table, "left_out": left_out})


class _Gathered:
    """The summary while events come."""

    def __init__(self) -> None:
        self.run: RunView | None = None
        self.rounds: dict[int, dict[str, Any]] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self.lines: list[LineView] = []
        self.tables, self.courses = MethodTables(), ShareCourses()
        self.confusions: tuple[ConfusionView, ...] = ()
        self._exchange = ""
        self._answered: set[str] = set()

    def take(self, event: Mapping[str, Any]) -> None:
        kind = event["kind"]
        if kind == "run":
            builder = SnapshotBuilder(Snapshot(run=self.run))
            builder.apply(Event.from_flat(dict(event)))
            self.run = builder.snapshot().run
        elif kind == "scored":
            hidden = ("kind", "time", "run")
            row = {key: value for key, value in event.items() if key not in hidden}
            self.rounds[int(event["round"])] = row
        elif kind == "device":
            self._take_device(event)
        elif kind == "roster":
            for row in roster_rows(event):
                self._take_device(row)
        elif kind == "reply":
            self._take_reply(event)
        elif kind == "confusion":
            self.confusions = with_confusion(self.confusions, event)
        else:
            for change in changes_of(kind, event, self.tables):
                self.tables.apply(change)
                self.courses.take(change)
        if (
            kind in ("run", "note", "device", "labels", "alert")
            or event.get("outcome", "accepted") != "accepted"
        ):
            self._take_line(event)

    def _take_line(self, event: Mapping[str, Any]) -> None:
        line = None if "joined" in event else describe(Event.from_flat(dict(event)))
        if line is not None:
            self.lines.append(line)
            del self.lines[:-MAX_LINES]

    def _take_device(self, event: Mapping[str, Any]) -> None:
        device = self._device(event["device"])
        for name in ("samples", "labels", "class_names", "hardware", "accelerator"):
            if event.get(name):
                device[name] = event[name]
        if "excluded" in event:
            device["excluded"] = event["excluded"]
        device["lost"] = device.get("lost", 0) + (event.get("state") == "lost")

    def _take_reply(self, event: Mapping[str, Any]) -> None:
        """Count an answer; one of an exchange that a restart asked again counts once."""
        name, outcome = event["device"], event["outcome"]
        if event["exchange"] != self._exchange:
            self._exchange, self._answered = event["exchange"], set()
        device = self._device(name)
        if outcome != "accepted":
            which = "late" if outcome == "late" else "rejected"
            device[which] = device.get(which, 0) + 1
            return
        if name in self._answered:
            return
        self._answered.add(name)
        seconds = float(event.get("seconds") or 0.0)
        device["accepted"] = device.get("accepted", 0) + 1
        device["sent"] = device.get("sent", 0) + int(event.get("bytes") or 0)
        device["seconds"] = device.get("seconds", 0.0) + seconds
        device["fastest"] = min(device.get("fastest", seconds), seconds)
        device["slowest"] = max(device.get("slowest", seconds), seconds)
        if event.get("joules") is not None:
            device["joules"] = device.get("joules", 0.0) + float(event["joules"])
        if event.get("loss") is not None:
            device["loss"] = event["loss"]
        device.update(shared_by(event))

    def _device(self, name: str) -> dict[str, Any]:
        return self.devices.setdefault(name, {"device": name})
