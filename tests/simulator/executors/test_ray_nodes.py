"""Simulations on two Ray nodes: data reach an object store once, and a node that dies."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from edgefed.config.recipes.recipe import Recipe, SimulationSection
from edgefed.events.base.model import Event
from edgefed.process.clock import SystemClock
from edgefed.simulator.executors import Sequential
from edgefed.simulator.ray_executor import RayExecutor, on_ray
from edgefed.simulator.run import Simulation
from tests.simulator.work import never, orders, recipe, shards

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


@contextmanager
def two_nodes() -> Iterator[tuple[Any, Any]]:
    """Run a cluster of two nodes with a CPU each; yield it with the node without the head."""
    from ray.cluster_utils import Cluster

    own = {"num_cpus": 1, "include_dashboard": False}
    with mock.patch.dict(os.environ, QUIET):
        cluster: Any = Cluster(initialize_head=True, head_node_args=own)
        try:
            other = cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            yield cluster, other
        finally:
            cluster.shutdown()


def test_data_reach_each_node_once_and_a_killed_node_changes_no_bit(tmp_path: Path) -> None:
    notes: list[str] = []
    with two_nodes() as (cluster, other), on_ray(cluster.address) as maker:
        from ray.experimental import get_object_locations

        data, (asked, blobs) = shards(8, samples=2000), orders(8, epochs=1)
        executor, how = maker(data, SimulationSection(), notes.append)
        assert "2 machines, 2 CPUs" in how
        assert isinstance(executor, RayExecutor)
        done = {o.device: out for o, out in executor.outcomes(asked, blobs.__getitem__, never)}
        alone = Sequential(data).outcomes(asked, blobs.__getitem__, never)
        assert {o.device: out.blobs for o, out in alone} == {d: o.blobs for d, o in done.items()}
        (crate,) = get_object_locations(executor._crates).values()
        assert len(set(crate["node_ids"])) == len(crate["node_ids"]) == 2
        executor.close()

        simulation = Simulation(recipe_of_six(0), tmp_path / "ray", SystemClock(), executors=maker)
        killed: list[str] = []

        def hear(event: Event, number: int) -> None:
            del number
            if event.kind == "note":
                notes.append(event.fields["text"])
            if event.kind == "device" and event.fields.get("state") == "done" and not killed:
                killed.append(event.fields["device"])
                cluster.remove_node(other, allow_graceful=False)

        simulation.journal.listen(hear)
        record = simulation.run().record
    assert record.status == "finished", record.reason
    assert killed
    assert any(text.startswith("an actor died; device-0") for text in notes)
    alone_record = Simulation(recipe_of_six(1), tmp_path / "alone", SystemClock()).run().record
    assert record.weights_digest == alone_record.weights_digest


def recipe_of_six(workers: int) -> Recipe:
    """Return a recipe whose tasks take long enough to be interrupted."""
    given = recipe(workers)
    training = given.training.model_copy(update={"epochs": 30})
    rounds = given.rounds.model_copy(update={"count": 6})
    return given.model_copy(update={"training": training, "rounds": rounds})
