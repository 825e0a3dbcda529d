"""Each example of ``docs/algorithm-interface.md`` is installed as a plug-in and run."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from edgefed.algorithms.composed import registry
from edgefed.algorithms.interface.base import State
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.storage.stored_runs import Checkpoint, OpenExchange
from edgefed.data.base.types import Shard, no_samples
from edgefed.files.plugins import installed
from edgefed.learn.base.types import Tensors
from edgefed.testing.algorithms import check_algorithm
from edgefed.wire.codecs import decode
from edgefed.wire.messages import Task
from edgefed.wire.tensors import digest, pack
from edgefed.worker.outcomes import Outcome, PersistentState
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.coordinator.fleets import TamperedFleet
from tests.docs.pages import ROOT, blocks
from tests.run_fixture import COARSE, World, recipe, samples, shards
from tests.worker.tasks import read, task

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PAGE = ROOT / "docs" / "algorithm-interface.md"
EXAMPLES = {block.example: block for block in blocks(PAGE)}
IMPORTS = EXAMPLES["imports"].text
CLASSES = "\n\n".join(block.text for block in EXAMPLES.values() if "(FedAvg)" in block.text)
NAMES = dict(re.findall(r'class (\w+)\(FedAvg\):\n.*\n\n    name = "([\w-]+)"', CLASSES))
MODULE = "interface_examples"
SIZES = (5, 9, 6, 4)

Run = Callable[..., "Finished"]


class Finished:
    """A run that ended, with the exchanges that it put."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fleet = TamperedFleet(world.devices)
        self.record = world.engine(self.fleet).run()

    @property
    def checkpoint(self) -> Checkpoint:
        found = self.world.stores[0].checkpoint(self.world.run)
        assert found is not None
        return found

    @property
    def state(self) -> State:
        return self.checkpoint.state

    @property
    def model_file(self) -> Tensors:
        return load_file(self.world.folder / "runs" / self.world.run / "model.safetensors")

    def tasks(self, exchange: str) -> list[list[Task]]:
        """Return the tasks of each exchange of a name."""
        return [list(each.tasks) for each in self.fleet.asked if each.name == exchange]

    def outcomes(self) -> set[str]:
        return {outcome for _, outcome, _ in self.fleet.verdicts}


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install the page's classes as a package that offers all of them."""
    info = folder / f"{MODULE}-1.0.dist-info"
    info.mkdir(parents=True)
    points = "".join(f"{name} = {MODULE}:{kind}\n" for kind, name in NAMES.items())
    (folder / f"{MODULE}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.PLUGINS.group}]\n{points}")
    monkeypatch.syspath_prepend(folder)
    sys.modules.pop(MODULE, None)
    importlib.invalidate_caches()
    installed.cache_clear()


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(tmp_path / "site", monkeypatch, f"{IMPORTS}\n\n{CLASSES}")
    try:
        yield
    finally:
        installed.cache_clear()
        sys.modules.pop(MODULE, None)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run an algorithm of the page, or ``fedavg``, in a simulation of four devices."""
    worlds: list[World] = []

    def finished(name: str, **sections: Any) -> Finished:
        plan = recipe(**{"algorithm": {"name": name}, "evaluation": {"on": "both"}, **sections})
        folder = tmp_path / f"world-{len(worlds)}"
        worlds.append(World(folder, plan, shards(SIZES, tested=3)))
        return Finished(worlds[-1])

    yield finished
    for world in worlds:
        world.close()


def worker(**changes: Any) -> Worker:
    return Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2), **changes)


def work(
    name: str, device: Worker | None = None, kept: PersistentState | None = None, **changes: Any
) -> Outcome:
    """Return what a device makes of a task of an algorithm of the page."""
    private: dict[str, Tensors] = changes.pop("private", {})
    given = task(algorithm=name, **changes)
    outcome = (device or worker()).work(given, read, private, persistent=kept or PersistentState())
    assert outcome.status == "ok", outcome.reason
    return outcome


def delta(outcome: Outcome) -> Tensors:
    return decode(outcome.blobs["delta"], None)


def test_every_python_block_is_an_example_that_a_test_here_runs() -> None:
    named = set(EXAMPLES) - {"imports", "signatures", "types", "clamped", "fractional", "plug-in"}
    assert len(named) == len(blocks(PAGE)) - 6, "a block without a name of its own"
    assert len(NAMES) == len(named)
    tests = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in NAMES.values() if tests.count(f'"{name}"') == 0] == []


def test_what_an_answer_holds(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = run("label-counts")
    assert (here.record.status, here.outcomes()) == ("finished", {"accepted"})
    wrong = CLASSES.replace('TensorSpec("int64", (3,))', 'TensorSpec("int64", (4,))')
    assert wrong != CLASSES
    install(tmp_path / "wrong", monkeypatch, f"{IMPORTS}\n\n{wrong}")
    rejected = run("label-counts", rounds={"count": 1}).fleet.verdicts
    reasons = {reason for _, outcome, reason in rejected if outcome == "rejected"}
    assert reasons
    assert all("count" in reason for reason in reasons), reasons


def test_devices_send_each_other_bytes(tmp_path: Path) -> None:
    plan = recipe(algorithm={"name": "passing"}, evaluation={"every": 0})
    world = World(tmp_path / "world", plan, shards((5, 9, 6)))
    received: list[tuple[int, float]] = []

    def look(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        for each in replies:
            received.append((exchange.round, each.reply.metrics["received"]))
            yield each

    try:
        record = world.engine(TamperedFleet(world.devices, look)).run()
        assert record.status == "finished", record.reason
    finally:
        world.close()
    assert received == [(1, 0.0)] * 3 + [(2, 2.0)] * 3


def test_what_devices_start_from(run: Run) -> None:
    here = run("two-starts", rounds={"count": 2})
    first, second = here.tasks("fit")
    (start,) = {each.blobs["weights"].digest for each in first}
    digests = sorted(each.blobs["weights"].digest for each in second)
    before = digest(pack(here.state.groups["before"]))
    assert digests == sorted([start, start, before, before])
    assert start != before
    assert here.outcomes() == {"accepted"}


def test_payloads_that_end(run: Run) -> None:
    how = {"wire": COARSE, "evaluation": {"on": "coordinator"}}
    here, plain = run("renamed", **how), run("fedavg", **how)
    for ran, lengths in ((here, [1, 1, 1]), (plain, [1, 2, 3])):
        assert [len(tasks[0].blobs["weights"].patches) for tasks in ran.tasks("fit")] == lengths
    assert here.checkpoint.downlink.keys() == {"weights-3"}


def test_models_that_change(run: Run) -> None:
    here = run("widening")
    assert [tasks[0].model["hidden"] for tasks in here.tasks("fit")] == [[4], [5], [6]]
    assert here.model_file["fc1.bias"].shape == (7,)


def test_many_models(run: Run) -> None:
    here = run("two-models")
    state = here.state
    assert {name.split("/")[0] for name in here.model_file} == {"now", "before"}
    for name, array in state.groups["before"].items():
        assert np.array_equal(here.model_file[f"before/{name}"], array)
    plain = run("fedavg")
    assert np.array_equal(here.model_file["now/out.bias"], plain.model_file["out.bias"])
    assert here.world.rows[-1]["loss"] != plain.world.rows[-1]["loss"]


def test_how_devices_test(run: Run) -> None:
    here = run("largest-test", rounds={"count": 1})
    assert [[each.device for each in tasks] for tasks in here.tasks("evaluate")] == [
        ["device-02", "device-01"]
    ]


def test_exchanges_before_the_first_round(run: Run) -> None:
    here, plain = run("counted-twice"), run("fedavg")
    names = [each.name for each in here.fleet.asked if each.name != "evaluate"]
    assert names == ["count", "count", "fit", "fit", "fit"]
    assert here.state.params == {"counts": [sum(SIZES)] * 2}
    assert here.record.weights_digest == plain.record.weights_digest


def test_composition(run: Run) -> None:
    here = run("limited")
    names = [each.name for each in here.fleet.asked if each.name != "evaluate"]
    assert names == ["count", "fit", "fit", "fit"]
    assert here.state.params["smallest"] == min(SIZES)
    epochs = {"batch_size": 1, "learning_rate": 0.1}
    steps = work("limited", training=epochs, params={"steps": 4}).metrics["steps"]
    assert (steps, work("fedavg", training=epochs).metrics["steps"]) == (4.0, 9.0)


def test_samples_made_on_the_device(run: Run) -> None:
    one, other = work("bootstrap"), work("bootstrap", seed=6)
    assert (one.samples, work("fedavg").samples) == (4, 9)
    assert one.blobs["delta"] == work("bootstrap").blobs["delta"] != other.blobs["delta"]
    assert run("bootstrap").outcomes() == {"accepted"}


def test_roles_that_an_answer_may_lack(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    assert set(work("large-devices").blobs) == {"delta", "labels"}
    small = Worker(TrainerCache("cpu"), samples(5, 1), samples(5, 2))
    assert set(work("large-devices", small).blobs) == {"delta"}
    assert run("large-devices").outcomes() == {"accepted"}
    wrong = CLASSES.replace(", optional=True", "")
    assert wrong != CLASSES
    install(tmp_path / "wrong", monkeypatch, f"{IMPORTS}\n\n{wrong}")
    verdicts = run("large-devices", rounds={"count": 1, "quorum": 0.5}).fleet.verdicts
    assert {(device, why) for device, outcome, why in verdicts if outcome == "rejected"} == {
        ("device-00", "it does not contain labels"),
        ("device-03", "it does not contain labels"),
    }


def test_training_before_a_test(run: Run) -> None:
    adapted, plain = run("adapted"), run("fedavg")
    assert adapted.record.weights_digest == plain.record.weights_digest, "nothing is kept"
    row, other = adapted.world.rows[-1], plain.world.rows[-1]
    assert row["devices_adapted"] == 4
    assert row["loss_adapted"] == row["device_loss"] != other["device_loss"]


def test_what_is_known_of_each_sample(run: Run) -> None:
    own = samples(9, 1)
    counts = np.bincount(own.targets)
    assert len(set(counts)) > 1
    assert not np.array_equal(
        delta(work("rare-labels"))["out.bias"], delta(work("fedavg"))["out.bias"]
    )
    order = np.argsort(own.targets)
    even = type(own)(own.inputs[order][:2], np.array([0, 1]))
    alike = Worker(TrainerCache("cpu"), even, samples(5, 2))
    twice = delta(work("rare-labels", alike))
    once = delta(work("fedavg", alike))
    np.testing.assert_allclose(twice["out.bias"], 2 * once["out.bias"], rtol=1e-4)
    assert run("rare-labels").outcomes() == {"accepted"}


def test_measures_of_each_round(run: Run) -> None:
    here, before = run("step-length", rounds={"count": 2}), run("fedavg", rounds={"count": 1})
    first, last = before.state.groups["weights"], here.state.groups["weights"]
    squares = sum(float(np.square(last[name] - first[name]).sum()) for name in first)
    steps = [row["step"] for row in here.world.rows]
    assert steps[1] == pytest.approx(squares**0.5, rel=1e-5)
    assert steps[0] != steps[1] > 0


def test_variables_that_a_formula_sets(run: Run) -> None:
    first = work("mean-logits")
    mean = first.private["own"]["mean"]
    assert mean.shape == (3,)
    assert mean.any()
    assert not np.array_equal(
        work("mean-logits", private=first.private).private["own"]["mean"], mean
    )
    for name, array in delta(first).items():
        np.testing.assert_allclose(array, delta(work("fedavg"))[name], atol=1e-6)
    assert run("mean-logits").outcomes() == {"accepted"}


def test_the_best_of_several_models(run: Run) -> None:
    found = {seed: work("own-or-zero", worker_of(seed)) for seed in range(1, 9)}
    losses = {seed: initial_loss(seed) for seed in found}
    zeros = np.log(3)
    assert min(losses.values()) < zeros < max(losses.values())
    for seed, outcome in found.items():
        assert outcome.metrics["chosen"] == float(zeros < losses[seed])
    assert run("own-or-zero").outcomes() == {"accepted"}


def worker_of(seed: int) -> Worker:
    return Worker(TrainerCache("cpu"), samples(9, seed), samples(5, 2))


def initial_loss(seed: int) -> float:
    """Return the loss of the task's weights on a device's samples."""
    given = task()
    trainer = TrainerCache("cpu").trainer(given.model, given.shape, given.classes)
    return trainer.evaluate(read("weights"), samples(9, seed)).loss


def test_trained_arrays_that_are_not_the_models(run: Run) -> None:
    first = work("own-shift")
    shift = first.private["own"]["shift"]
    assert shift.shape == (3,)
    assert (shift != 0).all()
    assert set(first.blobs) == {"delta"}
    again = work("own-shift", private=first.private).private["own"]["shift"]
    assert not np.array_equal(again, shift)
    assert run("own-shift").outcomes() == {"accepted"}


def test_statistics_of_batch_normalisation(tmp_path: Path) -> None:
    shape, name = (1, 4, 4), "remeasured"
    model = {"name": "resnet20", "norm": "batch", "channels": [2, 2, 2], "inner": [2] * 9}
    plan = recipe(algorithm={"name": name}, model=model, rounds={"count": 1})
    parts = [Shard(samples(size, size, shape), no_samples(shape), 3) for size in SIZES]
    world = World(tmp_path / "world", plan, parts)
    world.dataset = replace(world.dataset, test=samples(12, 99, shape), shape=shape)
    try:
        here = Finished(world)
        weights = here.state.groups["weights"]
    finally:
        world.close()
    assert [each.name for each in here.fleet.asked] == ["fit", "statistics"]
    assert here.outcomes() == {"accepted"}
    images = torch.from_numpy(np.concatenate([part.train.inputs for part in parts]))
    first = torch.nn.functional.conv2d(images, torch.from_numpy(weights["conv1.weight"]), padding=1)
    var, mean = (each.numpy() for each in torch.var_mean(first, (0, 2, 3), correction=0))
    np.testing.assert_allclose(weights["norm1.running_mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(weights["norm1.running_var"], var, rtol=1e-5)


def test_the_model_on_a_device(run: Run) -> None:
    network = TrainerCache("cpu").trainer(task().model, task().shape, task().classes).model.module
    network.load_state_dict({n: torch.from_numpy(array) for n, array in read("weights").items()})
    with torch.no_grad():
        sure = network.eval()(torch.from_numpy(samples(9, 1).inputs)).softmax(1).amax(1).mean()
    assert work("confident").metrics["sure"] == pytest.approx(float(sure), rel=1e-5)
    assert run("confident").outcomes() == {"accepted"}


def test_features(run: Run) -> None:
    once, more = {"epochs": 1, "batch_size": 16}, {"epochs": 40, "batch_size": 16}
    for training, is_same in ((once, True), (more, False)):
        near = delta(work("kept-features", training=training))
        plain = delta(work("fedavg", training=training))
        close = [np.allclose(near[name], plain[name], atol=1e-6) for name in near]
        assert all(close) == is_same, "at the start of the training, features are as before"
    assert run("kept-features").outcomes() == {"accepted"}
    linear = {"name": "mlp", "hidden": []}
    assert run("kept-features", model=linear, rounds={"count": 1}).outcomes() == {"accepted"}


def test_the_training_job(run: Run) -> None:
    first = work("own-model")
    assert first.blobs["delta"] == work("fedavg").blobs["delta"]
    moved = first.private["own"]["out.bias"] - read("weights")["out.bias"]
    assert not np.array_equal(moved, np.zeros(3, np.float32))
    own = work("own-model", private=first.private).private["own"]
    assert not np.array_equal(own["out.bias"], first.private["own"]["out.bias"])
    check_algorithm(registry.find("own-model"))
    assert run("own-model").outcomes() == {"accepted"}


def test_state_that_depends_on_the_merge(run: Run) -> None:
    check_algorithm(registry.find("own-drift"))
    finished = run("own-drift")
    assert finished.outcomes() == {"accepted"}
    assert finished.state.params["merged_answers"]


def test_state_that_outlives_a_run() -> None:
    first = work("ledger", run="r-0001-0000")
    kept = PersistentState().after(first.device_state, first.ledger)
    second = work("ledger", kept=kept, run="r-0002-0000", round=3)
    kept = kept.after(second.device_state, second.ledger)
    assert kept.device_state["answers"]["count"].tolist() == [2]
    assert [entry["round"] for entry in kept.ledger] == [2, 3]
    assert set(second.blobs) == {"delta"}


def test_privacy_noise() -> None:
    plain, draws = delta(work("fedavg")), [delta(work("noised")) for _ in range(2)]
    assert not np.array_equal(draws[0]["out.bias"], draws[1]["out.bias"])
    assert draws[0]["out.bias"] == pytest.approx(plain["out.bias"], abs=0.1)
    fixed = worker(private_randomness=lambda _: np.random.default_rng(7))
    same = [delta(work("noised", fixed))["out.bias"] for _ in range(2)]
    assert np.array_equal(same[0], same[1])


@pytest.mark.parametrize("turned", [False, True])
def test_fractional_weights(turned: bool) -> None:
    made: dict[str, Any] = {}
    exec(IMPORTS, made)
    sets = [{"w": np.full(2, value, np.float32)} for value in (1.0, 3.0)]
    text = EXAMPLES["fractional"].text
    if turned:
        pairs = "(first, 0.75), (second, 0.25)"
        assert pairs in text
        text = text.replace(pairs, "(second, 0.25), (first, 0.75)")
    made.update(weights=sets[0], first=sets[0], second=sets[1])
    exec(text, made)
    assert made["merged"]["w"].tolist() == [1.5, 1.5]


def test_plug_ins(run: Run) -> None:
    ((group, points),) = tomllib.loads(EXAMPLES["plug-in"].text)["project"]["entry-points"].items()
    assert group == registry.PLUGINS.group
    ((name, target),) = points.items()
    assert target.rpartition(":")[2] in {kind for kind, own in NAMES.items() if own == name}
    assert name in registry.algorithms()
    assert run(name, rounds={"count": 1}).record.status == "finished"
