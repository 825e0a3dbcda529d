"""The items of a feed of snapshots, for the dashboard and for commands that follow a run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgefed.events.base.snapshot import Snapshot


@dataclass(frozen=True)
class FeedUpdate:
    """The newest snapshot, and whether it is fresh.

    Attributes:
        snapshot: None before the first one.
        broker: whether the broker answers.
        coordinator: whether the coordinator is online.
        problem: one line for people, empty without one.
        since: UTC time from which the numbers are stale, when there is a problem.
    """

    snapshot: Snapshot | None
    broker: bool
    coordinator: bool
    problem: str = ""
    since: str = ""

    def is_news_after(self, before: FeedUpdate) -> bool:
        """Return whether it contains any news over the update before it."""
        other = self.snapshot is not before.snapshot  # an equal one is the same object
        return other or replace(self, snapshot=None) != replace(before, snapshot=None)
