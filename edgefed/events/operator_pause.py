"""The pause of a device by an operator: its effect on the device's state, and its description."""

from __future__ import annotations

from edgefed.events.snapshot import DeviceView
from edgefed.wire.messages import DeviceState

_AT_WORK: tuple[DeviceState, ...] = ("invited", "download", "train", "evaluate", "upload")
"""What a device that is paused still finishes."""


def with_pause(before: DeviceView, after: DeviceView, time: str) -> DeviceView:
    """Return a device after an event with the state that a pause gives it.

    A device that an operator has paused is ``paused`` unless it is lost or still at work.
    """
    if after.paused_by and after.state not in ("paused", "lost", *_AT_WORK):
        since = before.state_since if before.state == "paused" else time
        return after.model_copy(update={"state": "paused", "state_since": since})
    if before.paused_by and not after.paused_by and after.state == before.state == "paused":
        return after.model_copy(update={"state": "idle", "state_since": time})
    return after


def who_paused(view: DeviceView) -> str:
    """Return who has paused a device, and why: ``by ann: noisy fan``; empty if nobody."""
    if not view.paused_by:
        return ""
    reason = f": {view.pause_reason}" if view.pause_reason else ""
    return f"by {view.paused_by}{reason}"
