"""Problems between the dashboard and the fleet, with advice for each."""

from __future__ import annotations

from edgefed.events.state.feed_update import FeedUpdate
from edgefed.tui.look.text_format import clean


def reason(update: FeedUpdate) -> str:
    """Return the problem in one line, empty if there is none."""
    if update.problem:
        return clean(update.problem)
    if not update.broker:
        return "Broker unreachable; trying again."
    return "" if update.coordinator else "The coordinator does not answer; devices keep their work."


def next_step(update: FeedUpdate) -> str:
    """Return advice for the user."""
    if not update.broker:
        return "Find out why: edgefed doctor"
    if "edgefed coordinator" in update.problem:  # which says already how to start it
        return "If that is not the fleet's name: edgefed --fleet NAME ui"
    return "Next step: edgefed doctor" if update.coordinator else "Start it: edgefed coordinator"
