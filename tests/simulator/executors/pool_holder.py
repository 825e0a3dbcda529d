"""A pool of three workers in a process to be killed: ``busy`` with long orders, or ``idle``.

It says ``ready`` on stdout and then waits.
"""

from __future__ import annotations

import signal
import sys

from edgefed.simulator.process_pool import ProcessPool
from tests.simulator.work import LONG, MANY, never, orders, shards


def ready() -> bool:
    """Say so, and do not stop."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return False


def main() -> None:
    """Start the workers and wait."""
    pool = ProcessPool(shards(3, MANY), 3)
    if sys.argv[1] == "busy":
        asked, blobs = orders(3, **LONG)
        list(pool.outcomes(asked, blobs.__getitem__, ready))
    asked, blobs = orders(3, batch_size=1000)
    list(pool.outcomes(asked, blobs.__getitem__, never))
    ready()
    signal.pause()


if __name__ == "__main__":
    main()
