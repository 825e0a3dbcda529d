"""Virtual devices trained at once: whole rounds end where one device after another ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from edgefed.config.recipe import ModelSection, Recipe
from edgefed.coordinator.fleet import Delivered
from edgefed.coordinator.records import OpenExchange
from edgefed.data.types import Shard
from edgefed.learn import stacked
from edgefed.learn.models import build
from edgefed.learn.stack import Stack
from edgefed.learn.types import Tensors, Trained
from edgefed.samples import Samples
from edgefed.seeds import derive
from edgefed.simulator.executors import Order, Sequential
from edgefed.simulator.local_fleet import LocalFleet
from edgefed.simulator.run import Simulation
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.codecs import decode
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.tensors import digest, pack, specs_of
from edgefed.worker.outcome import Outcome
from edgefed.worker.worker import Bench
from tests.coordinator.fleets import TamperedFleet
from tests.worlds import CLASSES, COARSE, EXACT, SHAPE, Ticking, World, samples, shards
from tests.worlds import recipe as small_recipe

TOLERANCE = 1e-6
"""Of every weight after three rounds without a lossy code, as docs/laboratory.md has it."""

DEEP = 1e-4
"""The same with batch normalisation in a deep network, which multiplies rounding."""

MODEL = {"name": "mlp", "hidden": [16]}


def write_data(path: Path, side: int, channels: int, count: int = 90) -> Path:
    train, test = (
        samples(size, seed, (channels, side, side)) for size, seed in ((count, 1), (15, 2))
    )
    np.savez(
        path,
        x_train=train.inputs,
        y_train=train.targets,
        x_test=test.inputs,
        y_test=test.targets,
    )
    return path


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
    simulation, said = Simulation(chosen, folder, Ticking()), list[str]()
    simulation.journal.listen(
        lambda event, _: said.append(event.fields["text"]) if event.kind == "note" else None
    )
    result = simulation.run()
    assert result.record.status == "finished", result.record.reason
    return load_file(result.folder / "model.safetensors"), said


def assert_near(ours: Tensors, theirs: Tensors, tolerance: float = TOLERANCE) -> None:
    assert list(ours) == list(theirs)
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=tolerance, atol=tolerance)


CASES: dict[str, tuple[int, int, dict[str, Any], float]] = {
    "cnn": (8, 1, {}, TOLERANCE),
    "momentum and decay": (
        8,
        1,
        {"training": {"momentum": 0.9, "weight_decay": 0.01, "epochs": 2}},
        TOLERANCE,
    ),
    "few steps": (8, 1, {"training": {"max_steps": 4, "epochs": 3}}, TOLERANCE),
    "crops and flips": (8, 1, {"training": {"crop": 2, "flip": True}}, TOLERANCE),
    "proximal": (8, 1, {"algorithm": {"name": "fedprox", "mu": 0.5}}, TOLERANCE),
    "averaged data": (8, 1, {"algorithm": {"name": "fedmix"}}, TOLERANCE),
    "others' samples": (8, 1, {"algorithm": {"name": "globalmix"}}, TOLERANCE),
    "chunks": (8, 1, {"simulation": {"chunk": 3}}, TOLERANCE),
    "dropout off": (8, 1, {"model": {"name": "mlp", "dropout": 0.0}}, TOLERANCE),
    "bf16": (8, 1, {"training": {"precision": "bf16"}}, 5e-3),
    "int8 with feedback": (8, 1, {"wire": COARSE}, 1e-3),
    "batch normalisation": (
        8,
        3,
        {
            "model": {"name": "resnet20", "norm": "batch"},
            "training": {"learning_rate": 0.01, "batch_size": 10, "max_steps": 2},
        },
        DEEP,
    ),
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
    assert not stacked.why_not(model)


# -- one order at a time --------------------------------------------------------------------------


def orders(
    sizes: Sequence[int], model: dict[str, Any] = MODEL, **changes: Any
) -> tuple[list[Order], dict[str, bytes]]:
    packed = pack(weights(model))
    ref = BlobRef(digest=digest(packed), size=len(packed))
    made = [
        Order(number, task(number, ref, model=model, **changes), {}) for number in range(len(sizes))
    ]
    return made, {ref.digest: packed}


def weights(model: dict[str, Any] = MODEL) -> Tensors:
    section = ModelSection.model_validate(model)
    return build(section, SHAPE, CLASSES, 3, allow_user=True).weights()


def task(number: int, ref: BlobRef, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "run": "r-1",
        "exchange": "r-1-0",
        "index": 0,
        "round": 1,
        "question": "fit",
        "device": f"device-{number:02d}",
        "deadline": 60.0,
        "seed": derive(1, "task", number),
        "algorithm": "fedavg",
        "settings": {},
        "model": MODEL,
        "shape": SHAPE,
        "classes": CLASSES,
        "training": {"batch_size": 4},
        "codec": "fp32",
        "samples": 10,
        "blobs": {"weights": ref},
        "facts": {},
    }
    return Task(**{**values, **changes})


def never() -> bool:
    return False


def done(
    executor: Sequential | StackedExecutor, asked: Sequence[Order], blobs: dict[str, bytes]
) -> dict[int, Outcome]:
    return {
        order.device: outcome
        for order, outcome in executor.outcomes(asked, blobs.__getitem__, never)
    }


def assert_outcomes_near(ours: dict[int, Outcome], theirs: dict[int, Outcome]) -> None:
    assert ours.keys() == theirs.keys()
    for device, outcome in ours.items():
        other = theirs[device]
        assert (outcome.status, outcome.reason, outcome.samples) == (
            other.status,
            other.reason,
            other.samples,
        )
        assert outcome.metrics == pytest.approx(other.metrics, rel=1e-4)
        assert outcome.private.keys() == other.private.keys()
        for role, blob in outcome.blobs.items():
            specs = specs_of(weights())
            assert_near(decode(blob, specs), decode(other.blobs[role], specs))


def test_a_device_that_diverges_or_has_no_data_does_not_spoil_the_others() -> None:
    sizes = (5, 9, 0, 6, 12)
    parts = list(shards(sizes))
    wild = parts[3].train
    largest = np.full_like(wild.inputs, np.finfo(np.float32).max)
    parts[3] = Shard(Samples(largest, wild.targets), wild, CLASSES)
    asked, blobs = orders(sizes)
    ours = done(StackedExecutor(parts, bench=Bench("cpu")), asked, blobs)
    assert_outcomes_near(ours, done(Sequential(parts, Bench("cpu")), asked, blobs))
    assert [ours[k].status for k in range(5)] == ["ok", "ok", "refused", "failed", "ok"]
    assert "diverged" in ours[3].reason


def test_different_models_and_questions_in_one_exchange_are_kept_apart() -> None:
    sizes = (5, 9, 6)
    parts = shards(sizes, tested=3)
    asked, blobs = orders(sizes)
    asked[0] = Order(0, asked[0].task.model_copy(update={"question": "evaluate"}), {})
    other = {**MODEL, "dropout": 0.0}
    asked[2] = Order(2, asked[2].task.model_copy(update={"model": other}), {})
    ours = done(StackedExecutor(parts, bench=Bench("cpu")), asked, blobs)
    assert_outcomes_near(ours, done(Sequential(parts, Bench("cpu")), asked, blobs))
    assert "accuracy" in ours[0].metrics


def test_a_stack_that_breaks_is_trained_one_by_one() -> None:
    sizes = (5, 9)
    parts, said = shards(sizes), list[str]()
    asked, blobs = orders(sizes, {"name": f"{__name__}:Moody"})
    bench = Bench("cpu", user_models=True)
    ours = done(StackedExecutor(parts, tell=said.append, bench=bench), asked, blobs)
    assert [ours[k].status for k in range(2)] == ["ok", "ok"]
    assert len(said) == 2
    assert said[1].startswith("not trained at once, but one device after another: ")


class Leaving(nn.Linear):
    """Ends the program once it is trained."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape[0], classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise SystemExit(3)
        return super().forward(inputs)


def test_a_users_model_cannot_end_the_program() -> None:
    asked, blobs = orders((5, 9), {"name": f"{__name__}:Leaving"})
    executor = StackedExecutor(shards((5, 9)), bench=Bench("cpu", user_models=True))
    ours = done(executor, asked, blobs)
    assert {outcome.reason for outcome in ours.values()} == {"SystemExit: 3"}


class Moody(nn.Module):
    """Takes inputs that are not all alike as numbers only where nothing is batched."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(shape[0], classes)
        self.calls = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        batched = torch._C._functorch.is_batchedtensor(inputs)
        self.calls += batched
        if batched and self.calls > 1:
            raise RuntimeError("not today")
        scores: torch.Tensor = self.out(inputs)
        return scores


def test_what_has_no_room_is_halved_until_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[int]()

    class Narrow(Stack):
        """A stack on a GPU that has room for two clients."""

        def run(self, stop: Callable[[], None]) -> list[Trained | Any]:
            tried.append(len(self._clients))
            if len(self._clients) > 2:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().run(stop)

    sizes = (5, 9, 6, 12, 7, 8, 9)
    parts = shards(sizes)
    asked, blobs = orders(sizes)
    expected = done(Sequential(parts, Bench("cpu")), asked, blobs)
    monkeypatch.setattr(stacked, "Stack", Narrow)
    executor = StackedExecutor(parts, chunk=6, bench=Bench("cpu"))
    assert_outcomes_near(done(executor, asked, blobs), expected)
    assert tried == [6, 3, 1, 1, 1, 1, 1, 1, 1]


def test_a_single_client_without_room_fails_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(Stack):
        """A stack on a GPU that has no room at all."""

        def run(self, stop: Callable[[], None]) -> list[Trained | Any]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stacked, "Stack", Full)
    asked, blobs = orders((5, 6))
    ours = done(StackedExecutor(shards((5, 6)), bench=Bench("cpu")), asked, blobs)
    assert {each.status for each in ours.values()} == {"failed"}
    assert {each.reason for each in ours.values()} == {"Training ran out of the GPU's memory."}


def test_no_more_orders_are_prepared_ahead_than_a_chunk_holds() -> None:
    sizes = (5,) * 6
    asked, blobs = orders(sizes)
    stopped_at, came = list[int](), list[int]()

    def stop() -> bool:
        stopped_at.append(len(came))
        return False

    executor = StackedExecutor(shards(sizes), chunk=2, bench=Bench("cpu"))
    for order, _ in executor.outcomes(asked, blobs.__getitem__, stop):
        came.append(order.device)
    assert came == list(range(6))
    assert set(stopped_at) == {0, 2, 4}


@pytest.mark.parametrize("kind", [Sequential, StackedExecutor])
def test_stopping_in_the_middle_of_training_ends_the_exchange(kind: Any) -> None:
    asked, blobs = orders((20, 20), training={"batch_size": 1, "epochs": 9})
    checks = list[int]()

    def stop() -> bool:
        checks.append(1)
        return len(checks) > 5

    executor = kind(shards((20, 20)), bench=Bench("cpu"))
    assert list(executor.outcomes(asked, blobs.__getitem__, stop)) == []


# -- killed and resumed ---------------------------------------------------------------------------


class PowerCut(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("passed", [0, 2, 4])
def test_killed_between_replies_and_resumed_it_ends_in_the_same_bits(
    passed: int, tmp_path: Path
) -> None:
    digests = []
    for name, cut in (("whole", False), ("cut", True)):
        here = _world(tmp_path / name)
        fleet = _stacked_fleet(here)
        if cut:
            with pytest.raises(PowerCut):
                here.engine(TamperedFleet(fleet, _cut_after(passed))).run()
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
    executor = StackedExecutor(parts, chunk=2, bench=Bench("cpu"))
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
