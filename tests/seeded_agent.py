"""An agent that draws its mixes from a task's seed, so that runs can be compared bit for bit.

Only a Python constructor takes such a generator; no setting or message does.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import device_agent.commands.launch
from device_agent.commands.cli import main
from edgefed.wire.messages import Task
from edgefed.worker.worker import Worker


def from_seed(task: Task) -> np.random.Generator:
    """Return the generator of a task's privacy noise, which here anybody can derive."""
    return np.random.default_rng(task.seed)


if __name__ == "__main__":
    vars(device_agent.commands.launch)["Worker"] = partial(Worker, private_randomness=from_seed)
    main()
