"""The training process of ``tests.programs.recording_agent``: it records what it trains."""

from __future__ import annotations

import os
import sys
from typing import Any

from device_agent.tasks import training_child
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome
from edgefed.worker.worker import Worker
from tests.programs.recording_agent import record
from tests.programs.seeded_agent import from_seed


class RecordingWorker(Worker):
    """Records the beginning and the end of each task's work."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "private_randomness": from_seed})

    def work(self, task: Task, *arguments: Any, **named: Any) -> Outcome:
        record("begun", task.exchange, os.getppid())
        outcome = super().work(task, *arguments, **named)
        record("ended", task.exchange, os.getppid())
        return outcome


def run(socket: int) -> None:
    """Do the tasks that come through a socket."""
    vars(training_child)["Worker"] = RecordingWorker
    training_child.run(socket)


if __name__ == "__main__":
    run(int(sys.argv[1]))
