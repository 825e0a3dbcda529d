"""The training process of ``sensed_agent``: its steps are slow while a test wants them so."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from device_agent.tasks import training_child
from tests.programs.sensed_agent import SLOW, VARIABLE


def run(socket: int) -> None:
    """Do the tasks that come through a socket."""
    agent, slow = training_child._Agent, Path(os.environ[VARIABLE], SLOW)
    beat = agent.beat

    def slow_beat(self: training_child._Agent) -> bool:
        if slow.exists():
            time.sleep(0.1)
        return beat(self)

    vars(training_child)["_Agent"] = type("_Agent", (agent,), {"beat": slow_beat})
    training_child.run(socket)


if __name__ == "__main__":
    run(int(sys.argv[1]))
