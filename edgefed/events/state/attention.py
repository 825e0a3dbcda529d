"""Problems for an operator: devices that are lost, silent, refused or hot, and why a run waits.

All texts are made from the snapshot and the time, so that their numbers are those of now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from edgefed.events.base.alert_events import AlertView
from edgefed.events.base.coordinator_states import (
    REFUSED_DATA,
    who_paused,
    why_excluded,
    why_paused,
)
from edgefed.events.base.snapshot import DeviceSnapshot, RunView, Snapshot
from edgefed.events.state.awaited_devices import consequence, is_awaited, passed, silent_for
from edgefed.process.clock import moment_of
from edgefed.terminal.units import counted, duration

AttentionKind = Literal[
    "run", "alert", "waited", "silent", "lost", "failed", "refused", "standing", "excluded", "hot",
    "paused", "battery", "waiting", "warning",
]  # fmt: skip
"""The subject of an item, the worst first: a run that failed or learned nothing, an alert that is
not over, a lost device that a round waits for, and one that does not answer a ping.

``waiting`` is a run that waits for devices or for space on the disk."""

Severity = Literal["alarm", "warning"]
"""``alarm`` costs the run something now; ``warning`` may do so later."""

HOT_FROM = 80.0
"""°C from which a temperature is marked; boards of the Jetson class throttle not far above."""

LOW_BATTERY = 20.0
"""Percent up to which a battery is low."""

WARNINGS_FOR = timedelta(minutes=5)
"""How long a warning stays."""

_ORDER = get_args(AttentionKind)
_ALARMS = ("run", "alert", "waited", "silent", "lost", "failed", "refused")
_REFUSALS = ("refused", "rejected", "failed")
NOTHING_LEARNED = "the model learned nothing"
"""How the reason of a finished run says so."""

STRANGERS = "strangers"
"""How a warning about senders that are not known begins."""

WITH_CAUSE = ("failed", "refused")
"""Kinds whose items may have one cause on many devices."""

_NUMBER = re.compile(r"[0-9][0-9.,]*")

_VARYING = re.compile(rf"^round \d+: |(?<=^{STRANGERS}: ).*")
"""The parts in which two warnings of one problem may differ."""

_SUBJECT_END = re.compile(r"  | is (?:excluded|quarantined): ")
"""The text after a device's id in a warning about its own state."""

_GATHERING = re.compile(r"(?<=: )\d+ of (\d+)(?= devices for the quorum are there; waiting)")
"""The count in the warning of a round that waits for devices."""


@dataclass(frozen=True)
class AttentionItem:
    """One problem.

    Attributes:
        subject: id of the device or the run; empty for a warning.
        text: the problem, without the subject.
        since: UTC time of its beginning; empty if unknown.
    """

    subject: str
    kind: AttentionKind
    text: str
    since: str
    severity: Severity


def attention(snapshot: Snapshot, now: datetime) -> tuple[AttentionItem, ...]:
    """Return the problems at ``now``, the fleet's time: the worst first, of equals the newest."""
    items = [*_of_run(snapshot), *_alerts(snapshot, now)]
    items += [*_of_devices(snapshot, now), *_warnings(snapshot, now)]
    items.sort(key=lambda item: item.subject)
    items.sort(key=lambda item: item.since, reverse=True)
    return tuple(sorted(items, key=lambda item: _ORDER.index(item.kind)))


def by_cause(items: Sequence[AttentionItem]) -> list[tuple[AttentionItem, ...]]:
    """Return the items in groups of one kind; failures and refusals in groups of one cause.

    Texts that differ in numbers only have one cause. Groups of a kind begin with the largest.
    """
    groups: dict[tuple[int, str], list[AttentionItem]] = {}
    for item in items:
        cause = _NUMBER.sub("", item.text) if item.kind in WITH_CAUSE else ""
        groups.setdefault((_ORDER.index(item.kind), cause), []).append(item)
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], -len(group[1])))
    return [tuple(group) for _, group in ordered]


def devices_there(snapshot: Snapshot) -> int:
    """Return the number of devices with which a run can begin.

    They are connected and have data, and are neither paused, excluded nor quarantined.
    """
    return sum(map(_can_begin, snapshot.devices))


def _can_begin(view: DeviceSnapshot) -> bool:
    asked = not view.paused_by and not why_excluded(view)
    return asked and view.state not in ("lost", "paused") and view.samples > 0


def device_count(there: int, needed: int) -> str:
    """Return how many of the devices that a run begins with are there, such as ``3 of 8``."""
    return f"{there} of {needed}" if needed else str(there)


def _item(
    subject: str, kind: AttentionKind, text: str, since: str, *, alarm: bool = False
) -> AttentionItem:
    grave = alarm or kind in _ALARMS
    return AttentionItem(subject, kind, text, since, "alarm" if grave else "warning")


def _of_run(snapshot: Snapshot) -> Iterator[AttentionItem]:
    run = snapshot.run
    if run is None or run.status == "aborted":
        return
    if run.status == "finished":
        if NOTHING_LEARNED in run.reason:
            yield _item(run.run, "run", run.reason, run.ended_at)
    elif run.status == "failed":
        yield _item(run.run, "run", _because("failed", run.reason), run.ended_at)
    elif run.reason:  # only a run that waits for the disk has one before it ends
        yield _item(run.run, "waiting", run.reason, "", alarm=True)
    elif run.status == "waiting":
        there = device_count(devices_there(snapshot), run.min_devices)
        yield _item(run.run, "waiting", f"waits for devices: {there}", run.started_at)


def _alerts(snapshot: Snapshot, now: datetime) -> Iterator[AttentionItem]:
    """Yield the alerts that are not over; a failed run is an item of its own."""
    for alert in snapshot.alerts:
        if alert.alert != "run_failed":
            yield _item(alert.about, "alert", _alert_text(alert, snapshot, now), alert.since)


def _alert_text(alert: AlertView, snapshot: Snapshot, now: datetime) -> str:
    """Return an alert with the numbers of now; its own text has those of when it began."""
    if alert.alert == "lost_devices" and snapshot.devices:
        expected = [view for view in snapshot.devices if not view.paused_by]
        lost = sum(view.state == "lost" for view in expected)
        return f"{lost} of {counted(len(expected), 'device')} lost"
    begun = passed(snapshot.run.round_at, now) if snapshot.run else None
    return alert.text if begun is None else f"no round finished for {duration(begun)}"


def _of_devices(snapshot: Snapshot, now: datetime) -> Iterator[AttentionItem]:
    for view in snapshot.devices:
        yield from of_device(view, snapshot.run, now)


def of_device(
    view: DeviceSnapshot, run: RunView | None = None, now: datetime | None = None
) -> Iterator[AttentionItem]:
    """Yield the problems of one device, in a run and at a time if they are given."""
    if view.state == "lost":
        yield _lost(view, run, now)
    elif view.state == "silent":
        yield _silent(view, run, now)
    else:
        if view.reason.startswith(REFUSED_DATA):
            yield _item(view.device, "refused", view.reason, "")
        yield from _of_hardware(view)
        if view.excluded:
            text = _because("excluded", view.excluded)
            yield _item(view.device, "excluded", text, view.state_since)
    reply = _of_replies(view)
    if reply is not None:
        yield reply


def _lost(view: DeviceSnapshot, run: RunView | None, now: datetime | None) -> AttentionItem:
    """Return a lost device with its last activity, and the consequence for a round that waits."""
    text = f"{_because('lost', view.reason)}{_activity(view)}"
    if run is None or not is_awaited(view, run):
        return _item(view.device, "lost", text, view.state_since)
    then = consequence(run, now)
    return _item(view.device, "waited", f"{text}; {then}", view.state_since)


def _silent(view: DeviceSnapshot, run: RunView | None, now: datetime | None) -> AttentionItem:
    """Return a silent device with its last activity, and the consequence for a round that waits."""
    text = f"{silent_for(view, now)}{_activity(view)}"
    if run is not None and is_awaited(view, run):
        text = f"{text}; {consequence(run, now)}"
    return _item(view.device, "silent", text, view.seen_at or view.state_since)


def _activity(view: DeviceSnapshot) -> str:
    at_rest = view.before_lost in ("", "idle", "done", "asked", "silent")
    return "" if at_rest else f", {view.before_lost}"


def _of_hardware(view: DeviceSnapshot) -> Iterator[AttentionItem]:
    """Yield heat, a pause or a low battery of a device that is there; a pause has its cause."""
    paused, since = view.state == "paused", view.state_since
    hot = view.temperature is not None and view.temperature >= HOT_FROM
    if hot:
        text = f"{view.temperature:.0f} °C{', paused' if paused else ''}"
        yield _item(view.device, "hot", text, since if paused else "")
    elif paused:
        by = who_paused(view)
        text = f"paused {by}" if by else _because("paused", why_paused(view))
        yield _item(view.device, "paused", text, since)
    elif view.battery is not None and view.battery <= LOW_BATTERY:
        yield _item(view.device, "battery", f"battery {view.battery:.0f} %", "")


def _of_replies(view: DeviceSnapshot) -> AttentionItem | None:
    """Return why the device's last reply was refused, and its trust if that is low."""
    by = f" by {view.quarantined_by}" if view.quarantined_by else ""
    trust = "" if view.standing == "trusted" else f"{view.standing}{by}, trust {view.trust:.2f}"
    outcome = _outcome(view)
    if outcome:
        text = _because(outcome, view.refused_reason or view.reason)
        kind: AttentionKind = "failed" if outcome == "failed" else "refused"
        since = view.refused_at or view.state_since
        return _item(view.device, kind, f"{text}; {trust}" if trust else text, since)
    if trust:
        alarm = view.standing == "quarantined"
        ordered = view.trust_reason == f"ordered{by}"
        text = trust if ordered else _because(trust, view.trust_reason)
        return _item(view.device, "standing", text, view.trust_since, alarm=alarm)
    return None


def _outcome(view: DeviceSnapshot) -> str:
    """Return how a device's last reply was refused; empty when it was not."""
    if view.refused_at:
        refused = (reply.outcome for reply in reversed(view.rounds) if reply.outcome in _REFUSALS)
        return next(refused, "refused")
    return view.state if view.state in ("failed", "rejected") else ""


def _warnings(snapshot: Snapshot, now: datetime) -> Iterator[AttentionItem]:
    """Yield the warnings of the last minutes; those of a device are its own items.

    Of warnings that differ only in their round, or are all about strangers, the newest counts.
    """
    devices = {view.device for view in snapshot.devices}
    seen: set[str] = set()
    for line in snapshot.lines:
        of_device = _SUBJECT_END.split(line.text, maxsplit=1)[0] in devices
        text = _now_there(line.text, snapshot)
        what = _VARYING.sub("", text)
        if line.mark != "!" or of_device or what in seen or not _recent(line.time, now):
            continue
        if what.startswith(NOTHING_LEARNED):  # the run's own item says it
            continue
        seen.add(what)
        if text:
            yield _item("", "warning", text, line.time)


def _now_there(text: str, snapshot: Snapshot) -> str:
    """Return a warning with the devices that are there now; nothing once enough are."""
    count = _GATHERING.search(text)
    if count is None:
        return text
    there = devices_there(snapshot)
    if there >= int(count.group(1)):
        return ""
    return _GATHERING.sub(f"{there} of {count.group(1)}", text)


def _recent(stamp: str, now: datetime) -> bool:
    try:
        return now - moment_of(stamp) <= WARNINGS_FOR
    except (ValueError, TypeError):  # no time, or one without a zone
        return False


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
