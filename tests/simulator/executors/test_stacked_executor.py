"""Virtual devices trained at once: whole rounds end where one device after another ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training import stacked_trainer
from edgefed.simulator.forked_autograd import forks_can_train
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.worker.trainer_cache import TrainerCache
from tests.coordinator.fleets import TamperedFleet
from tests.run_fixture import COARSE, EXACT, World, samples, shards
from tests.run_fixture import recipe as small_recipe
from tests.simulator.work import with_notes, write_samples

TOLERANCE = 1e-6
"""Of every weight after three rounds without a lossy code, as docs/laboratory.md has it."""

MODEL = {"name": "mlp", "hidden": [16]}


def write_data(path: Path, side: int, channels: int, count: int = 90) -> Path:
    train, test = (
        samples(size, seed, (channels, side, side)) for size, seed in ((count, 1), (15, 2))
    )
    return write_samples(path, train, test)


def recipe(data: Path, engine: str, **sections: Any) -> Recipe:
    """Return three rounds of five devices that hold very different numbers of samples."""
    training = {"batch_size": 6, "learning_rate": 0.05, **sections.pop("training", {})}
    simulation = {"devices": 5, "holdout": 0.2, "engine": engine, **sections.pop("simulation", {})}
    return Recipe.model_validate(
        {
            "seed": 5,
            "model": {"name": "cnn"},
            "data": {"name": "npz", "path": str(data), "partition": "quantity", "alpha": 2},
            "rounds": {"count": 3, "cohort": 4},
            "evaluation": {"on": "both"},
            "wire": EXACT,
            **sections,
            "training": training,
            "simulation": simulation,
        }
    )


def simulate(folder: Path, chosen: Recipe) -> tuple[Tensors, list[str]]:
    """Return the weights in the end, and what was said."""
    result, said = with_notes(chosen, folder)
    return load_file(result.folder / "model.safetensors"), said


def assert_near(ours: Tensors, theirs: Tensors, tolerance: float = TOLERANCE) -> None:
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=tolerance, atol=tolerance)


# Each way to train is compared in tests/learn/training/test_stacked.py; here is what orders hold.
CASES: dict[str, tuple[int, int, dict[str, Any], float]] = {
    "averaged data": (8, 1, {"algorithm": {"name": "fedmix"}}, TOLERANCE),
    "chunks": (8, 1, {"simulation": {"chunk": 3}}, TOLERANCE),
    "int8 with feedback": (8, 1, {"wire": COARSE}, 1e-3),
}


@pytest.mark.parametrize("case", CASES)
def test_three_rounds_of_unequal_devices_end_alike(case: str, tmp_path: Path) -> None:
    side, channels, sections, tolerance = CASES[case]
    data = write_data(tmp_path / "data.npz", side, channels)
    together, said = simulate(tmp_path / "a", recipe(data, "stacked", **_copied(sections)))
    alone, _ = simulate(tmp_path / "b", recipe(data, "sequential", **_copied(sections)))
    assert_near(together, alone, tolerance)
    chunk = sections.get("simulation", {}).get("chunk", 32)
    assert said[-1] == f"trains up to {chunk} devices at once on cpu"


def _copied(sections: dict[str, Any]) -> dict[str, Any]:
    return {key: dict(value) for key, value in sections.items()}


def test_the_same_run_ends_in_the_same_bits_even_with_dropout(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz", 8, 1)
    model = {"name": "mlp", "dropout": 0.5}
    first, again, other = (
        simulate(tmp_path / name, recipe(data, engine, model=model))[0]
        for name, engine in (("a", "stacked"), ("b", "stacked"), ("c", "sequential"))
    )
    assert all(np.array_equal(array, again[name]) for name, array in first.items())
    assert not all(np.array_equal(array, other[name]) for name, array in first.items())


@pytest.mark.parametrize(
    ("simulation", "words"),
    [
        ({"engine": "sequential"}, "trains one device after another on cpu"),
        ({"engine": "auto", "workers": 1}, "trains one device after another on cpu"),
        ({"engine": "auto", "workers": 2}, "trains in 2 worker processes"),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is taken where there is one")
def test_a_run_says_how_it_trains(simulation: dict[str, Any], words: str, tmp_path: Path) -> None:
    if simulation.get("workers", 1) > 1 and not forks_can_train():
        pytest.skip("other tests of this process have started autograd's threads")
    data = write_data(tmp_path / "data.npz", 8, 1)
    _, said = simulate(tmp_path / "a", recipe(data, "auto", simulation=simulation))
    assert said == [words]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_taken_by_itself_and_ends_alike(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz", 8, 1)
    together, said = simulate(tmp_path / "a", recipe(data, "auto"))
    alone, _ = simulate(tmp_path / "b", recipe(data, "sequential"))
    assert said == ["trains up to 32 devices at once on cuda:0"]
    assert_near(together, alone, 1e-4)


# -- a model that cannot be stacked ---------------------------------------------------------------


class Reader(nn.Module):
    """Reads an image row by row with torch's own LSTM."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(shape[-1], 4, batch_first=True)
        self.out = nn.Linear(4, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.lstm(inputs[:, 0])[0][:, -1])
        return scores


def test_a_model_that_cannot_be_stacked_is_trained_one_by_one_and_says_so(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data.npz", 8, 1)
    model = {"name": f"{__name__}:Reader"}
    together, said = simulate(tmp_path / "a", recipe(data, "stacked", model=model))
    alone, _ = simulate(tmp_path / "b", recipe(data, "sequential", model=model))
    assert all(np.array_equal(array, alone[name]) for name, array in together.items())
    assert len(said) == 1
    assert said[0].startswith("trains one device after another on cpu: This model cannot be")


def test_a_network_of_ours_for_texts_is_stacked() -> None:
    model = build(ModelSection(name="lstm"), (5,), 4, 1)
    assert not stacked_trainer.why_not(model)


# -- killed and resumed ---------------------------------------------------------------------------


class PowerCut(BaseException):
    """The process is gone."""


def test_killed_between_replies_and_resumed_it_ends_in_the_same_bits(tmp_path: Path) -> None:
    digests = []
    for name, cut in (("whole", False), ("cut", True)):
        here = _world(tmp_path / name)
        fleet = _stacked_fleet(here)
        if cut:
            with pytest.raises(PowerCut):
                here.engine(TamperedFleet(fleet, _cut_after(2))).run()
        assert here.engine(fleet).run().status == "finished"
        digests.append(here.record.weights_digest)
        here.close()
    assert digests[0] == digests[1]


def _world(folder: Path) -> World:
    model = {"name": "mlp", "hidden": [4], "dropout": 0.3}
    chosen = small_recipe(model=model, wire=COARSE, rounds={"count": 3})
    return World(folder, chosen, shards((5, 9, 6, 4)))


def _stacked_fleet(here: World) -> LocalFleet:
    parts = shards((5, 9, 6, 4))
    executor = StackedExecutor(parts, chunk=2, trainers=TrainerCache("cpu"))
    return LocalFleet(parts, here.cache, here.clock, executor=executor)


def _cut_after(passed: int) -> Any:
    left = [passed]

    def tamper(_: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            left[0] -= 1
            if left[0] < 0:
                raise PowerCut
            yield each

    return tamper
