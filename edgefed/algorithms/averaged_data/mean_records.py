"""The coordinator's records of shared averages: which devices' it holds, and which to ask again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member, Roster
from edgefed.learn.base.types import Tensors
from edgefed.sharing.packing import Packed, unpack
from edgefed.sharing.types import Entries
from edgefed.terminal.units import counted

SHARED = "shared"
"""The group of the state that holds averages as they came: ``DEVICE/inputs``, ``DEVICE/targets``
and, of bytes, ``DEVICE/scale`` and ``DEVICE/offset``."""

ASKED = "asked"
"""The fact that holds, by device, the word of its data, the round in which it was last asked, and
the round in which it was silent; 0 if it answered."""

SEED = "seed"
"""The fact that holds the seed of the stack."""

HIDDEN = "hidden"
"""The fact that holds the round whose hidden states were averaged; 0 for inputs, of no round."""

OWN = "own"
"""The fact that holds which rows of the stack are a device's own."""

PATIENCE = 10
"""Rounds after which a device that gave no averages is asked again."""

CHANGED = 0.2
"""Fraction of the sharing devices whose data must have changed before any device is asked again:
the averages of one device before and after a small change disclose the change."""


def due(state: State, roster: Roster, threshold: int) -> tuple[Member, ...]:
    """Return the devices to ask for averages now.

    These are devices that were never asked; those that sent none, after some rounds; and those
    whose data changed, if enough did. For averages of hidden states, all devices in every round.
    """
    asked = state.params[ASKED]
    able = [member for member in roster if member.samples >= max(1, threshold)]
    if state.params.get(HIDDEN):
        return tuple(able) if state.params[HIDDEN] <= state.round else ()
    fresh = [member for member in able if member.device not in asked]
    silent = [member for member in able if _is_due(asked.get(member.device), state.round + 1)]
    changed = [
        member
        for member in able
        if _has_changed(asked.get(member.device), member.data, state.round + 1)
    ]
    if len(changed) < CHANGED * len(holders(state.groups[SHARED])):
        changed = []
    return tuple(sorted({*fresh, *silent, *changed}, key=lambda member: member.device))


def _is_due(known: dict[str, Any] | None, number: int) -> bool:
    return known is not None and 0 < known["silent"] <= number - PATIENCE


def _has_changed(known: dict[str, Any] | None, data: str, number: int) -> bool:
    """Return whether data are others now; asked once a round, no device can hold a round up."""
    if known is None or known["silent"]:
        return False
    return bool(known["data"] != data and known["asked"] < number)


def holders(names: Iterable[str]) -> set[str]:
    """Return the devices whose averages are there, from the names of the arrays that hold them."""
    return {name.rpartition("/")[0] for name in names}


def joined(state: State, answers: Iterable[Answer]) -> tuple[Tensors, set[str], bool]:
    """Return all devices' averages, the devices that answered, and whether they are hidden states.

    Averages in ``answers`` replace older ones; hidden states of an earlier round are dropped.
    """
    hidden = bool(state.params.get(HIDDEN))
    shared = {} if hidden else dict(state.groups[SHARED])
    answered: set[str] = set()
    for answer in answers:
        answered.add(answer.device)
        hidden = hidden or bool(answer.metrics.get("hidden"))
        # What it sends now may be packed in another way than what it sent before.
        for part in ("inputs", "targets", "scale", "offset"):
            shared.pop(f"{answer.device}/{part}", None)
        for name, array in answer.groups["means"].arrays.items():
            shared[f"{answer.device}/{name}"] = array
    return {name: shared[name] for name in sorted(shared)}, answered, hidden


def remembered(exchange: Exchange, answered: set[str]) -> dict[str, dict[str, Any]]:
    """Return the records of the devices asked, in the form of ``ASKED``.

    A device that does not answer is silent even if it has older averages: they are of other data.
    """
    return {
        question.device: {
            "data": question.params["data"],
            "asked": exchange.round,
            "silent": 0 if question.device in answered else exchange.round,
        }
        for question in exchange.questions
    }


def shares_of(shared: Tensors) -> dict[str, Entries]:
    """Return the averages by device."""
    packed: dict[str, Packed] = {device: {} for device in sorted(holders(shared))}
    for name, array in shared.items():
        device, _, part = name.rpartition("/")
        packed[device][part] = array
    return {device: unpack(arrays) for device, arrays in packed.items()}


def remark(exchange: Exchange, after: State) -> Remark:
    """Return the result of an exchange of averages, in a line."""
    sharers = holders(after.groups[SHARED])
    asked = counted(len(exchange.questions), "device")
    if not sharers:
        return Remark(f"none of {asked} shares averaged data: this is FedAvg", warning=True)
    known = after.params[ASKED]
    new = sum(not known[question.device]["silent"] for question in exchange.questions)
    entries = sum(
        len(array) for name, array in after.groups[SHARED].items() if name.endswith("/targets")
    )
    held = counted(entries, "entry", "entries")
    return Remark(f"{new} of {asked} shared averaged data: {held} in all")
