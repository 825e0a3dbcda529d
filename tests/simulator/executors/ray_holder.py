"""A Ray cluster of two CPUs on the loopback, in a process of its own; SIGTERM ends both.

Its first line on stdout is the cluster's address.
"""

from __future__ import annotations

import signal
import sys

from edgefed.simulator.ray_cluster import OURS, cluster


def main() -> None:
    """Hold the cluster until a signal comes."""
    with cluster(OURS, workers=2) as held:
        sys.stdout.write(f"{held.ray.get_runtime_context().gcs_address}\n")
        sys.stdout.flush()
        signal.pause()


if __name__ == "__main__":
    main()
