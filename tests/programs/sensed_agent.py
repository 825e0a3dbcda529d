"""An agent whose sensors and wall clock a test sets: a folder has its sysfs, and a file its time.

It looks at its owner's limits often.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from device_agent.commands import launch
from device_agent.commands.cli import main
from device_agent.limits import training_policy
from device_agent.reports.telemetry import Sensors
from device_agent.tasks import training_process
from edgefed.process.clock import SystemClock

VARIABLE = "SENSED_BOARD"
"""Names the folder."""

NOW = "now"
"""Its file with the time; without one it is that of the machine."""


SLOW = "slow"
"""Its file while whose existence a step takes a tenth of a second."""


class Board:
    """The readings and the time of an agent.

    Args:
        root: the folder; it exists.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.variables = {VARIABLE: str(root), "TZ": "UTC"}

    def write(self, path: str, text: str) -> None:
        """Set a file of the tree, at once."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_suffix(".new")
        beside.write_text(text)
        beside.replace(file)

    def slow_down(self, on: bool = True) -> None:
        """Have steps take long, or not."""
        (self.root / SLOW).touch() if on else (self.root / SLOW).unlink()

    def set_time(self, text: str) -> None:
        """Set the wall clock, in UTC; it stands still."""
        self.write(NOW, f"{text}+00:00")


class _Clock(SystemClock):
    """The wall clock of a file."""

    def now(self) -> datetime:
        file = Path(os.environ[VARIABLE], NOW)
        return datetime.fromisoformat(file.read_text()) if file.exists() else super().now()


if __name__ == "__main__":
    vars(training_policy)["LOOK_EVERY"] = 0.1
    vars(training_process)["MODULE"] = "tests.programs.sensed_training"
    vars(launch)["SystemClock"] = _Clock
    vars(launch)["Sensors"] = lambda gpus: Sensors(Path(os.environ[VARIABLE]))
    main()
