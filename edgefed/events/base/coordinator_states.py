"""The states that the coordinator gives a device, and their causes: ``paused`` and ``excluded``."""

from __future__ import annotations

from edgefed.events.base.snapshot import DeviceSnapshot, ShownState

_AT_WORK: tuple[ShownState, ...] = ("invited", "download", "train", "evaluate", "upload")
"""The activities that a device still finishes when it is paused or excluded."""

QUARANTINED = "it is quarantined"
"""Why a device does not take part; ``edgefed device release`` ends it."""


RELEASE = "edgefed device release"
"""The order that ends a quarantine, and an exclusion whose reason names it."""


def with_state(before: DeviceSnapshot, after: DeviceSnapshot, time: str) -> DeviceSnapshot:
    """Return a device after an event with the state that the coordinator gives it.

    A device that an operator has paused is ``paused``, and one that the run does not ask is
    ``excluded``, unless it is lost or still at work. A device that has paused itself stays so.
    """
    if after.state in ("lost", *_AT_WORK):
        return after
    taken_back = not _given(after) or (after.state == "paused" and not after.paused_by)
    if _given(before) == before.state == after.state and taken_back:
        after = after.model_copy(update={"state": "idle", "state_since": time})
    given = _given(after)
    if not given or after.state in ("paused", given):
        return after
    since = before.state_since if before.state == given else time
    return after.model_copy(update={"state": given, "state_since": since})


def _given(view: DeviceSnapshot) -> ShownState | None:
    if view.paused_by:
        return "paused"
    return "excluded" if why_excluded(view) else None


def why_excluded(view: DeviceSnapshot) -> str:
    """Return why the run does not ask a device; empty if it does.

    A device that an operator has paused is not excluded.
    """
    return view.excluded or (QUARANTINED if view.standing == "quarantined" else "")


def who_paused(view: DeviceSnapshot) -> str:
    """Return operator and reason of a pause: ``by ann: noisy fan``; empty without one."""
    if not view.paused_by:
        return ""
    reason = f": {view.pause_reason}" if view.pause_reason else ""
    return f"by {view.paused_by}{reason}"
