"""A coordinator whose privacy noise derives from the round, so that runs can be compared."""

from __future__ import annotations

from functools import partial

import edgefed.coordinator.service
from edgefed.algorithms.registry import make
from edgefed.cli.main import app
from edgefed.console import start
from tests.private_randomness import of_round

if __name__ == "__main__":
    vars(edgefed.coordinator.service)["make"] = partial(make, randomness=of_round)
    start(app)
