"""A pool in a process to be killed: two workers have long orders, and one has none any more.

It says ``ready`` on stdout and then waits.
"""

from __future__ import annotations

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
    asked, blobs = orders(3, batch_size=1000)
    list(pool.outcomes(asked, blobs.__getitem__, never))
    asked, blobs = orders(2, **LONG)
    list(pool.outcomes(asked, blobs.__getitem__, ready))


if __name__ == "__main__":
    main()
