"""A coordinator whose privacy noise derives from the round, so that runs can be compared."""

from __future__ import annotations

from functools import partial

import edgefed.coordinator.process.service
from edgefed.algorithms.composed.registry import make
from edgefed.cli.main import app
from edgefed.terminal.console import start
from tests.support.private_randomness import of_round

if __name__ == "__main__":
    vars(edgefed.coordinator.process.service)["make"] = partial(make, randomness=of_round)
    start(app)
