"""Fold events into a snapshot; the coordinator and all watchers use the same function."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from pydantic import BaseModel

from edgefed.events.base.alert_events import with_alert
from edgefed.events.base.best_rounds import latest_rounds
from edgefed.events.base.bounty_tables import BOUNTIES, bounty_of
from edgefed.events.base.confusion_events import with_confusion
from edgefed.events.base.coordinator_states import with_state
from edgefed.events.base.device_columns import LASTING, roster_rows
from edgefed.events.base.device_rounds import (
    NO_TEST,
    LastDeviceTests,
    device_test,
    with_loss,
    with_reply,
    without,
)
from edgefed.events.base.method_tables import MethodTables, TableChange
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import (
    TEST_COUNTS,
    DeviceSnapshot,
    LineView,
    PreviousRunView,
    RoundView,
    RunView,
    Snapshot,
    WaitingView,
)
from edgefed.events.methods.expert_tables import MIXTURES, mixture_of
from edgefed.events.methods.old_tables import KINDS, changes_of
from edgefed.events.state.device_views import DeviceViews, Joined, JoinedDevice
from edgefed.events.state.lines import describe

MAX_LINES = 200
"""Lines kept for the event pane."""

Devices = Mapping[str, DeviceSnapshot]
"""Devices by id."""

Changes = Mapping[str, DeviceSnapshot | JoinedDevice | None]
"""Devices that an event changed, by id; None for one that is forgotten."""

_COUNTERS = {"accepted": "accepted", "rejected": "rejected", "refused": "rejected", "late": "late"}


REFUSALS = ("rejected", "refused", "failed")
"""Outcomes of a reply that is not used and that says that something is wrong."""

_OF_COORDINATOR = {"standing", "paused_by", "excluded"}
"""Fields of a ``device`` event from the coordinator's knowledge; the device sent nothing."""

_UNHEARD = ("lost", "asked", "silent")
"""States of which the coordinator tells without a message from the device."""

_ENDED = ("finished", "aborted", "failed")

SLOWEST = {"slowest", "slowest_seconds"}

NO_REPLIES: dict[str, Any] = {"slowest": "", "slowest_seconds": 0.0, "refused": 0}
"""The replies of a round before the first one."""

NO_ROWS: dict[str, Any] = {
    "open_bounties": 0,
    "received_mixes": 0,
    "noise_samples": 0,
    "mixture": (),
    "kept_experts": (),
}
"""What a device shows that no table names."""

_EMPTY = {
    "devices": (),
    "lines": (),
    "tables": (),
    "tests": (),
}
"""The initial state of a builder beside the rest of a snapshot."""


class _Lines:
    """The newest lines within their limit: replies may take half of it, and so may all others."""

    def __init__(self, newest_first: Sequence[LineView]) -> None:
        self._added = 0
        self._kinds: tuple[deque[tuple[int, LineView]], ...] = (deque(), deque())
        for line in reversed(newest_first):
            self.add(line)

    def add(self, line: LineView) -> None:
        """Add a line, and drop the oldest one of the larger kind if there are too many."""
        self._added += 1
        self._kinds[line.routine].append((self._added, line))
        others, routine = self._kinds
        if len(others) + len(routine) > MAX_LINES:
            (routine if len(routine) > MAX_LINES // 2 else others).popleft()

    def clear(self) -> None:
        """Drop all lines."""
        for lines in self._kinds:
            lines.clear()

    def newest_first(self) -> tuple[LineView, ...]:
        """Return the lines."""
        numbered = sorted((*self._kinds[0], *self._kinds[1]), key=itemgetter(0), reverse=True)
        return tuple(line for _, line in numbered)


class SnapshotBuilder:
    """Keeps a snapshot up with events; not safe from several threads.

    The cost of an event does not depend on the number of devices: the devices are in a mapping,
    which is sorted into a frozen snapshot only on request.

    Args:
        start: the snapshot before the first event.

    Attributes:
        devices: those after all events so far, by id.
    """

    def __init__(self, start: Snapshot) -> None:
        self.devices = DeviceViews(start.devices)
        self._names: list[str] = []
        self._lines = _Lines(start.lines)
        self._tables = MethodTables(start.tables)
        self._tests = LastDeviceTests(start.tests)
        self._rest, self._time = start.model_copy(update=_EMPTY), start.time
        self._frozen: Snapshot | None = None

    def apply(self, event: Event) -> None:
        """Fold ``event`` in.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field of the event is missing or
                wrong; nothing has changed.
        """
        rest = _FOLDS[event.kind](self._rest, event.fields, event.time)
        fold_devices = _DEVICE_FOLDS.get(event.kind, _no_devices)
        changed = fold_devices(self.devices, event.fields, event.time, self._rest.run)
        tables = self._table_changes(event)
        test = device_test(event.fields) if event.kind == "reply" else None
        line = describe(event)
        if _run_id(rest) != _run_id(self._rest):
            views = self.devices.changed()
            changed = {view.device: _unshared(view, event.time) for view in views}
            self._lines.clear()
            self._tables.clear()
            self._tests.clear()
        elif _is_at_work(rest.run) and not _is_at_work(self._rest.run):  # it is taken up again
            views = [view for view in self.devices.changed() if view.excluded]
            changed = {view.device: _not_excluded(view, event.time) for view in views}
        self._rest, self._time = rest, event.time
        if line is not None:
            self._lines.add(line)
        for device, view in changed.items():
            self._put(device, view)
        of_run = {device for table in tables for device in self._tables.apply(table)}
        if test is not None:
            self._tests.put(test)
            of_run.add(test.device)
        for device in of_run & self.devices.keys():
            self.devices[device] = self._with_run(self.devices[device])
        self._frozen = None

    def _table_changes(self, event: Event) -> tuple[TableChange, ...]:
        """Return what an event changes in the tables of the current run."""
        if event.kind not in KINDS:
            return ()
        changes = changes_of(event.kind, event.fields, self._tables)
        return changes if event.fields["run"] == _run_id(self._rest) else ()

    def _put(self, device: str, view: DeviceSnapshot | JoinedDevice | None) -> None:
        """Put a device's new view in its place; the run may know one that is new already."""
        if view is None:
            self.devices.pop(device, None)
            self._names = []
        elif device in self.devices:
            self.devices[device] = view
        else:
            made = view.view(device) if isinstance(view, JoinedDevice) else view
            of_run = self._with_run(made)
            self.devices[device] = view if of_run is made else of_run

    def _with_run(self, view: DeviceSnapshot) -> DeviceSnapshot:
        """Return a device with its bounties, its mixture of experts and its test."""
        return _updated(
            view, {**self._of_tables(view.device), **self._tests.of_device(view.device)}
        )

    def _of_tables(self, device: str) -> dict[str, Any]:
        """Return what a ``DeviceSnapshot`` has of a device's rows."""
        bounties = list(map(bounty_of, self._tables.of_device(BOUNTIES, device)))
        update = {
            **NO_ROWS,
            "open_bounties": sum(bounty.status == "open" for bounty in bounties),
            "received_mixes": sum(bounty.received for bounty in bounties),
            "noise_samples": sum(bounty.noise for bounty in bounties),
        }
        for mixture in map(mixture_of, self._tables.of_device(MIXTURES, device)):
            update["mixture"] = tuple(mixture["shares"])
            update["kept_experts"] = tuple(mixture["kept"])
        return update

    def snapshot(self) -> Snapshot:
        """Return the fleet after all events so far; made at most once for each event."""
        if self._frozen is None:
            if len(self._names) != len(self.devices):
                self._names = sorted(self.devices)
            devices = tuple(map(self.devices.kept, self._names))
            update = {
                "time": self._time,
                "devices": devices,
                "lines": self._lines.newest_first(),
                "tables": self._tables.views(),
                "tests": self._tests.rows(),
            }
            self._frozen = self._rest.model_copy(update=update)
        return self._frozen


def _run_id(snapshot: Snapshot) -> str | None:
    return snapshot.run.run if snapshot.run is not None else None


def _run(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    known = _known(RunView, fields)
    run = snapshot.run
    if run is None or run.run != fields["run"]:
        fresh = RunView(**{"started_at": time, **known})
        emptied = {"rounds": (), "early_best": (), "confusions": (), "sent": 0, "received": 0}
        update = {"run": fresh, "previous": _previous(snapshot), **emptied}
        return snapshot.model_copy(update=update)
    if fields.get("status") == "running" and run.status in ("paused", "waiting"):
        known["round_at"] = time
    if fields.get("status") in _ENDED:
        known = {**known, "ended_at": time, "phase": "done", "waiting": None}
    total: dict[str, Any] = {name: fields[name] for name in ("sent", "received") if name in fields}
    return snapshot.model_copy(update={"run": run.model_copy(update=known), **total})


def _previous(snapshot: Snapshot) -> PreviousRunView | None:
    """Return the run that is over, if it had a round; otherwise the one before."""
    if snapshot.run is None or not snapshot.rounds:
        return snapshot.previous
    return PreviousRunView(run=snapshot.run.run, rounds=snapshot.rounds)


def _round(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    begun = {"round": fields["round"], "phase": "select", "accepted": 0, "waiting": None}
    begun["round_at"] = time
    return _with_run(snapshot, {**begun, "detail": "", **NO_REPLIES})


def _exchange(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    known = _known(RunView, fields)
    before = snapshot.run.exchange if snapshot.run is not None else ""
    if fields.get("exchange", before) != before:  # a mere change of phase names none
        known = {**known, "accepted": 0, "opened_at": time}
    if fields.get("phase", "collect") != "collect":  # nobody is waited for, or not yet
        known["waiting"] = None
    if fields.get("waiting") is not None:
        known["waiting"] = WaitingView.model_validate(fields["waiting"])
    return _with_run(snapshot, known)


def _reply(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    run = snapshot.run
    if run is None:
        return snapshot
    update: dict[str, Any] = {
        "accepted": fields["accepted"],
        "waiting": without(run.waiting, fields["device"]),
    }
    seconds = float(fields.get("seconds") or 0.0)
    if fields["outcome"] == "accepted" and seconds > run.slowest_seconds:
        update |= {"slowest": fields["device"], "slowest_seconds": seconds}
    elif fields["outcome"] in REFUSALS:
        update["refused"] = run.refused + 1
    return _with_run(snapshot, update)


def _device_replied(
    devices: Devices, fields: dict[str, Any], time: str, run: RunView | None
) -> Changes:
    del run
    outcome = fields["outcome"]
    counter = _COUNTERS.get(outcome)
    before = _device_of(devices, fields["device"])
    update: dict[str, Any] = {"seen_at": time, "rounds": with_reply(before, fields)}
    update["replied"] = fields.get("exchange", "")
    if outcome in REFUSALS:
        update |= {"refused_at": time, "refused_reason": fields.get("reason") or ""}
    elif outcome == "accepted":
        update |= {"refused_at": "", "refused_reason": ""}
    if counter:
        update[counter] = getattr(before, counter) + 1
    if fields.get("loss") is not None:
        update["loss"] = fields["loss"]
    if fields.get("joules") is not None:
        update["joules"] = (before.joules or 0.0) + float(fields["joules"])
    update |= shared_by(fields)
    return {before.device: before.model_copy(update=update)}


def shared_by(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return the fields of a view about the averaged data in a ``reply``.

    Empty for any other reply, and for one that was not accepted.
    """
    shared = fields.get("shared")
    if not shared or fields["outcome"] != "accepted":
        return {}
    return {
        "shared_entries": shared["entries"],
        "shared_group": shared["group"],
        "shared_bytes": fields.get("bytes", 0),
    }


def _unshared(device: DeviceSnapshot, time: str) -> DeviceSnapshot:
    """Return a device of which a run knows no rounds, averages, bounties, mixture or test yet."""
    shared = {"shared_entries": 0, "shared_group": 0, "shared_bytes": 0}
    replies = {"rounds": (), "refused_at": "", "refused_reason": "", "excluded": ""}
    update = {**shared, **replies, **NO_ROWS, **NO_TEST, "joules": None}
    return with_state(device, _updated(device, update), time)


def _updated(device: DeviceSnapshot, update: dict[str, Any]) -> DeviceSnapshot:
    """Return a device with these fields: itself, where they do not differ, as mostly at a start."""
    differs = any(getattr(device, name) != value for name, value in update.items())
    return device.model_copy(update=update) if differs else device


def _not_excluded(device: DeviceSnapshot, time: str) -> DeviceSnapshot:
    """Return a device of which no run says that it is not asked."""
    return with_state(device, device.model_copy(update={"excluded": ""}), time)


def _scored(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    run_view = snapshot.run
    slowest = _known(RoundView, run_view.model_dump(include=SLOWEST)) if run_view else {}
    point = RoundView(**{**slowest, **_known(RoundView, fields)})
    rounds = snapshot.rounds
    if rounds and rounds[-1].round >= point.round:  # tested again, or the run went back
        rounds = tuple(row for row in rounds if row.round < point.round)
    early_best, rounds = latest_rounds(snapshot.early_best, (*rounds, point))
    update: dict[str, Any] = {"rounds": rounds, "early_best": early_best}
    for name in ("sent", "received"):
        update[name] = getattr(snapshot, name) + getattr(point, name)
    run: dict[str, Any] = {"waiting": None}
    scores = point.model_dump(include={"accuracy", "loss", *TEST_COUNTS})
    if point.accuracy is not None or point.loss is not None:
        run |= {name: value for name, value in scores.items() if value is not None}
    return _with_run(snapshot.model_copy(update=update), run)


def _confusion(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    views = with_confusion(snapshot.confusions, fields)
    of_run = fields["run"] == _run_id(snapshot)
    return snapshot.model_copy(update={"confusions": views}) if of_run else snapshot


def _alert(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    return snapshot.model_copy(update={"alerts": with_alert(snapshot.alerts, fields, time)})


def _device(devices: Devices, fields: dict[str, Any], time: str, run: RunView | None) -> Changes:
    if "forgotten" in fields:
        return {fields["device"]: None}
    return {fields["device"]: _changed(devices, fields, time, run)}


def _changed(
    devices: Devices, fields: dict[str, Any], time: str, run: RunView | None
) -> DeviceSnapshot:
    before = _device_of(devices, fields["device"])
    update = _known(DeviceSnapshot, fields)
    if "state" in fields:
        update.setdefault("resumes_at", "")
    if not _OF_COORDINATOR.isdisjoint(fields) and "joined" not in fields:
        if not before.seen_at:
            update["state"] = "lost"
    elif fields.get("state") not in _UNHEARD:
        update["seen_at"] = time
    elif fields["state"] != "asked" and before.state != fields["state"]:
        update["before_lost"] = before.before_lost or _doing(before)
        update["reason"] = fields.get("reason") or ""
        if fields["state"] == "lost":
            update["rounds"] = with_loss(before, run)
    if ("joined" in fields or "renewed" in fields) and not _is_at_work(run):
        update["excluded"] = ""  # it may have other data now, and no run looks at them
    if update.get("state", before.state) != before.state or not before.state_since:
        update.setdefault("state_since", time)
    if update.get("state", before.state) not in ("lost", "silent"):
        update["before_lost"] = ""
    return with_state(before, before.model_copy(update=update), time)


def _is_at_work(run: RunView | None) -> bool:
    return run is not None and run.status not in _ENDED


def _doing(view: DeviceSnapshot) -> str:
    """Return the activity of a device, with its progress."""
    at_work = 0 < view.fraction < 1
    return f"{view.state} {view.fraction * 100:.0f} %" if at_work else view.state


def _roster(devices: Devices, fields: dict[str, Any], time: str, run: RunView | None) -> Changes:
    rows = roster_rows(fields)
    if not rows or not LASTING.issuperset(rows[0]):
        return {row["device"]: _changed(devices, row, time, run) for row in rows}
    names = tuple(name for name in rows[0] if name != "device")
    joined = Joined(_changed({}, {"device": ""}, time, run), names)

    def changed(row: dict[str, Any]) -> DeviceSnapshot | JoinedDevice:
        if row["device"] in devices:
            return _changed(devices, row, time, run)
        known = _known(DeviceSnapshot, row)
        return JoinedDevice(joined, tuple(known[name] for name in names))

    return {row["device"]: changed(row) for row in rows}


def _no_devices(
    devices: Devices, fields: dict[str, Any], time: str, run: RunView | None
) -> Changes:
    del devices, fields, time, run
    return {}


def _unchanged(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del fields, time
    return snapshot


_FOLDS = {
    "run": _run,
    "round": _round,
    "exchange": _exchange,
    "reply": _reply,
    "scored": _scored,
    "device": _unchanged,
    "roster": _unchanged,
    "labels": _unchanged,
    "experts": _unchanged,
    "matching": _unchanged,
    "table": _unchanged,
    "confusion": _confusion,
    "alert": _alert,
    "note": _unchanged,
    "order": _unchanged,
}
"""Folds of events into the parts of a snapshot without the devices."""

_DEVICE_FOLDS = {"reply": _device_replied, "device": _device, "roster": _roster}
"""The devices that an event changes, given all of them."""


@cache
def _names(view: type[BaseModel]) -> frozenset[str]:
    """Return the names of a view's fields, which pydantic looks up again for every event."""
    return frozenset(view.model_fields)


def _known(
    view: type[RunView | RoundView | DeviceSnapshot], fields: dict[str, Any]
) -> dict[str, Any]:
    names = _names(view)
    known = {key: value for key, value in fields.items() if key in names}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}


def _with_run(snapshot: Snapshot, update: dict[str, Any]) -> Snapshot:
    if snapshot.run is None:
        return snapshot
    return snapshot.model_copy(update={"run": snapshot.run.model_copy(update=update)})


def _device_of(devices: Devices, device: str) -> DeviceSnapshot:
    return devices.get(device) or DeviceSnapshot(device=device)
