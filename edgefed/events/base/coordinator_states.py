"""The states that the coordinator gives a device that it does not ask, and their causes.

They are ``quarantined``, ``paused`` and ``excluded``.
"""

from __future__ import annotations

from edgefed.events.base.snapshot import DeviceSnapshot, ShownState
from edgefed.process.clock import moment_of

_AT_WORK: tuple[ShownState, ...] = (
    *("asked", "silent"),
    *("invited", "download", "train", "evaluate", "upload"),
)
"""The states that a device keeps when it is paused or excluded: it still finishes its task."""

CONNECTION_BROKE = "connection broke"
"""Why a device is lost whose connection ended without a farewell, as the broker notices."""

STOPPED = "stopped cleanly"
"""Why a device is lost whose agent was stopped."""

REFUSED_DATA = "refused its data"
"""How the reason of a device begins whose agent cannot use the data that it is given."""

CHANGED_DATA = "changed its data"
"""How the reason of a device begins whose changed data are not read yet, since a run is on."""

SILENT = "silent"
"""Why a device is lost that was not heard of after the connection to the broker was restored."""

REMOVED = "removed at its site"
"""Why a device is lost that a gateway's site has removed or forgotten."""

QUARANTINED = "it is quarantined"
"""Why a device does not take part; ``edgefed device release`` ends it."""


RELEASE = "edgefed device release"
"""The order that ends a quarantine, and an exclusion whose reason names it."""


def with_state(before: DeviceSnapshot, after: DeviceSnapshot, time: str) -> DeviceSnapshot:
    """Return a device after an event with the state that the coordinator gives it.

    A device is ``quarantined`` unless it is lost, whatever it does. One that an operator has paused
    is ``paused``, and one that the run does not ask is ``excluded``, unless it is lost or still at
    work. A device that has paused itself stays so.
    """
    given = _given(after)
    if after.state == "lost" or (after.state in _AT_WORK and given != "quarantined"):
        return after
    taken_back = not given or (after.state == "paused" and not after.paused_by)
    if _given(before) == before.state == after.state and taken_back:
        after = after.model_copy(update={"state": "idle", "state_since": time})
    if not given or after.state == given or (after.state == "paused" and given == "excluded"):
        return after
    since = before.state_since if before.state == given else time
    return after.model_copy(update={"state": given, "state_since": since})


def _given(view: DeviceSnapshot) -> ShownState | None:
    if view.standing == "quarantined":
        return "quarantined"
    if view.paused_by:
        return "paused"
    return "excluded" if why_excluded(view) else None


def why_excluded(view: DeviceSnapshot) -> str:
    """Return why the run does not ask a device; empty if it does.

    A device that an operator has paused is not excluded.
    """
    if view.standing == "quarantined":
        return f"{QUARANTINED}, {view.trust_reason}" if view.trust_reason else QUARANTINED
    return view.excluded


def why_paused(view: DeviceSnapshot) -> str:
    """Return why a paused device is, with the end of its pause where that is known."""
    return who_paused(view) or pause_in_words(view.reason, view.resumes_at)


def pause_in_words(reason: str, until: str) -> str:
    """Return a device's own reason to pause and, if not empty, the UTC time until which it does."""
    end = f"until {moment_of(until):%a %H:%M} UTC" if until else ""
    return ", ".join(filter(None, (reason, end)))


def who_paused(view: DeviceSnapshot) -> str:
    """Return operator and reason of a pause: ``by ann: noisy fan``; empty without one."""
    if not view.paused_by:
        return ""
    reason = f": {view.pause_reason}" if view.pause_reason else ""
    return f"by {view.paused_by}{reason}"
