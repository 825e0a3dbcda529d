"""The state that a device's store gives to a training process, as the process reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.training_child import StoredArrays
from device_agent.tasks.training_messages import TrainingOrder
from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import PersistentState


def order_of(store: DeviceStore, run: str = "r-1") -> TrainingOrder:
    """Return the order for a task of a run."""
    fields: dict[str, Any] = {"run": run}
    return store.order(Task.model_construct(**fields))


def private_state(store: DeviceStore, run: str) -> Mapping[str, Tensors]:
    """Return the private state of a run."""
    return StoredArrays(store.folder / "blobs").private(order_of(store, run).private)


def persistent_state(store: DeviceStore) -> PersistentState:
    """Return the state across runs."""
    return StoredArrays(store.folder / "blobs").persistent(order_of(store))
