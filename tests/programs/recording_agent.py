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
from device_agent.tasks import training_process
from device_agent.tasks.device_store import DeviceStore
from edgefed.wire.messages import Reply

VARIABLE = "TRAININGS"


def record(what: str, exchange: str, process: int | None = None) -> None:
    """Append a line about an agent's process, which outlives a SIGKILL that comes after it."""
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, f"{what} {process or os.getpid()} {exchange}\n".encode())
    os.close(file)


class RecordingStore(DeviceStore):
    """Records which replies are kept."""

    def commit(
        self, reply: Reply, blobs: Mapping[str, bytes], *arguments: Any, **named: Any
    ) -> None:
        super().commit(reply, blobs, *arguments, **named)
        record("kept", reply.exchange)


def run() -> None:
    """Run the agent with the parts that record."""
    vars(device_agent.commands.launch)["DeviceStore"] = RecordingStore
    vars(training_process)["MODULE"] = "tests.programs.recording_training"
    main()


if __name__ == "__main__":
    run()
