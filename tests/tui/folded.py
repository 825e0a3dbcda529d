"""Snapshots that real events make, for tests of screens."""

from __future__ import annotations

from typing import Any

from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from tests.tui.samples import ago

RUN = "r-1"


def happened(kind: EventKind, **fields: Any) -> Event:
    """Return an event of a moment ago."""
    return Event(time=ago(1), kind=kind, fields=fields)


def run_of(*class_names: str, algorithm: str = "fedavg") -> Event:
    """Return the beginning of a run."""
    return happened(
        "run", run=RUN, status="running", algorithm=algorithm, rounds=9, class_names=class_names
    )


def folded(*events: Event) -> Snapshot:
    """Return the snapshot after some events."""
    builder = SnapshotBuilder(Snapshot(fleet="plant-a"))
    for event in events:
        builder.apply(event)
    return builder.snapshot()


def evaluated(device: str, accuracy: float, number: int = 4) -> Event:
    """Return a device's answer to a test."""
    return happened(
        "reply", round=number, exchange="e", device=device, outcome="accepted",
        question="evaluate", seconds=1.0, accepted=1, accuracy=accuracy,
    )  # fmt: skip
