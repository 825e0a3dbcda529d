"""Fold events into a snapshot; the coordinator and all watchers use the same function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from edgefed.events.bounty_events import NO_BOUNTIES, LabelChange, LabelTable, totals_in_words
from edgefed.events.confusion_events import with_confusion
from edgefed.events.expert_events import NO_MIXTURE, ExpertChange, ExpertTable
from edgefed.events.matching_events import MatchingChange, MatchingTable
from edgefed.events.model import Event, EventKind
from edgefed.events.roster import roster_rows
from edgefed.events.snapshot import DeviceView, LineView, RoundView, RunView, Snapshot, WaitingView
from edgefed.events.waiting import without
from edgefed.units import counted, score, short_time, size

MAX_ROUNDS = 600
"""Points kept for the curves."""

MAX_LINES = 200
"""Lines kept for the event pane."""

T = TypeVar("T")

Devices = Mapping[str, DeviceView]
"""Devices by id."""

Changes = Mapping[str, DeviceView | None]
"""Devices that an event changed, by id; None for one that is forgotten."""

_MARKS = {"accepted": "✓", "rejected": "■", "late": "◷", "refused": "■", "failed": "✗"}
_COUNTERS = {"accepted": "accepted", "rejected": "rejected", "refused": "rejected", "late": "late"}


_EMPTY = {
    "devices": (),
    "bounties": (),
    "budgets": (),
    "experts": None,
    "mixtures": (),
    "matching": None,
}
"""What a builder keeps beside the rest of a snapshot."""


class SnapshotBuilder:
    """Keeps a snapshot up with events; not safe from several threads.

    An event costs the same however many devices there are: the devices are in a mapping, which is
    sorted into a frozen snapshot only when somebody asks for one.

    Args:
        start: the snapshot before the first event.
    """

    def __init__(self, start: Snapshot) -> None:
        self._devices = {view.device: view for view in start.devices}
        self._names: list[str] = []
        self._labels = LabelTable(start.bounties, start.budgets)
        self._experts = ExpertTable(start.experts, start.mixtures)
        self._matching = MatchingTable(start.matching)
        self._rest = start.model_copy(update=_EMPTY)
        self._frozen: Snapshot | None = None

    def apply(self, event: Event) -> None:
        """Fold ``event`` in.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: a field of the event is missing or
                wrong; nothing has changed.
        """
        rest = _FOLDS[event.kind](self._rest, event.fields, event.time)
        fold_devices = _DEVICE_FOLDS.get(event.kind, _no_devices)
        changed = fold_devices(self._devices, event.fields, event.time)
        labels = self._change(event, "labels", LabelChange.of)
        experts = self._change(event, "experts", ExpertChange.of)
        matching = self._change(event, "matching", MatchingChange.of)
        update: dict[str, Any] = {"time": event.time}
        line = describe(event)
        if line is not None:
            update["lines"] = (line, *rest.lines)[:MAX_LINES]
        if _run_id(rest) != _run_id(self._rest):
            changed = {view.device: _unshared(view) for view in self._devices.values()}
            self._labels.clear()
            self._experts.clear()
            self._matching.clear()
        self._rest = rest.model_copy(update=update)
        for device, view in changed.items():
            self._put(device, view)
        of_run = self._labels.apply(labels) if labels is not None else set[str]()
        of_run |= self._experts.apply(experts) if experts is not None else set[str]()
        if matching is not None:
            self._matching.apply(matching)
        for device in of_run & self._devices.keys():
            self._devices[device] = self._with_run(self._devices[device])
        self._frozen = None

    def _change(
        self, event: Event, kind: EventKind, read: Callable[[Mapping[str, Any]], T]
    ) -> T | None:
        """Return what an event of this kind says of the current run; None for any other."""
        if event.kind != kind:
            return None
        change = read(event.fields)
        return change if event.fields["run"] == _run_id(self._rest) else None

    def _put(self, device: str, view: DeviceView | None) -> None:
        """Put a device's new view in its place; the run may know one that is new already."""
        if view is None:
            self._devices.pop(device, None)
            self._names = []
        else:
            known = device in self._devices
            self._devices[device] = view if known else self._with_run(view)

    def _with_run(self, view: DeviceView) -> DeviceView:
        """Return a device with its bounties and its mixture of experts."""
        labels = self._labels.of_device(view.device)
        return view.model_copy(update={**labels, **self._experts.of_device(view.device)})

    def snapshot(self) -> Snapshot:
        """Return the fleet as all events so far make it; made once for each event at most."""
        if self._frozen is None:
            if len(self._names) != len(self._devices):
                self._names = sorted(self._devices)
            devices = tuple(map(self._devices.__getitem__, self._names))
            bounties, budgets = self._labels.rows()
            update = {
                "devices": devices,
                "bounties": bounties,
                "budgets": budgets,
                "experts": self._experts.view(),
                "mixtures": self._experts.mixtures(),
                "matching": self._matching.view(),
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
        emptied = {"rounds": (), "confusions": (), "lines": ()}
        update = {"run": fresh, "sent": 0, "received": 0, **emptied}
        return snapshot.model_copy(update=update)
    if fields.get("status") in ("finished", "aborted", "failed"):
        known = {**known, "ended_at": time, "phase": "done", "waiting": None}
    return snapshot.model_copy(update={"run": run.model_copy(update=known)})


def _round(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    begun = {"round": fields["round"], "phase": "select", "accepted": 0, "waiting": None}
    return _with_run(snapshot, {**begun, "detail": ""})


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
    waiting = without(snapshot.run.waiting, fields["device"]) if snapshot.run else None
    return _with_run(snapshot, {"accepted": fields["accepted"], "waiting": waiting})


def _device_replied(devices: Devices, fields: dict[str, Any], time: str) -> Changes:
    outcome = fields["outcome"]
    counter = _COUNTERS.get(outcome)
    before = _device_of(devices, fields["device"])
    update: dict[str, Any] = {"seen_at": time}
    if counter:
        update[counter] = getattr(before, counter) + 1
    if fields.get("loss") is not None:
        update["loss"] = fields["loss"]
    update |= shared_by(fields)
    return {before.device: before.model_copy(update=update)}


def shared_by(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return what a ``reply`` says of averaged data that its device shares, as a view's fields.

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


def _unshared(device: DeviceView) -> DeviceView:
    """Return a device that has no averaged data, bounties or mixture in a new run yet."""
    shared = {"shared_entries": 0, "shared_group": 0, "shared_bytes": 0}
    return device.model_copy(update={**shared, **NO_BOUNTIES, **NO_MIXTURE})


def _scored(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    point = RoundView(**_known(RoundView, fields))
    rounds = (*(row for row in snapshot.rounds if row.round != point.round), point)[-MAX_ROUNDS:]
    update: dict[str, Any] = {"rounds": rounds}
    for name in ("sent", "received"):
        update[name] = getattr(snapshot, name) + getattr(point, name)
    run: dict[str, Any] = {"waiting": None}
    for name in ("accuracy", "loss"):
        if getattr(point, name) is not None:
            run[name] = getattr(point, name)
    return _with_run(snapshot.model_copy(update=update), run)


def _confusion(snapshot: Snapshot, fields: dict[str, Any], time: str) -> Snapshot:
    del time
    views = with_confusion(snapshot.confusions, fields)
    of_run = fields["run"] == _run_id(snapshot)
    return snapshot.model_copy(update={"confusions": views}) if of_run else snapshot


def _device(devices: Devices, fields: dict[str, Any], time: str) -> Changes:
    if "forgotten" in fields:
        return {fields["device"]: None}
    return {fields["device"]: _changed(devices, fields, time)}


def _changed(devices: Devices, fields: dict[str, Any], time: str) -> DeviceView:
    before = _device_of(devices, fields["device"])
    update = _known(DeviceView, fields)
    if "standing" in fields and "joined" not in fields:  # the device itself said nothing
        return before.model_copy(update=update if before.seen_at else {**update, "state": "lost"})
    if fields.get("state") != "lost":
        update["seen_at"] = time
    return before.model_copy(update=update)


def _roster(devices: Devices, fields: dict[str, Any], time: str) -> Changes:
    rows = roster_rows(fields)
    return {row["device"]: _changed(devices, row, time) for row in rows}


def _no_devices(devices: Devices, fields: dict[str, Any], time: str) -> Changes:
    del devices, fields, time
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
    "confusion": _confusion,
    "note": _unchanged,
}
"""What an event makes of everything but the devices."""

_DEVICE_FOLDS = {"reply": _device_replied, "device": _device, "roster": _roster}
"""The devices that an event changes, given all of them."""


def _known(view: type[RunView | RoundView | DeviceView], fields: dict[str, Any]) -> dict[str, Any]:
    known = {key: value for key, value in fields.items() if key in view.model_fields}
    return {key: tuple(value) if isinstance(value, list) else value for key, value in known.items()}


def _with_run(snapshot: Snapshot, update: dict[str, Any]) -> Snapshot:
    if snapshot.run is None:
        return snapshot
    return snapshot.model_copy(update={"run": snapshot.run.model_copy(update=update)})


def _device_of(devices: Devices, device: str) -> DeviceView:
    return devices.get(device) or DeviceView(device=device)


def describe(event: Event) -> LineView | None:
    """Return the line that the event pane shows, or None for an event too small to show."""
    fields = event.fields
    match event.kind:
        case "reply":
            return LineView(
                time=event.time, mark=_MARKS[fields["outcome"]], text=_describe_reply(fields)
            )
        case "scored":
            return LineView(time=event.time, mark="✓", text=_describe_round(fields))
        case "run" if fields.get("status"):
            reason = f": {fields['reason']}" if fields.get("reason") else ""
            return LineView(
                time=event.time, mark="·", text=f"{fields['run']} {fields['status']}{reason}"
            )
        case "device" if _is_notable(fields):
            return LineView(
                time=event.time, mark=_device_mark(fields), text=_describe_device(fields)
            )
        case "roster" if "joined" in fields:
            return LineView(time=event.time, mark="·", text=_describe_roster(fields))
        case "labels" if "totals" in fields:
            told = totals_in_words(fields["totals"])
            return LineView(time=event.time, mark="·", text=f"label bounties: {told}")
        case "note":
            mark = "!" if fields.get("level") == "warning" else "·"
            return LineView(time=event.time, mark=mark, text=fields["text"])
        case _:
            return None


def _describe_reply(fields: dict[str, Any]) -> str:
    device, outcome = fields["device"], fields["outcome"]
    if outcome != "accepted":
        return f"{device}  {outcome}: {fields.get('reason') or 'no reason given'}"
    if fields.get("shared"):
        told = shared_in_words(**fields["shared"])
        return f"{device}  shared {told}, {size(fields.get('bytes', 0))}"
    parts = [f"{device}  r{fields['round']}  {size(fields.get('bytes', 0))}"]
    parts.append(f"n={fields.get('samples', 0)}")
    if fields.get("loss") is not None:
        parts.append(f"loss {fields['loss']:.3f}")
    parts.append(f"in {short_time(fields.get('seconds', 0.0))}")
    return "  ".join(parts)


def shared_in_words(entries: int, group: int) -> str:
    """Return how many averages there are, and how many samples stand behind each at least."""
    told = f"{counted(entries, 'entry', 'entries')} of {counted(group, 'sample')}"
    return told if entries == 1 else f"{told} or more"


def _describe_round(fields: dict[str, Any]) -> str:
    found = score(fields.get("accuracy"), fields.get("loss"))
    tested = f"{found}, " if found else ""
    late = f", {fields['late']} late" if fields.get("late") else ""
    spent = f", epsilon {fields['epsilon']:.3g}" if fields.get("epsilon") is not None else ""
    took = short_time(fields.get("seconds", 0.0))
    replies = counted(fields.get("replies", 0), "reply", "replies")
    return f"round {fields['round']} done in {took}: {tested}{replies}{late}{spent}"


def _is_notable(fields: dict[str, Any]) -> bool:
    """Whether a device's event is more than its progress or its health."""
    lasting = "joined" in fields or "forgotten" in fields or "moved" in fields
    return lasting or fields.get("state") in ("lost", "paused", "failed")


def _device_mark(fields: dict[str, Any]) -> str:
    if "standing" in fields and "joined" not in fields:
        return "·" if fields["standing"] == "trusted" else "!"
    return {"lost": "✗", "paused": "◌", "failed": "✗"}.get(fields.get("state", ""), "·")


def _describe_device(fields: dict[str, Any]) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    if "forgotten" in fields:
        return f"{fields['device']}  forgotten"
    if "joined" in fields and fields.get("state") != "lost":
        word = "returned" if fields.get("returned") else "joined"
        return f"{fields['device']}  {word}, {counted(fields.get('samples', 0), 'sample')}"
    if "standing" in fields:
        because = f": {fields['trust_reason']}" if fields["trust_reason"] else ""
        return f"{fields['device']}  {fields['standing']}, trust {fields['trust']:.2f}{because}"
    return f"{fields['device']}  {fields['state']}{reason}"


def _describe_roster(fields: dict[str, Any]) -> str:
    samples = counted(sum(fields.get("samples", ())), "sample")
    return f"{counted(len(fields['devices']), 'device')} joined, {samples}"
