"""An operator's orders about label bounties: check and store one, and carry out those of a run.

An order is stored before it is answered. The engine carries it out before it plans the next
exchange. It changes a state once, however often it is carried out.
"""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.stored_runs import Checkpoint, RunRecord
from edgefed.errors import UnknownNameError, UsageError
from edgefed.events.base.bounty_tables import BountyView, totals
from edgefed.events.base.model import UNFINISHED
from edgefed.events.base.snapshot import Snapshot
from edgefed.sharing.bounty_report import BountyAction


def order_labels(
    store: Store,
    snapshot: Snapshot,
    record: RunRecord,
    action: BountyAction,
    device: str,
    label: int | str | None,
) -> dict[str, Any]:
    """Store an order and return it with the bounties that it concerns, by status.

    Args:
        store: keeps the order.
        snapshot: the current state of the fleet.
        record: the run of the bounties.
        action: the action.
        device: the device; empty for all.
        label: the label, or the name of a class; None for all.

    Raises:
        UsageError: the run has ended, or gives no supplements.
        UnknownNameError: there is no such device, label or bounty.
        StorageError: it cannot be written.
    """
    _check_run(record)
    number = None if label is None else _label(record, label)
    bounties = _concerned(snapshot, record, device, number)
    return {
        "run": record.run,
        "number": store.add_bounty_order(record.run, action, device, number),
        "action": action,
        "device": device,
        "label": number,
        "bounties": totals(bounties),
    }


def _check_run(record: RunRecord) -> None:
    if record.status not in UNFINISHED:
        raise UsageError(
            f"Run {record.run} is {record.status}; its label bounties take no orders.",
            code="run.not_active",
            hint=f"edgefed run show {record.run}",
        )
    if not Recipe.model_validate_json(record.recipe).labels.wanted:
        raise UsageError(
            f"Run {record.run} gives no supplements for labels.",
            code="label.off",
            hint="set labels.supplement or labels.count in the recipe of the next run",
        )


def _label(record: RunRecord, label: int | str) -> int:
    """Return the number of a label, which may be given by the name of its class."""
    text = str(label)
    if isinstance(label, str) and label in record.class_names:
        return record.class_names.index(label)
    if text.isdecimal() and int(text) < record.classes:
        return int(text)
    names = ", ".join(record.class_names) or f"0 to {record.classes - 1}"
    raise UnknownNameError(
        f"Run {record.run} has no label '{text}'.",
        code="label.unknown",
        hint=f"its labels are {names}" if record.classes else "wait until it has begun",
    )


def _concerned(
    snapshot: Snapshot, record: RunRecord, device: str, label: int | None
) -> tuple[BountyView, ...]:
    """Return the bounties that an order is about."""
    current = snapshot.run is not None and snapshot.run.run == record.run
    bounties = snapshot.bounties if current else ()
    known = {view.device for view in snapshot.devices} | {bounty.device for bounty in bounties}
    if device and device not in known:
        raise UnknownNameError(
            f"No device {device}.", code="device.unknown", hint="edgefed device list"
        )
    concerned = tuple(
        bounty
        for bounty in bounties
        if device in ("", bounty.device) and label in (None, bounty.label)
    )
    if not concerned:
        whose = f" of {device}" if device else ""
        what = (
            "" if label is None else f" for {dict(enumerate(record.class_names)).get(label, label)}"
        )
        raise UnknownNameError(
            f"Run {record.run} has no label bounty{whose}{what}.",
            code="label.bounty",
            hint="edgefed label bounties",
        )
    return concerned


def after_orders(
    algorithm: CompleteAlgorithm[Any], store: Store, run: str, state: State
) -> tuple[State, int]:
    """Return the state after all orders of a run so far, and how many they are."""
    orders = store.bounty_orders(run)
    return (algorithm.with_bounty_orders(state, orders) if orders else state), len(orders)


def planned_state(
    algorithm: CompleteAlgorithm[Any], store: Store, run: str, checkpoint: Checkpoint
) -> tuple[State, int]:
    """Return the state that the open exchange was planned from, and the number of its orders.

    Orders are committed with the answers to the next exchange. After a restart, the answers are
    therefore merged into the same state as without one, regardless of later orders.
    """
    number = max((opened.bounty_orders for opened in checkpoint.open), default=0)
    orders = store.bounty_orders(run)[:number]
    if not orders:
        return checkpoint.state, number
    return algorithm.with_bounty_orders(checkpoint.state, orders), number
