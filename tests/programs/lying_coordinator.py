"""A coordinator that lies about secure aggregation, to learn the update of ``VICTIM``.

The variable ``LIE`` of its environment says how; ``LIES`` lists the names. What it finds out is in
the file that ``FOUND`` names: the numbers that are left when it has removed every mask that it can
(``cells``), or the update itself (``delta.NAME`` for each tensor).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import edgefed.algorithms.secure.secure_merging
import edgefed.coordinator.exchanges.tasks
from edgefed.algorithms.averaging.fedavg import delta_role
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Payload, Question, ReplyRole
from edgefed.algorithms.secure.secure_aggregation import SecureAggregation
from edgefed.algorithms.secure.secure_device_half import grid_of, wire_bytes
from edgefed.algorithms.secure.secure_keys import CHANNEL, MASK, SEED, DeviceKeys, keys_text
from edgefed.algorithms.secure.secure_merging import without_masks
from edgefed.algorithms.secure.secure_phases import (
    ADVERTISED,
    FIT,
    KEYS,
    LISTS,
    MASKED,
    SECURE,
    UNMASK,
)
from edgefed.algorithms.secure.secure_records import KEYS_GROUP, SecureRecords, Session
from edgefed.cli.main import app
from edgefed.learn.aggregation.summed_grid import SummedGrid
from edgefed.learn.base.types import Array, Tensors
from edgefed.process.clock import SystemClock
from edgefed.sharing.pairwise_keys import commitment, public_key
from edgefed.terminal.console import start
from edgefed.trust.credentials import load_credentials
from edgefed.wire.messages import Task
from edgefed.wire.tensors import TensorSpec
from edgefed.worker.device_credentials import DeviceCredentials

VICTIM = "device-02"
OWN = bytes(range(32))
"""The secret that this coordinator would like to be the victim's."""

LIES: Mapping[str, str] = {
    "swapped": "keys of its own in the place of the victim's",
    "unsigned": "the same, and no key is signed",
    "grid": "a fine grid for the victim, so coarse a one for the others that they round to 0",
    "dead": "weights for the others through which no gradient reaches the first layer",
    "limits": "another table of samples for the others",
    "few": "one sample of each of the others counts, as all are told",
    "renamed": "the training under the name of a question whose answers are not masked",
    "bare": "a training task of the same run without secure aggregation",
    "impersonated": "from round 2 on a second certificate for the victim, with a key of its own",
    FIT: "the training asked twice, the second time for a cohort without the victim",
    LISTS: "two lists to sign, the second one without the victim",
    UNMASK: "the sum uncovered twice, the second time with the victim lost",
}
"""What each lie is."""

GRID = (127, 26)
"""Most samples in all, and bits, of the victim's grid; as many bytes a number as ``COARSE``."""

COARSE = (2**28 - 1, 1)

RENAMED = "train"

lie = os.environ.get("LIE", "")
honest_shares, honest_merge = SecureAggregation._shares, SecureAggregation.merge
honest_fit, honest_grid = SecureAggregation._fit, SecureAggregation._grid
honest_task = edgefed.coordinator.exchanges.tasks._task


def note(**found: Array) -> None:
    """Write down what was found out first."""
    if "FOUND" in os.environ and not Path(os.environ["FOUND"]).exists():
        np.savez(os.environ["FOUND"], **found)  # type: ignore[arg-type]


# -- a second certificate ------------------------------------------------------------------------

runs: list[str] = []
"""The run at work, once a task of it was made."""


def merge_impersonated(
    self: SecureAggregation, state: State, exchange: Exchange, answers: Iterable[Answer]
) -> State:
    """Merge keys of the coordinator as the victim's, which the authority has certified."""
    number = exchange.questions[0].params.get("number", 0)
    if exchange.name != KEYS or number < 2:
        return honest_merge(self, state, exchange, answers)
    folder = Path(os.environ["IMPERSONATOR"])
    own = DeviceCredentials(lambda: load_credentials(folder, SystemClock().now()))
    keys = DeviceKeys(public_key(OWN), public_key(OWN), commitment(OWN))
    threshold = exchange.questions[0].params["threshold"]
    text = keys_text(runs[-1], number, threshold, VICTIM, keys)
    keys = replace(keys, signature=own.sign(text), certificate=own.certificate)
    group = {ADVERTISED: Group(keys.to_arrays(), "fp32")}
    told = (replace(a, groups=group) if a.device == VICTIM else a for a in answers)
    return honest_merge(self, state, exchange, told)


# -- keys, and questions asked twice --------------------------------------------------------------


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


def merge_twice(
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


# -- training tasks -------------------------------------------------------------------------------


def fit(
    self: SecureAggregation, planned: Any, state: State, records: SecureRecords, session: Session
) -> Exchange:
    """Ask for updates, of each device something else."""
    exchange = honest_fit(self, planned, state, records, session)
    change = CHANGES.get(lie)
    questions = exchange.questions
    if change is not None:
        questions = tuple(map(change, questions))
    if lie == "grid":
        shape = {MASKED: TensorSpec("uint8", (wire_bytes(grid(self, state)),))}
        exchange = replace(exchange, reply_roles={MASKED: ReplyRole(shape, 0.0)})
    if lie == "dead":
        weights = dict(exchange.payloads["weights"].arrays)
        weights["fc1.bias"] = np.full_like(weights["fc1.bias"], -1e3)
        payloads = {**exchange.payloads, "dead": Payload(weights, "fp32")}
        exchange = replace(exchange, payloads=payloads)
    if lie in ("renamed", "bare"):
        role = delta_role(state.groups["weights"])
        questions = tuple(replace(each, params={}, relays=()) for each in questions)
        exchange = replace(exchange, reply_roles={"delta": role}, quorum=1)
    return replace(exchange, questions=questions, name=RENAMED if lie == "renamed" else FIT)


def told_grid(question: Question) -> Question:
    total, bits = GRID if question.device == VICTIM else COARSE
    limits = dict(question.params[SECURE]["limits"])
    if question.device == VICTIM:
        limits = dict.fromkeys(limits, 1) | {VICTIM: limits[VICTIM]}
    limits["nobody"] = total - sum(limits.values())
    return with_secure(question, bits=bits, limits=limits)


def told_dead(question: Question) -> Question:
    blobs = {"weights": "dead"} if question.device != VICTIM else {}
    return replace(question, blobs={**question.blobs, **blobs})


def told_limits(question: Question) -> Question:
    limits = dict(question.params[SECURE]["limits"])
    limits[VICTIM] += question.device != VICTIM
    return with_secure(question, limits=limits)


def told_few(question: Question) -> Question:
    limits = question.params[SECURE]["limits"]
    return with_secure(question, limits=dict.fromkeys(limits, 1) | {VICTIM: limits[VICTIM]})


def with_secure(question: Question, **changes: Any) -> Question:
    return replace(
        question,
        params={**question.params, SECURE: {**question.params[SECURE], **changes}},
    )


CHANGES: Mapping[str, Callable[[Question], Question]] = {
    "grid": told_grid,
    "dead": told_dead,
    "limits": told_limits,
    "few": told_few,
}


def grid(self: SecureAggregation, state: State) -> SummedGrid:
    """Return the grid that the victim was told."""
    if lie != "grid":
        return honest_grid(self, state)
    return grid_of(state.groups["weights"], *GRID)


def bare_task(question: Question, told: Mapping[str, Any], *more: Any) -> Task:
    """Return a training task without secure aggregation."""
    runs.append(str(told["run"]))
    bare = lie == "bare" and told["question"] == FIT
    return honest_task(question, {**told, "secure_aggregation": {}} if bare else told, *more)


# -- what it finds out ----------------------------------------------------------------------------


def noted_sum(state: State, answers: Iterable[Answer]) -> Array:
    """Return the sum without its masks, and write it down whether or not it is one."""
    cells = without_masks(state, answers)
    note(cells=cells)
    return cells


def merge_noted(
    self: SecureAggregation, state: State, exchange: Exchange, answers: Iterable[Answer]
) -> State:
    """Merge, and write down updates that came without a mask."""
    if lie not in ("renamed", "bare") or exchange.name not in (RENAMED, FIT):
        return honest_merge(self, state, exchange, answers)
    for answer in answers:
        if answer.device == VICTIM:
            arrays = answer.groups["delta"].arrays
            note(**{f"delta.{name}": array for name, array in arrays.items()})
    return replace(state, round=state.round + 1)


def lie_about(told: str) -> None:
    """Put what lies in the place of what does not."""
    vars(edgefed.coordinator.exchanges.tasks)["_task"] = bare_task
    vars(edgefed.algorithms.secure.secure_merging)["without_masks"] = noted_sum
    if told == "impersonated":
        SecureAggregation.merge = merge_impersonated  # type: ignore[method-assign]
    elif told in ("swapped", "unsigned"):
        SecureAggregation._shares = shares  # type: ignore[method-assign]
    elif told in (FIT, LISTS, UNMASK):
        SecureAggregation.merge = merge_twice  # type: ignore[method-assign]
    else:
        SecureAggregation._fit = fit  # type: ignore[method-assign]
        SecureAggregation._grid = grid  # type: ignore[method-assign]
        SecureAggregation.merge = merge_noted  # type: ignore[method-assign]


if __name__ == "__main__":
    if lie:
        lie_about(lie)
    start(app)
