"""State that a device keeps across runs: named groups of arrays, and a ledger of releases.

An answer changes both (``Answer.device_state``, ``Answer.ledger``). This module defines their
bounds and the state after an answer; the agent or the simulator stores it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgefed.wire.limits import MAX_RELAYS
from edgefed.wire.tensors import pack

if TYPE_CHECKING:  # an agent stores this state without torch
    from edgefed.algorithms.interface.answer import Answer
    from edgefed.algorithms.interface.device_side import LedgerEntry
    from edgefed.learn.base.types import Array, Tensors

MAX_GROUPS = 64
MAX_NAME = 64
MAX_STATE_BYTES = 512 * 1024**2
"""Most groups of a device, characters of a group's name, and bytes of all arrays together."""

MAX_ENTRIES = MAX_RELAYS
MAX_ENTRY_BYTES = 16 * 1024
MAX_LEDGER = 65_536
"""Most ledger entries of one answer, one for each receiver, bytes of an entry as JSON, and entries
that answers append to a device's ledger."""


@dataclass(frozen=True)
class PersistentState:
    """The state of a device across runs.

    Attributes:
        device_state: groups of arrays by name.
        ledger: one entry for each release, oldest first.
    """

    device_state: Mapping[str, Tensors] = field(default_factory=dict)
    ledger: tuple[LedgerEntry, ...] = ()

    def read_only(self) -> dict[str, Tensors]:
        """Return the groups as read-only arrays: they change with an answer only."""
        return {
            name: {key: _read_only(array) for key, array in arrays.items()}
            for name, arrays in self.device_state.items()
        }

    def after(
        self, device_state: Mapping[str, Tensors], ledger: tuple[LedgerEntry, ...]
    ) -> PersistentState:
        """Return the state after an answer with these changes."""
        groups = {**self.device_state, **device_state}
        return PersistentState(
            {name: arrays for name, arrays in groups.items() if arrays}, (*self.ledger, *ledger)
        )


def checked_changes(state: PersistentState, answer: Answer) -> tuple[LedgerEntry, ...]:
    """Check the changes of an answer; return its ledger entries after a round trip through JSON.

    Raises:
        ValueError: it exceeds a bound, or an entry is not JSON.
        WireError: arrays cannot be stored.
    """
    after = state.after(answer.device_state, answer.ledger)
    if len(after.device_state) > MAX_GROUPS:
        raise ValueError(f"device_state has more than {MAX_GROUPS} groups")
    for name, group in answer.device_state.items():
        if not (0 < len(name) <= MAX_NAME and name.isascii() and name.isprintable()):
            raise ValueError(f"device_state: a name needs 1 to {MAX_NAME} printable characters")
        pack(group)
    arrays = (array for group in after.device_state.values() for array in group.values())
    if sum(array.nbytes for array in arrays) > MAX_STATE_BYTES:
        raise ValueError(f"device_state takes more than {MAX_STATE_BYTES} bytes")
    if len(answer.ledger) > MAX_ENTRIES:
        raise ValueError(f"an answer has more than {MAX_ENTRIES} ledger entries")
    # A ledger without space refuses releases, not training.
    if answer.ledger and len(after.ledger) > MAX_LEDGER:
        raise ValueError(f"the ledger has no space: it keeps {MAX_LEDGER} entries")
    return tuple(_plain(entry) for entry in answer.ledger)


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _plain(entry: LedgerEntry) -> LedgerEntry:
    text = json.dumps(dict(entry), allow_nan=False)
    if len(text.encode()) > MAX_ENTRY_BYTES:
        raise ValueError(f"a ledger entry takes more than {MAX_ENTRY_BYTES} bytes")
    plain: dict[str, object] = json.loads(text)
    return plain
