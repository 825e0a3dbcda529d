"""An agent that draws its mixes from a task's seed and records what it trains.

It appends a line to the file that ``TRAININGS`` names: ``begun``, ``ended`` or ``kept``, its
process id and the exchange. A line is written before a training begins, when it has come to an
outcome, and when the reply is in the device's store.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import device_agent.commands.launch
from device_agent.commands.cli import main
from device_agent.tasks.device_store import DeviceStore
from edgefed.wire.messages import Reply, Task
from edgefed.worker.replies import Outcome
from edgefed.worker.worker import Worker
from tests.seeded_agent import from_seed

VARIABLE = "TRAININGS"


def record(what: str, exchange: str) -> None:
    """Append a line, which outlives a SIGKILL that comes after it."""
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{what} {os.getpid()} {exchange}\n".encode())
    os.close(file)


class RecordingWorker(Worker):
    """Records the beginning and the end of each task's work."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "private_randomness": from_seed})

    def work(self, task: Task, *arguments: Any, **named: Any) -> Outcome:
        record("begun", task.exchange)
        outcome = super().work(task, *arguments, **named)
        record("ended", task.exchange)
        return outcome


class RecordingStore(DeviceStore):
    """Records which replies are kept."""

    def commit(
        self, reply: Reply, blobs: Mapping[str, bytes], *arguments: Any, **named: Any
    ) -> None:
        super().commit(reply, blobs, *arguments, **named)
        record("kept", reply.exchange)


def run() -> None:
    """Run the agent with the parts that record."""
    vars(device_agent.commands.launch).update(Worker=RecordingWorker, DeviceStore=RecordingStore)
    main()


if __name__ == "__main__":
    run()
