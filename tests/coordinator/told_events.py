"""What the events of a run of the tests make: its event log, and a snapshot."""

from __future__ import annotations

from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from tests.run_fixture import World

FIRST = Snapshot(fleet="tests")


def logged(world: World) -> None:
    """Write the events of the run where its journal writes them."""
    lines = "".join(f"{event.line()}\n" for event in world.events)
    (world.store().run_folder(world.run) / "events.jsonl").write_text(lines)


def snapshot_of(world: World) -> Snapshot:
    """Return the snapshot after the events."""
    builder = SnapshotBuilder(FIRST)
    for event in world.events:
        builder.apply(event)
    return builder.snapshot()
