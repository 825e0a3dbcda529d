"""Each device's outcome and time in the last rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefed.events.base.snapshot import DeviceRoundView, DeviceSnapshot, RunView

MAX_DEVICE_ROUNDS = 60
"""Rounds that are kept of each device."""

WORST_LAST = ("accepted", "late", "lost", "refused", "rejected", "failed")
"""Outcomes; of several in one round, which has several exchanges, the worst counts."""

ASKING = ("broadcast", "collect")
"""Phases in which the open exchange waits for answers."""


def with_reply(view: DeviceSnapshot, fields: Mapping[str, Any]) -> tuple[DeviceRoundView, ...]:
    """Return a device's rounds after a ``reply``: its worst outcome, and the time of all."""
    number, outcome = int(fields["round"]), fields["outcome"]
    seconds = float(fields.get("seconds") or 0.0)
    known = {each.round: each for each in view.rounds}  # a late reply belongs to an earlier one
    if number in known:
        outcome = max(known[number].outcome, outcome, key=WORST_LAST.index)
        seconds += known[number].seconds
    known[number] = DeviceRoundView(round=number, outcome=outcome, seconds=seconds)
    return tuple(known[each] for each in sorted(known))[-MAX_DEVICE_ROUNDS:]


def with_loss(view: DeviceSnapshot, run: RunView | None) -> tuple[DeviceRoundView, ...]:
    """Return a device's rounds after it is lost: the round that waits for it counts it as lost."""
    if run is None or not waits_for(view, run):
        return view.rounds
    return with_reply(view, {"round": run.round, "outcome": "lost"})


def waits_for(view: DeviceSnapshot, run: RunView) -> bool:
    """Whether the open exchange of a run has asked a device that has not answered."""
    asked = run.phase in ASKING and bool(run.exchange) and view.exchange == run.exchange
    return asked and view.replied != run.exchange
