"""Runs that train a part of their model: every method that averages, resumed and evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from edgefed.algorithms.interface.exchange import FROZEN
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.rounds.run_controls import RunControls
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import RecipeError
from edgefed.events.base.model import Event
from edgefed.learn.base.types import Tensors
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import Simulation
from tests.run_fixture import EXACT, Ticking, World
from tests.run_fixture import recipe as small_recipe
from tests.simulator.work import finished

AVERAGING = ("fedavg", "fedmix", "ifca", "fedmoe", "ensemble")
"""The others make jobs and merge answers as one of these."""

MODEL = {"name": "mlp", "hidden": [5], "train": "head"}
FROZEN_NAMES = {"fc1.weight", "fc1.bias"}


def recipe(**sections: Any) -> Recipe:
    values: dict[str, Any] = {
        "seed": 5,
        "model": MODEL,
        "data": {"name": "digits", "limit": 200, "partition": "iid"},
        "rounds": {"count": 2},
        "training": {"learning_rate": 0.1},
        "wire": EXACT,
        "simulation": {"devices": 3, "workers": 1},
    }
    return Recipe.model_validate({**values, **sections})


def simulated(folder: Path, plan: Recipe) -> tuple[Tensors, Tensors]:
    """Return the model file's arrays, and its frozen ones."""
    place = finished(plan, folder).folder
    return load_file(place / "model.safetensors"), load_file(place / "frozen.safetensors")


@pytest.mark.parametrize("name", AVERAGING)
def test_every_method_that_averages_trains_the_head_alone(tmp_path: Path, name: str) -> None:
    arrays, frozen = simulated(tmp_path, recipe(algorithm={"name": name}))
    assert frozen.keys() == FROZEN_NAMES
    models = {key.rpartition("/")[0] for key in arrays if key.endswith("fc1.weight")}
    assert models, "the file holds complete models"
    for model in models:
        prefix = f"{model}/" if model else ""
        for each, array in frozen.items():
            assert np.array_equal(arrays[prefix + each], array)
        assert len([key for key in arrays if key.startswith(prefix)]) > len(frozen)


@pytest.mark.parametrize(("name", "model"), [("fedma", "cnn"), ("pfnm", "mlp")])
def test_methods_that_match_units_refuse_frozen_ones(tmp_path: Path, name: str, model: str) -> None:
    plan = recipe(algorithm={"name": name}, model={"name": model, "train": "head"})
    with pytest.raises(RecipeError) as caught:
        Simulation(plan, tmp_path, Ticking())
    assert caught.value.code == "model.groups"


class _Watching(LocalFleet):
    """Notes what the tasks of each exchange name."""

    seen: list[OpenExchange]

    def replies(self, exchange: OpenExchange, stop: Any) -> Iterator[Delivered]:
        self.seen.append(exchange)
        yield from super().replies(exchange, stop)


def test_every_task_names_the_same_frozen_blob_and_answers_hold_none_of_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, small_recipe(model=MODEL, wire={"downlink": "bf16", "uplink": "bf16"}))
    world.devices.__class__ = _Watching
    assert isinstance(world.devices, _Watching)
    world.devices.seen = []
    record = world.engine().run()
    assert record.status == "finished", record.reason
    tasks = [task for exchange in world.devices.seen for task in exchange.tasks]
    assert len(tasks) == 12
    assert len({task.blobs[FROZEN].digest for task in tasks}) == 1
    assert not any(task.blobs[FROZEN].patches for task in tasks), "whole, in full precision"
    roles = {name for exchange in world.devices.seen for name in exchange.reply_roles}
    assert roles == {"delta"}
    tensors = world.devices.seen[0].reply_roles["delta"].tensors
    assert tensors is not None
    assert not tensors.keys() & FROZEN_NAMES
    world.close()


def stopped_in_round_two(world: World) -> None:
    """Run, and let the process end in the second round."""
    controls = RunControls()

    def stop(event: Event) -> None:
        if event.kind == "round" and event.fields.get("round") == 2:
            controls.stop_process()

    world.engine(controls=controls, listener=stop).run()


def test_a_run_goes_on_with_the_frozen_weights_that_it_began_with(tmp_path: Path) -> None:
    """Whatever became of the file that they were read from."""
    from safetensors.numpy import save_file

    source = World(tmp_path / "source", small_recipe(model={"name": "mlp", "hidden": [5]}))
    source.engine().run()
    file = tmp_path / "weights.safetensors"
    save_file(load_file(source.folder / "runs" / source.run / "model.safetensors"), file)
    plan = small_recipe(model={**MODEL, "weights": str(file)})
    whole = World(tmp_path / "whole", plan)
    wanted = whole.engine().run().weights_digest

    broken = World(tmp_path / "broken", plan)
    stopped_in_round_two(broken)
    assert broken.record.status not in ("finished", "failed")
    file.unlink()
    resumed = broken.engine().run()
    assert (resumed.status, resumed.weights_digest) == ("finished", wanted)
    kept = load_file(broken.folder / "runs" / broken.run / "model.safetensors")
    began = load_file(source.folder / "runs" / source.run / "model.safetensors")
    assert np.array_equal(kept["fc1.weight"], began["fc1.weight"])
    for world in (source, whole, broken):
        world.close()


def test_a_damaged_file_of_frozen_weights_ends_the_run_with_one_line(tmp_path: Path) -> None:
    world = World(tmp_path, small_recipe(model=MODEL))
    stopped_in_round_two(world)
    (world.folder / "runs" / world.run / "frozen.safetensors").write_bytes(b"\0" * 20)
    record = world.engine().run()
    assert (record.status, record.error) == ("failed", "storage.damaged")
    world.close()
