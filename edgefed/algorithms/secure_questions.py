"""What the exchanges of secure aggregation say: sizes, sessions, and who is told what."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from edgefed.algorithms.base import (
    Exchange,
    Roster,
    State,
)
from edgefed.algorithms.secure_keys import MAX_DEVICES
from edgefed.algorithms.secure_phases import FIT, KEYS, LISTS, SHARES, UNMASK
from edgefed.algorithms.secure_records import (
    COMMITMENTS_GROUP,
    SecureRecords,
    Session,
)
from edgefed.errors import UsageError

PLACES: Mapping[str, int] = {KEYS: 1, SHARES: 2, FIT: 3, LISTS: 4, UNMASK: 5}


def awaited_roster(roster: Roster, session: Session, devices: Collection[str]) -> Roster:
    """Return those of some devices that are there, with the samples that they announced first."""
    return tuple(
        replace(member, samples=max(1, session.limits[member.device]))
        for member in roster
        if member.device in devices
    )


def sent_to(device: str, records: SecureRecords) -> list[Any]:
    """Return the shares that others sent to a device."""
    return [relay for relay in records.relays if relay.receiver == device]


def session_params(session: Session, **more: Any) -> dict[str, Any]:
    """Return the parameters of a question of a session."""
    return {"number": session.number, **more}


def commitments_for(state: State, session: Session, receiver: str) -> list[str]:
    """Return what a device's shares must fit: of each device's mask key or seed, in their order."""
    place, found = session.keyed.index(receiver), []
    for name in session.shared:
        row = state.groups[COMMITMENTS_GROUP][name][place].tobytes()
        found.append((row[32:] if name in session.masked else row[:32]).hex())
    return found


def phase_detail(name: str, is_signed: bool) -> str:
    """Return which of the exchanges of a round it is, in words."""
    place, count = PLACES[name], 5 if is_signed else 4
    return f"secure aggregation, {min(place, count)} of {count}"


def check_sizes(asked: int, threshold: int, planned: Exchange) -> None:
    """Check that a cohort of this size can be summed.

    Raises:
        UsageError: ``secure.cohort`` or ``secure.threshold``.
    """
    if asked > MAX_DEVICES:
        raise UsageError(
            f"Secure aggregation is for cohorts of up to {MAX_DEVICES} devices, not {asked}.",
            code="secure.cohort",
            hint=f"set rounds.cohort = {MAX_DEVICES} or less",
        )
    if asked <= 1:
        return  # the quorum is not reached, which is told like any other
    if threshold > min(asked, planned.wanted) or 2 * threshold <= asked:
        raise UsageError(
            f"A threshold of {threshold} does not fit a cohort of {asked} devices, of which a round"
            f" waits for {planned.wanted}: it has to be more than half of the devices asked, and no"
            " more than the answers waited for.",
            code="secure.threshold",
            hint="set secure_aggregation.threshold to a fraction, such as 0.6, or lower"
            " rounds.over_selection",
        )
