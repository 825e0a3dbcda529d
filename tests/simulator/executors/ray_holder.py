"""A Ray cluster of two nodes with a CPU each, in a process of its own; SIGTERM ends all.

Its first line on stdout is the cluster's address, and the process id of the node without the head.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_worker_niceness": "0",  # else other tests take the cores from actors that start
    "RAY_health_check_period_ms": "300",  # so that a node's death is soon known
}


def main() -> None:
    """Hold the cluster until a signal comes."""
    os.environ |= SETTINGS
    from ray.cluster_utils import Cluster

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit())
    less = {"include_dashboard": False, "no_monitor": True, "include_log_monitor": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **less})
    try:
        other = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        pid = other.all_processes["raylet"][0].process.pid
        sys.stdout.write(f"{cluster.address} {pid}\n")
        sys.stdout.flush()
        signal.pause()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
