"""The questions of secure aggregation: sizes, sessions, and their parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.secure.secure_keys import MAX_DEVICES
from edgefed.algorithms.secure.secure_phases import (
    FIT,
    FORM,
    KEYS,
    LISTS,
    SECURE,
    SHARES,
    UNMASK,
    tolerated,
)
from edgefed.algorithms.secure.secure_records import (
    COMMITMENTS_GROUP,
    SecureRecords,
    Session,
)
from edgefed.errors import UsageError

PLACES: Mapping[str, int] = {KEYS: 1, SHARES: 2, FIT: 3, LISTS: 4, UNMASK: 5}


def awaited_roster(roster: Roster, session: Session, devices: Collection[str]) -> Roster:
    """Return the connected ones of some devices, with the samples that they announced first."""
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
    return {"form": FORM, "number": session.number, **more}


def masking_params(questions: Sequence[Question], session: Session, bits: int) -> dict[str, Any]:
    """Return the parameters of all training tasks of a session; every device gets the same ones.

    The masks depend on them. Values that differ from device to device are in tables of all devices.

    Raises:
        UsageError: ``secure.unfit``: the algorithm sends devices different arrays.
    """
    if any(question.blobs != questions[0].blobs for question in questions):
        raise UsageError(
            "Secure aggregation cannot sum these updates: devices are sent different arrays.",
            code="secure.unfit",
            hint="choose fedavg or an algorithm that sends all devices the same model",
        )
    shared = {
        name: value
        for name, value in (questions[0].params.items() if questions else ())
        if all(name in question.params and question.params[name] == value for question in questions)
    }
    own = {
        question.device: {
            name: question.params[name] for name in question.params if name not in shared
        }
        for question in questions
    }
    asked = session_params(session, devices=list(session.shared), bits=bits)
    tables = {"limits": dict(session.limits), "own": own if any(own.values()) else {}}
    return {**shared, SECURE: {**asked, **tables}}


def commitments_for(state: State, session: Session, receiver: str) -> list[str]:
    """Return the commitments for a device's shares of each device's mask key or seed, in order."""
    place, commitments = session.keyed.index(receiver), []
    for name in session.shared:
        row = state.groups[COMMITMENTS_GROUP][name][place].tobytes()
        # A row commits to the share of the mask key, then to that of the seed
        commitments.append((row[32:] if name in session.masked else row[:32]).hex())
    return commitments


def phase_detail(name: str, is_signed: bool) -> str:
    """Return which of the exchanges of a round it is, in words."""
    place, count = PLACES[name], 5 if is_signed else 4
    return f"secure aggregation, {min(place, count)} of {count}"


def check_sizes(asked: int, threshold: int, colluders: int, planned: Exchange) -> None:
    """Check that a cohort of this size can be summed, and not seen through by ``colluders``.

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
    if threshold > min(asked, planned.wanted) or tolerated(asked, threshold) < colluders:
        raise UsageError(
            f"A threshold of {threshold} does not fit a cohort of {asked} devices, of which a round"
            f" waits for {planned.wanted}: it has to be more than half of the devices asked and of"
            f" {colluders} colluders together, and no more than the answers waited for.",
            code="secure.threshold",
            hint="set secure_aggregation.threshold = 0, or lower secure_aggregation.colluders or"
            " rounds.over_selection",
        )
