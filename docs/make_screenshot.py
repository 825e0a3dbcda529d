"""Draw docs/dashboard.svg: the real dashboard during a simulated run of the demo.

python docs/make_screenshot.py [FILE]
"""

from __future__ import annotations

import sys
import tempfile
from datetime import datetime
from pathlib import Path

from edgefed.cli.fleet.demo import RECIPE
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import load_recipe
from edgefed.errors import EdgeFedError
from edgefed.process.clock import SystemClock
from edgefed.simulator.run import Simulation
from edgefed.tui.feeds.recorded_feed import RecordedFeed, last_of_events, read_events
from edgefed.tui.screenshot import save_picture

PICTURE = Path(__file__).with_name("dashboard.svg")
SIZE = (120, 36)
STOP_ROUND = 25
"""The picture shows the run in the round after this one."""

STOP_REPLIES = 5
"""Answers of that round which have come."""


class StoppedClock:
    """Time that stands still, at the moment of the picture."""

    def __init__(self, moment: str) -> None:
        self._moment = datetime.fromisoformat(moment.replace("Z", "+00:00"))

    def monotonic(self) -> float:
        """Return 0."""
        return 0.0

    def now(self) -> datetime:
        """Return the moment."""
        return self._moment


class NoOrders:
    """Stands for a coordinator, so that the picture shows the keys of those who may give orders."""

    def order(self, action: str, run: str) -> None:
        """Refuse: nobody is there."""
        raise EdgeFedError(f"{action} of {run}: this is a picture.")


def simulated_events(folder: Path) -> Path:
    """Run the demo's recipe on virtual devices and return its event log."""
    recipe = load_recipe(RECIPE, Surroundings({}, folder, no_config=True)).value
    return Simulation(recipe, folder, SystemClock()).run().folder / "events.jsonl"


def cut(log: Path, path: Path, run: str) -> Path:
    """Write the log as it was in the middle of a round, under another run id, and return it."""
    kept, scored, replies = [], False, 0
    for line, event in zip(log.read_text().splitlines(), read_events(log), strict=True):
        kept.append(line)
        scored = scored or (event.kind == "scored" and event.fields["round"] == STOP_ROUND)
        replies += scored and event.kind == "reply"
        if replies == STOP_REPLIES:
            break
    else:
        raise ValueError("the run ended before the moment of the picture")
    told = "\n".join(kept) + "\n"
    first = next(event.fields["run"] for event in read_events(log) if event.kind == "run")
    path.write_text(told.replace(str(first), run))
    return path


def draw(path: Path) -> None:
    """Draw the picture into ``path``."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        log = cut(simulated_events(folder), folder / "cut.jsonl", "r-0001-demo")
        clock = StoppedClock(read_events(log)[-1].time)
        feed = RecordedFeed([(0.0, last_of_events(log, "demo"))], clock, play=False)
        save_picture(feed, SIZE, path, clock=clock, control=NoOrders())


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE)
