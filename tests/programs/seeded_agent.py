"""An agent that draws its mixes from a task's seed, so that runs can be compared bit for bit.

Only a Python constructor takes such a generator; no setting or message does.
"""

from __future__ import annotations

import numpy as np

from device_agent.commands.cli import main
from device_agent.tasks import training_process
from edgefed.wire.messages import Task


def from_seed(task: Task) -> np.random.Generator:
    """Return the generator of a task's privacy noise, which here anybody can derive."""
    return np.random.default_rng(task.seed)


if __name__ == "__main__":
    vars(training_process)["MODULE"] = "tests.programs.seeded_training"
    main()
