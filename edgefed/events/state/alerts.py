"""The conditions of alerts, each of which is reported once when it begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.events.base.alert_events import AlertName
from edgefed.events.base.model import RunStatus
from edgefed.events.base.snapshot import RunView, Snapshot
from edgefed.terminal.units import counted, duration

LOST_FOR = 5.0
"""Seconds for which the share of lost devices has to last: longer than those that were never
really away take to come back after a restart of the coordinator."""

OVER_AT = 0.8
"""The alert about lost devices ends below this fraction of the share at which it begins, so that a
device that comes and goes does not cause one each time."""

MOST_NAMED = 100
"""Lost devices that an alert names."""

_AT_WORK: tuple[RunStatus, ...] = ("waiting", "running", "finishing")
"""States of a run in which a round is to be finished."""


@dataclass(frozen=True)
class Alert:
    """A condition that is reported to an operator, or its end.

    Attributes:
        name: its subject.
        text: the problem, without the run's id.
        run: id of the run; empty for the fleet.
        occurrence: distinguishes two failures of one run.
        lost: devices that are lost, where it is about them.
        known: how many devices are known and not paused by an operator, where it is about them.
        over: whether this is the end of it.
    """

    name: AlertName
    text: str
    run: str = ""
    occurrence: str = ""
    lost: tuple[str, ...] = ()
    known: int = 0
    over: bool = False

    def event(self) -> dict[str, Any]:
        """Return the fields of the ``alert`` event."""
        return {"alert": self.name, "about": self.run, "text": self.text, "over": self.over}

    def to_json(self, fleet: str, time: str) -> dict[str, Any]:
        """Return the object for a command or a webhook."""
        fields = {"alert": self.name, "fleet": fleet, "run": self.run, "text": self.text}
        if self.name != "lost_devices":
            return {**fields, "time": time}
        return {**fields, "time": time, "lost": list(self.lost), "known": self.known}

    def is_same(self, other: Alert | None) -> bool:
        """Whether both are about one occurrence."""
        known = other is not None and (other.name, other.run, other.occurrence)
        return known == (self.name, self.run, self.occurrence)


class AlertConditions:
    """Finds the alerts that begin and end in each of a series of snapshots.

    Args:
        settings: conditions of alerts.
        start: the fleet before; a run that had failed by then is not reported.
        open_ones: the alerts that had begun by then and were not over.
    """

    def __init__(
        self, settings: AlertSettings, start: Snapshot, open_ones: Iterable[Alert] = ()
    ) -> None:
        self._settings = settings
        self._open: dict[AlertName, Alert] = {alert.name: alert for alert in open_ones}
        self._shown = self._begun_before(_failure(start.run))
        self._lost_before = "lost_devices" in self._open
        self._lost_since: float | None = None
        self._devices_since: float | None = None
        self._progress: tuple[str, int] | None = None
        self._progress_at = 0.0

    def look(self, snapshot: Snapshot, now: float) -> tuple[Alert, ...]:
        """Return the alerts that begin or are over, in the order in which to report them.

        Args:
            snapshot: the current state of the fleet.
            now: monotonic time in seconds.
        """
        alerts = (
            self._failed(snapshot.run),
            self._too_many_lost(snapshot, now),
            self._no_round(snapshot, now),
        )
        wrong = {alert.name: alert for alert in alerts if alert is not None}
        if self._awaits_devices(snapshot, now):
            wrong.setdefault("lost_devices", self._open["lost_devices"])
        ended = [a for a in self._open.values() if not a.is_same(wrong.get(a.name))]
        begun = [a for a in wrong.values() if not a.is_same(self._open.get(a.name))]
        for alert in ended:
            del self._open[alert.name]
        self._open |= {alert.name: alert for alert in begun}
        return (*(replace(alert, over=True) for alert in ended), *begun)

    def _begun_before(self, failure: Alert | None) -> Alert | None:
        """Return a failure from before the start that is not open and therefore not reported."""
        known = self._open.get("run_failed")
        if known is None or failure is None or known.run != failure.run:
            return failure
        # The store and the event of a failure differ by milliseconds.
        self._open["run_failed"] = replace(known, occurrence=failure.occurrence)
        return None

    def _awaits_devices(self, snapshot: Snapshot, now: float) -> bool:
        """Return whether it is too early after a start to tell that devices are no longer lost."""
        if self._lost_before and snapshot.devices:
            self._devices_since = now if self._devices_since is None else self._devices_since
            self._lost_before = now - self._devices_since < LOST_FOR
        return self._lost_before and "lost_devices" in self._open

    def _failed(self, run: RunView | None) -> Alert | None:
        """Return the failure of a run, unless it is the one of before the start."""
        failure = _failure(run)
        if failure is None or failure.is_same(self._shown):
            return None
        self._shown = None
        return failure

    def _too_many_lost(self, snapshot: Snapshot, now: float) -> Alert | None:
        """Return that too many devices are lost, once they have been for a while.

        Devices that an operator has paused do not count: they may be switched off.
        """
        expected = [view for view in snapshot.devices if not view.paused_by]
        lost = tuple(view.device for view in expected if view.state == "lost")
        known = len(expected)
        least = self._settings.lost_share * (OVER_AT if "lost_devices" in self._open else 1.0)
        if not lost or not least or len(lost) / known < least:
            self._lost_since = None
            return None
        self._lost_since = now if self._lost_since is None else self._lost_since
        if "lost_devices" not in self._open and now - self._lost_since < LOST_FOR:
            return None
        text = f"{len(lost)} of {counted(known, 'device')} lost"
        return Alert("lost_devices", text, lost=lost[:MOST_NAMED], known=known)

    def _no_round(self, snapshot: Snapshot, now: float) -> Alert | None:
        """Return that the run at work has finished no round for too long."""
        run, limit = snapshot.run, self._settings.round_seconds
        if run is None or run.status not in _AT_WORK or not limit:
            self._progress = None
            return None
        progress = run.run, snapshot.rounds[-1].round if snapshot.rounds else 0
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        text = f"no round finished for {duration(limit)}"
        alert = Alert("no_round", text, run.run, occurrence=str(progress[1]))
        known = self._open.get("no_round")  # after a restart the time begins anew, no alert does
        return alert if now - self._progress_at >= limit or alert.is_same(known) else None


def _failure(run: RunView | None) -> Alert | None:
    if run is None or run.status != "failed":
        return None
    text = f"failed: {run.reason}" if run.reason else "failed"
    return Alert("run_failed", text, run.run, occurrence=run.ended_at)
