"""The request that an order key sends in the current state, or why it is not possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgefed.events.base.snapshot import RunView, Snapshot
from edgefed.tui.keys.keymap import OWN_KEYS, Keymap
from edgefed.tui.state.interfaces import Control
from edgefed.tui.state.run_commands import OWN_COMMANDS, RunCommands, steps_text

OrderName = Literal["pause", "resume", "step", "finish", "abort"]
OrderKey = Literal["pause", "step", "finish", "abort"]

ENDED = ("finished", "aborted", "failed")
"""States of a run that take no more orders."""

RESUMABLE = ("pausing", "paused")
"""States of a run in which the key for pausing resumes."""

REPLAYED = "This is a replay: it takes no orders."
READ_ONLY = "This dashboard is read-only: it watches and asks for nothing."

FINISH = (
    "It completes its round, or the next one if it is between rounds,\n"
    "and keeps the model. A paused run goes on until then."
)
"""The consequence of finishing a run, shown before it is ordered."""

ASKED: dict[OrderName, str] = {
    "pause": "Pausing {run}: it takes effect after the open exchange.",
    "resume": "Resuming {run}.",
    "step": "{run} runs one exchange, all its phases, and pauses again.",
    "finish": "{run} ends after its round and keeps the model.",
    "abort": "Aborting {run}: devices are told to stop.",
}
"""The messages after the coordinator took an order."""


@dataclass(frozen=True)
class CoordinatorOrder:
    """An order for the coordinator."""

    action: OrderName
    run: str

    def taken(self) -> str:
        """Return the message after it was taken."""
        return ASKED[self.action].format(run=self.run)

    @property
    def failed(self) -> str:
        """The heading of an error that is not EdgeFed's own."""
        return f"Could not {self.action} {self.run}."


def order_for(
    key: OrderKey,
    snapshot: Snapshot | None,
    keys: Keymap = OWN_KEYS,
    commands: RunCommands = OWN_COMMANDS,
) -> CoordinatorOrder | str:
    """Return the order of a key for a run in its present state, or why there is none."""
    run = snapshot.run if snapshot else None
    if snapshot is None or run is None:
        return commands.no_run
    if run.status in ENDED:
        steps = commands.next_steps(run.run, run.status, snapshot.finished_rounds)
        return f"{run.run} is {run.status}.\n{steps_text(steps)}"
    if key == "pause" and run.status in RESUMABLE:
        return CoordinatorOrder("resume", run.run)
    if key == "step" and run.status not in RESUMABLE:
        pause = keys.label("run.pause")
        return f"{run.run} is {run.status}: pause it first ({pause}), then step."
    if key == "finish" and run.status == "finishing":
        return f"{run.run} is finishing already."
    return CoordinatorOrder(key, run.run)


def give(control: Control, order: CoordinatorOrder) -> str:
    """Give an order and wait until it is taken; return the message for the user.

    Raises:
        EdgeFedError: it was refused, or there was no answer.
    """
    control.order(order.action, order.run)
    return order.taken()


def not_resumable(run: str, status: str) -> str:
    """Return why a run of the list cannot be resumed; empty if it can."""
    if status in ("aborted", "failed", *RESUMABLE):
        return ""
    return f"{run} is {status}: only a run that was aborted, has failed or is paused goes on."


def takes_orders(run: RunView | None) -> bool:
    """Return whether to show the keys of a run; without a run they explain how to start one."""
    return run is None or run.status not in ENDED
