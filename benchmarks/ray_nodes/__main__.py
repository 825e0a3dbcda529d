"""The cost of a simulation by the number of Ray nodes, and the bytes that each node receives.

The nodes have separate object stores and one CPU each, all on this machine, so more nodes than
cores show the overhead and no speed. Digests must be equal.

    python -m benchmarks.ray_nodes [--nodes 1 2 4] [--rounds 5] [--devices 20] [--json]
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.shared.harness import parser, show
from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.data.base.types import Shard
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Executor, Maker
from edgefed.simulator.ray_executor import RayExecutor, on_ray
from edgefed.simulator.run import Simulation

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def plan(devices: int, rounds: int) -> Recipe:
    """Return a run of a small convolutional network on digits, one worker without Ray."""
    return Recipe.model_validate(
        {
            "model": {"name": "cnn"},
            "training": {"epochs": 2},
            "rounds": {"count": rounds},
            "evaluation": {"every": rounds},
            "simulation": {"devices": devices, "workers": 1},
        }
    )


@contextmanager
def nodes(count: int) -> Iterator[str]:
    """Run a cluster of so many nodes with a CPU each, and yield its address."""
    from ray.cluster_utils import Cluster

    own = {"num_cpus": 1, "include_dashboard": False}
    cluster: Any = Cluster(initialize_head=True, head_node_args=own)
    try:
        for _ in range(count - 1):
            cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        yield cluster.address
    finally:
        cluster.shutdown()


def measured(recipe: Recipe, maker: Maker | None, count: int) -> dict[str, Any]:
    """Return the figures of a run; ``count`` 0 is one process without Ray."""
    kept: list[RayExecutor] = []
    rounds: list[float] = []
    copies: list[dict[str, Any]] = []

    def keep(
        shards: Sequence[Shard], settings: SimulationSection, tell: Callable[[str], None]
    ) -> tuple[Executor, str]:
        assert maker is not None
        executor, how = maker(shards, settings.model_copy(update={"workers": 0}), tell)
        assert isinstance(executor, RayExecutor)
        kept.append(executor)
        return executor, how

    def hear(event: Event, _: int) -> None:
        if event.kind == "scored":
            rounds.append(time.monotonic())
            if len(rounds) == recipe.rounds.count:  # the executor is closed after it
                copies.extend(place for executor in kept for place in locations(executor))

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        simulation = Simulation(
            recipe, Path(folder), SystemClock(), executors=keep if maker else None
        )
        simulation.journal.listen(hear)
        record = simulation.run().record
    spans = [late - early for early, late in pairwise(rounds)]
    return {
        "nodes": count,
        "first round s": rounds[0] - began,
        "round s": statistics.median(spans),
        "shards mb": sum(place["object_size"] for place in copies) / 1e6,
        "copies a node": max((len(place["node_ids"]) for place in copies), default=0)
        / (count or 1),
        "payload kb a node and round": record.bytes_down
        / len(rounds)
        / recipe.simulation.devices
        / 1e3,
        "answers kb a round": record.bytes_up / len(rounds) / 1e3,
        "digest": record.weights_digest[:12],
    }


def locations(executor: RayExecutor) -> list[dict[str, Any]]:
    """Return sizes and nodes of the shards in Ray's object stores."""
    from ray.experimental import get_object_locations

    return list(get_object_locations(executor._crates).values())


def main() -> None:
    """Measure one process, and clusters of growing size."""
    made = parser("ray_nodes", __doc__, rounds=5, devices=20)
    made.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    options = made.parse_args()
    os.environ.update(QUIET)
    recipe = plan(options.devices, options.rounds)
    rows = [measured(recipe, None, 0)]
    for count in options.nodes:
        with nodes(count) as address, on_ray(address) as maker:
            rows.append(measured(recipe, maker, count))
    if len({row["digest"] for row in rows}) > 1:
        raise SystemExit("digests differ")
    show(options, rows)


if __name__ == "__main__":
    main()
