"""The training process of ``seeded_agent``: privacy noise is drawn from a task's seed."""

from __future__ import annotations

import sys
from functools import partial

from device_agent.tasks import training_child
from edgefed.worker.worker import Worker
from tests.programs.seeded_agent import from_seed


def run(socket: int) -> None:
    """Do the tasks that come through a socket."""
    vars(training_child)["Worker"] = partial(Worker, private_randomness=from_seed)
    training_child.run(socket)


if __name__ == "__main__":
    run(int(sys.argv[1]))
