"""Recipes, shards and orders that take a moment, for tests of who does them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.simulator.executors import Executor, Maker, WorkOrder
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.process_pool import ProcessPool
from edgefed.simulator.run import Simulation, SimulationResult
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import digest, pack
from edgefed.worker.private_randomness import PrivateRandomness
from tests.complete_task import complete
from tests.run_fixture import Ticking

SHAPE, CLASSES = (6,), 3
MODEL = {"name": "mlp", "hidden": [8]}

LONG, MANY = {"epochs": 1000, "batch_size": 1}, 10_000
"""Training and number of samples of an order that takes an hour."""


def recipe(workers: int) -> Recipe:
    return Recipe.model_validate(
        {
            "model": {"name": "mlp", "hidden": [16]},
            "data": {"limit": 120, "classes_per_device": 4},
            "rounds": {"count": 3},
            "wire": {"uplink": "int8", "downlink": "int8"},
            "simulation": {"devices": 5, "workers": workers, "holdout": 0.2},
            "evaluation": {"on": "both"},
        }
    )


def shards(count: int, samples: int = 10) -> list[Shard]:
    rng = np.random.default_rng(1)
    empty = Samples(np.zeros((0, *SHAPE), np.float32), np.zeros(0, np.int64))
    made = []
    for number in range(count):
        inputs = rng.standard_normal((samples + number, *SHAPE), dtype=np.float32)
        made.append(
            Shard(Samples(inputs, rng.integers(0, CLASSES, samples + number)), empty, CLASSES)
        )
    return made


def orders(count: int, **training: int) -> tuple[list[WorkOrder], dict[str, bytes]]:
    weights = pack(build(ModelSection.model_validate(MODEL), SHAPE, CLASSES, 3).weights())
    ref = BlobRef(digest=digest(weights), size=len(weights))
    changes = {"epochs": 2, **training}
    made = [WorkOrder(number, task(number, ref, training=changes), {}) for number in range(count)]
    return made, {ref.digest: weights}


def task(number: int, ref: BlobRef, **changes: Any) -> Task:
    """Return a training task of a device, with some fields changed."""
    values: dict[str, Any] = {
        "run": "r-1",
        "exchange": "r-1-0",
        "index": 0,
        "round": 1,
        "question": "fit",
        "device": f"device-{number:02d}",
        "deadline": 60.0,
        "seed": number,
        "algorithm": "fedavg",
        "settings": {},
        "model": MODEL,
        "shape": SHAPE,
        "classes": CLASSES,
        "training": {},
        "codec": "bf16",
        "samples": 10,
        "blobs": {"weights": ref},
        "params": {},
    }
    return Task(**complete({**values, **changes}))


def write_samples(path: Path, train: Samples, test: Samples, **more: Any) -> Path:
    """Write the parts of a data set to an NPZ file."""
    parts = {"x_train": train.inputs, "y_train": train.targets}
    parts |= {"x_test": test.inputs, "y_test": test.targets, **more}
    np.savez(path, **parts)  # type: ignore[arg-type]
    return path


def finished(
    chosen: Recipe, folder: Path, data: Path | None = None, **given: Any
) -> SimulationResult:
    """Return the result of a simulation, which does not fail."""
    result = Simulation(chosen, folder, Ticking(), data, **given).run()
    assert result.record.status == "finished", result.record.reason
    return result


def with_notes(chosen: Recipe, folder: Path) -> tuple[SimulationResult, list[str]]:
    """Return the result of a simulation, and what was said of it."""
    simulation, said = Simulation(chosen, folder, Ticking()), list[str]()
    simulation.journal.listen(
        lambda event, _: said.append(event.fields["text"]) if event.kind == "note" else None
    )
    result = simulation.run()
    assert result.record.status == "finished", result.record.reason
    return result, said


def made_by(executor: Callable[[Sequence[Shard]], Executor]) -> Maker:
    """Return what makes a simulation's executor of its shards alone."""
    return lambda dealt, section, tell: (executor(dealt), "")


def rows(result: SimulationResult) -> list[dict[str, Any]]:
    """Return what each round measured."""
    return lines(result.folder / "metrics.jsonl")


def events(result: SimulationResult, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind."""
    return [each for each in lines(result.folder / "events.jsonl") if each["kind"] == kind]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def never() -> bool:
    return False


def process_pool(data: Sequence[Shard], count: int, *randomness: PrivateRandomness) -> ProcessPool:
    """Return a pool, or skip the test: autograd's threads may keep forks from training.

    Other tests of this process may have started them; ``forked_autograd`` tells more.
    """
    if not forks_can_train():
        pytest.skip("autograd has threads in this process")
    return ProcessPool(data, count, *randomness)
