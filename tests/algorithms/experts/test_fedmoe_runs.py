"""Whole runs of a mixture of experts, with store, engine, codecs and virtual devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.experts.expert_records import mixtures_of, role
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage.stored_runs import Checkpoint
from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, World, recipe, samples, shards

Made = Callable[..., World]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Made]:
    made: list[World] = []

    def begin(plan: Recipe, parts: Any = None) -> World:
        given = shards((5, 9, 6, 4), tested=3) if parts is None else parts
        made.append(World(tmp_path / f"world-{len(made)}", plan, given))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def plan(count: int = 3, number: int = 3, **sections: Any) -> Recipe:
    """Return a recipe of so many experts and rounds."""
    own = {"name": "fedmoe", "experts": count, **sections.pop("algorithm", {})}
    rounds = {"count": number, **sections.pop("rounds", {})}
    return recipe(algorithm=own, rounds=rounds, **sections)


def finished(world: World) -> tuple[TamperedFleet, Checkpoint]:
    fleet = TamperedFleet(world.devices)
    record = world.engine(fleet).run()
    assert record.status == "finished", record.reason
    found = world.stores[0].checkpoint(world.run)
    assert found is not None
    return fleet, found


def test_coded_experts_that_are_sent_now_and_then_arrive(world: Made) -> None:
    """Devices miss differences of experts that they were not sent, and catch up."""
    settings = {"most_experts": 1, "table_learning_rate": 0.3}
    training = {"learning_rate": 0.3, "batch_size": 4}
    rounds = {"cohort": 2, "min_devices": 2}
    sections: dict[str, Any] = {"algorithm": settings, "training": training, "rounds": rounds}
    coded, exact = world(plan(3, 8, wire=COARSE, **sections)), world(plan(3, 8, **sections))
    fleet, checkpoint = finished(coded)
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}
    plain = finished(exact)[1].state
    for expert in range(3):
        for name, array in checkpoint.state.groups[role(expert)].items():
            other = plain.groups[role(expert)][name]
            assert np.abs(array - other).max() < 0.15
    repeated = world(plan(3, 8, wire=COARSE, **sections))
    finished(repeated)
    assert repeated.record.weights_digest == coded.record.weights_digest


def test_devices_are_scored_by_mode_and_weigh_the_same(world: Made) -> None:
    parts = [Shard(samples(6, n), samples(3 + 9 * n, 50 + n), 3) for n in range(3)]
    here = world(plan(2, 1, rounds={"cohort": 1, "test_cohort": 3, "min_devices": 1}), parts)
    finished(here)
    (row,) = here.rows
    assert (row["devices_known"], row["devices_fitted"]) == (1, 2)
    for name in ("accuracy", "loss"):
        mean = (row[f"{name}_known"] + 2 * row[f"{name}_fitted"]) / 3
        assert row[f"device_{name}"] == pytest.approx(mean)
        assert row[name] == row[f"device_{name}"]


def with_site(part: Samples) -> Samples:
    return Samples(part.inputs, part.targets, {"site": np.arange(len(part)) % 2})


def test_a_device_without_the_column_is_told_and_the_run_goes_on(world: Made) -> None:
    parts = [Shard(with_site(samples(6, n)), with_site(samples(3, 50 + n)), 3) for n in range(3)]
    lacking = Shard(samples(6, 8), samples(3, 60), 3)
    settings = {"condition": "site", "condition_values": 2}
    here = world(plan(2, 2, algorithm=settings, rounds={"quorum": 0.5}), [*parts, lacking])
    fleet, checkpoint = finished(here)
    assert declined(fleet) == {
        (
            "device-03",
            "The samples of this device have no column 'site', which the run's experts are"
            " conditioned on; columns: none.  [data.column]; try: add the column to the device's"
            " data, or choose another condition",
        )
    }
    assert checkpoint.state.round == 2
    assert mixtures_of(checkpoint.state).keys() == {"device-00", "device-01", "device-02"}


def declined(fleet: TamperedFleet) -> set[tuple[str, str]]:
    return {(device, why) for device, outcome, why in fleet.verdicts if outcome != "accepted"}
