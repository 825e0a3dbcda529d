"""The devices that hold a round up: for how long they are unheard, and when the round goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from edgefed.events.base.device_rounds import waits_for
from edgefed.events.base.snapshot import DeviceSnapshot, RunView, Snapshot
from edgefed.process.clock import moment_of
from edgefed.terminal.units import counted, duration, time_left

_SOONER = timedelta(seconds=1)
"""How much sooner than its deadline an exchange closes that waits for lost devices alone."""


def passed(stamp: str, now: datetime | None) -> float | None:
    """Return the seconds from a time of the fleet until ``now``; None where one is unknown."""
    moment = _moment(stamp)
    return None if moment is None or now is None else max(0.0, (now - moment).total_seconds())


def _moment(stamp: str) -> datetime | None:
    """Return a time of the fleet; None without one. A recording may have one without a zone."""
    try:
        parsed = moment_of(stamp)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def silent_for(view: DeviceSnapshot, now: datetime | None) -> str:
    """Return for how long a silent device was not heard of, such as ``silent for 24 s``."""
    seconds = passed(view.state_since, now)
    return "silent" if seconds is None else f"silent for {duration(max(1, int(seconds)))}"


def is_awaited(view: DeviceSnapshot, run: RunView) -> bool:
    """Whether the open exchange of a run waits for a device."""
    named = run.waiting is not None and view.device in (*run.waiting.lost, *run.waiting.online)
    return named or waits_for(view, run)


def consequence(run: RunView, now: datetime | None, without: str = "it") -> str:
    """Return how the open exchange ends without the awaited devices, and when.

    It closes at its deadline, or sooner if it waits for lost devices alone: when the last of them
    has had its ``rounds.lost_grace``. With its quorum the round then goes on; below it, devices are
    asked again or the run fails.
    """
    closes, cause = _closing(run)
    if closes is None or now is None:
        return f"round {run.round} waits"
    left = (closes - now).total_seconds()
    when = f"in {time_left(left)} ({cause})" if left > 0 else f"now ({cause})"
    missing = run.quorum - run.accepted
    if missing > 0:
        return f"the round needs {counted(missing, 'more answer')} {when}"
    return f"the round goes on without {without} {when}"


def _closing(run: RunView) -> tuple[datetime | None, str]:
    """Return when the open exchange closes if nobody else answers, and why then."""
    opened = _moment(run.opened_at)
    until = _moment(run.waiting.until) if run.waiting is not None else None
    deadline = opened + timedelta(seconds=run.deadline) if opened and run.deadline > 0 else None
    if until is not None and deadline is not None and until < deadline - _SOONER:
        return until, "grace"
    return until or deadline, "deadline"


def why_slow(snapshot: Snapshot, now: datetime) -> str:
    """Return in one line which silent or lost device holds the round up, and how it ends and when.

    It is the one that is unheard for longest; of others there is the number. Empty without any.
    """
    run = snapshot.run
    held = [] if run is None else sorted(_holding_up(snapshot, run), key=_since)
    if run is None or not held:
        return ""
    first, *others = held
    text = silent_for(first, now)
    if first.state == "lost":
        seconds = passed(first.state_since, now)
        text = "lost" if seconds is None else f"lost for {duration(max(1, int(seconds)))}"
    more = f" and {len(others)} more" if others else ""
    return f"{first.device} {text}{more}; {consequence(run, now, 'them' if others else 'it')}"


def _holding_up(snapshot: Snapshot, run: RunView) -> Iterator[DeviceSnapshot]:
    for view in snapshot.devices:
        if view.state in ("silent", "lost") and is_awaited(view, run):
            yield view


def _since(view: DeviceSnapshot) -> tuple[str, str]:
    return view.state_since, view.device
