"""Problems for an operator: devices that are lost, refused or hot, and why a run waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, get_args

from edgefed.events.base.coordinator_states import who_paused, why_excluded
from edgefed.events.base.device_rounds import waits_for
from edgefed.events.base.snapshot import DeviceSnapshot, RunView, Snapshot
from edgefed.process.clock import moment_of

AttentionKind = Literal[
    "run", "alert", "waited", "lost", "failed", "refused", "standing", "excluded", "hot", "paused",
    "battery", "waiting", "warning",
]  # fmt: skip
"""The subject of an item, the worst first: a run that failed or learned nothing, an alert that is
not over, and a lost device that a round waits for.

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
_ALARMS = ("run", "alert", "waited", "lost", "failed", "refused")
_REFUSALS = ("refused", "rejected", "failed")
NOTHING_LEARNED = "the model learned nothing"
"""How the reason of a finished run says so."""

STRANGERS = "strangers"
"""How a warning about senders that are not known begins."""

_VARYING = re.compile(rf"^round \d+: |(?<=^{STRANGERS}: ).*")
"""The parts in which two warnings of one problem may differ."""

_SUBJECT_END = re.compile(r"  | is (?:excluded|quarantined): ")
"""The text after a device's id in a warning about its own state."""


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
    items = [*_of_run(snapshot), *_alerts(snapshot)]
    items += [*_of_devices(snapshot), *_warnings(snapshot, now)]
    items.sort(key=lambda item: item.subject)
    items.sort(key=lambda item: item.since, reverse=True)
    return tuple(sorted(items, key=lambda item: _ORDER.index(item.kind)))


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


def _alerts(snapshot: Snapshot) -> Iterator[AttentionItem]:
    """Yield the alerts that are not over; a failed run is an item of its own."""
    for alert in snapshot.alerts:
        if alert.alert != "run_failed":
            yield _item(alert.about, "alert", alert.text, alert.since)


def _of_devices(snapshot: Snapshot) -> Iterator[AttentionItem]:
    for view in snapshot.devices:
        yield from of_device(view, snapshot.run)


def of_device(view: DeviceSnapshot, run: RunView | None = None) -> Iterator[AttentionItem]:
    """Yield the problems of one device, in a run if one is given."""
    if view.state == "lost":
        yield _lost(view, run)
    else:
        yield from _of_hardware(view)
        if view.excluded:
            text = _because("excluded", view.excluded)
            yield _item(view.device, "excluded", text, view.state_since)
    reply = _of_replies(view)
    if reply is not None:
        yield reply


def _lost(view: DeviceSnapshot, run: RunView | None) -> AttentionItem:
    """Return a lost device with its last activity and the round that waits for it."""
    text = _because("lost", view.reason)
    if view.before_lost not in ("", "idle", "done"):
        text = f"{text}, {view.before_lost}"
    if run is None or not _awaited(view, run):
        return _item(view.device, "lost", text, view.state_since)
    return _item(view.device, "waited", f"{text}; round {run.round} waits", view.state_since)


def _awaited(view: DeviceSnapshot, run: RunView) -> bool:
    named = run.waiting is not None and view.device in run.waiting.lost
    return named or waits_for(view, run)


def _of_hardware(view: DeviceSnapshot) -> Iterator[AttentionItem]:
    """Yield heat, a pause or a low battery of a device that is there; a pause has its cause."""
    paused, since = view.state == "paused", view.state_since
    hot = view.temperature is not None and view.temperature >= HOT_FROM
    if hot:
        text = f"{view.temperature:.0f} °C{', paused' if paused else ''}"
        yield _item(view.device, "hot", text, since if paused else "")
    elif paused:
        by = who_paused(view)
        text = f"paused {by}" if by else _because("paused", view.reason)
        yield _item(view.device, "paused", text, since)
    elif view.battery is not None and view.battery <= LOW_BATTERY:
        yield _item(view.device, "battery", f"battery {view.battery:.0f} %", "")


def _of_replies(view: DeviceSnapshot) -> AttentionItem | None:
    """Return why the device's last reply was refused, and its trust if that is low."""
    trust = "" if view.standing == "trusted" else f"{view.standing}, trust {view.trust:.2f}"
    outcome = _outcome(view)
    if outcome:
        text = _because(outcome, view.refused_reason or view.reason)
        kind: AttentionKind = "failed" if outcome == "failed" else "refused"
        since = view.refused_at or view.state_since
        return _item(view.device, kind, f"{text}; {trust}" if trust else text, since)
    if trust:
        alarm = view.standing == "quarantined"
        text = _because(trust, view.trust_reason)
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
        what = _VARYING.sub("", line.text)
        if line.mark != "!" or of_device or what in seen or not _recent(line.time, now):
            continue
        if what.startswith(NOTHING_LEARNED):  # the run's own item says it
            continue
        seen.add(what)
        yield _item("", "warning", line.text, line.time)


def _recent(stamp: str, now: datetime) -> bool:
    try:
        return now - moment_of(stamp) <= WARNINGS_FOR
    except (ValueError, TypeError):  # no time, or one without a zone
        return False


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what
