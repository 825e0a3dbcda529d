"""The state of a run's label bounties: the coordinator's run, or a run of this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgefed.cli.common.context import Globals
    from edgefed.events.base.snapshot import Snapshot

_KINDS = ("run", "device", "roster", "labels", "table")
"""Kinds of events that the view depends on."""


@dataclass(frozen=True)
class LabelView:
    """The data of the ``label`` commands.

    Attributes:
        snapshot: the fleet, with the run's bounties.
        record: the run, as in ``run show``; None without a run.
    """

    snapshot: Snapshot
    record: dict[str, Any] | None

    @property
    def why_none(self) -> str:
        """Why there are no bounties, in one line."""
        if self.record is None:
            return "No run yet. Start one: edgefed run start"
        run, labels = self.record["run"], self.record["recipe"].get("labels", {})
        if not labels.get("count") and not labels.get("supplement"):
            return f"Run {run} gives no supplements: its recipe's [labels] table asks for none."
        if self.record["status"] in ("finished", "failed", "aborted"):
            return f"Run {run} is {self.record['status']}; no device asked for a label in it."
        return f"No device has asked for a label in run {run} yet."

    def name(self, label: int) -> str:
        """Return the name of a label, or its number where the classes have no names."""
        from edgefed.events.base.class_names import name_of

        return name_of(label, self.snapshot.run.class_names if self.snapshot.run else ())


def label_view(options: Globals, run: str, local: bool) -> LabelView:
    """Return the view of a run; the coordinator has that of its current or last run only.

    Raises:
        UnknownNameError: there is no such run, or the coordinator has another one.
        UnreachableError: no coordinator answers.
    """
    from edgefed.cli.common.run_folders import is_folder

    local = local or is_folder(run)
    return _local(options, run) if local else _known(options, run)


def _local(options: Globals, run: str) -> LabelView:
    from edgefed.cli.common.local_runs import local_run
    from edgefed.events.base.log import Log
    from edgefed.events.base.model import Event
    from edgefed.events.base.snapshot import Snapshot
    from edgefed.events.state.fold import SnapshotBuilder
    from edgefed.report.run_data import EVENTS

    record = local_run(options.settings().value.state, run)
    builder = SnapshotBuilder(Snapshot())
    for event in Log(Path(record["folder"]) / EVENTS).events():
        if event.get("kind") in _KINDS:
            with suppress(KeyError, TypeError, ValueError, AttributeError):  # not understood
                builder.apply(Event.from_flat(event))
    return LabelView(builder.snapshot(), record)


def _known(options: Globals, run: str) -> LabelView:
    from edgefed.errors import UnknownNameError
    from edgefed.events.base.snapshot import Snapshot

    with options.connected("edgefed label bounties") as coordinator:
        snapshot = Snapshot.model_validate(coordinator.ask("snapshot")["snapshot"])
        shown = snapshot.run.run if snapshot.run else ""
        named = run or shown
        record = coordinator.ask("run.show", run=named) if named else None
        if record is not None and record["run"] != shown:
            raise UnknownNameError(
                f"The coordinator shows the labels of its current or last run only, {shown}.",
                code="run.unknown",
                hint=f"on the coordinator's machine: edgefed label bounties {run} --local",
            )
    return LabelView(snapshot, record)
