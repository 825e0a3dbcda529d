"""A coordinator that lies about secure aggregation, to learn the update of ``VICTIM``.

The variable ``LIE`` of its environment says how: with ``swapped`` it puts keys of its own in the
place of the victim's, with ``unsigned`` it drops all signatures too. With the name of an exchange
it puts that exchange twice, the second time for a cohort without the victim.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from edgefed.algorithms.base import Answer, Exchange, Payload, State
from edgefed.algorithms.secure_aggregation import SecureAggregation
from edgefed.algorithms.secure_keys import CHANNEL, MASK, SEED
from edgefed.algorithms.secure_phases import FIT, LISTS, UNMASK
from edgefed.algorithms.secure_records import KEYS_GROUP, SecureRecords, Session
from edgefed.cli.main import app
from edgefed.console import start
from edgefed.learn.types import Tensors
from edgefed.sharing.pairwise_keys import commitment, public_key

VICTIM = "device-02"
OWN = bytes(range(32))
"""The secret that this coordinator would like to be the victim's."""

lie = os.environ.get("LIE", "")
honest_shares, honest_merge = SecureAggregation._shares, SecureAggregation.merge


def told_keys(devices: tuple[str, ...], group: Tensors) -> Tensors:
    """Return the cohort's keys with those of the coordinator among them."""
    told = {name: array.copy() for name, array in group.items()}
    place = devices.index(VICTIM)
    for name, own in ((MASK, public_key(OWN)), (CHANNEL, public_key(OWN)), (SEED, commitment(OWN))):
        told[name][place] = np.frombuffer(own, np.uint8)
    return told if lie == "swapped" else {name: told[name] for name in (MASK, CHANNEL, SEED)}


def shares(
    self: SecureAggregation, planned: Any, state: State, records: SecureRecords, session: Session
) -> Exchange:
    """Ask for shares under other keys than those that the devices advertised."""
    exchange = honest_shares(self, planned, state, records, session)
    told = told_keys(session.keyed, exchange.payloads[KEYS_GROUP].arrays)
    return replace(exchange, payloads={KEYS_GROUP: Payload(told, "fp32")})


def merge(
    self: SecureAggregation, state: State, exchange: Exchange, answers: Iterable[Answer]
) -> State:
    """Merge an exchange as if it was still to come, and the victim had been lost."""
    merged = honest_merge(self, state, exchange, answers)
    if exchange.name != lie:
        return merged
    session = SecureRecords.of(merged if lie != UNMASK else state).session
    assert session is not None
    changes: dict[str, Any] = {
        FIT: {"next": "fit", "shared": without_victim(session.shared), "masked": ()},
        LISTS: {"next": "lists", "masked": without_victim(session.masked), "listed": ()},
        UNMASK: {"next": "unmask", "masked": without_victim(session.masked)},
    }[lie]
    before = merged if lie != UNMASK else state
    records = replace(SecureRecords.of(before), session=replace(session, **changes))
    return records.kept_in(before)


def without_victim(devices: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in devices if each != VICTIM)


if __name__ == "__main__":
    if lie in ("swapped", "unsigned"):
        SecureAggregation._shares = shares  # type: ignore[method-assign]
    else:
        SecureAggregation.merge = merge  # type: ignore[method-assign]
    start(app)
