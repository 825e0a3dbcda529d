"""All transfers pass one module, and their number does not grow with steps and clients."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgefed
from edgefed.learn.base.augment import Augment
from edgefed.learn.base.transfers import (
    COUNTS,
    TransferCounts,
    download,
    every_processor_is_remote,
    upload_all,
)
from edgefed.learn.base.types import Job, Samples, Schedule, Tensors, Trained
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.local_mix import LocalMixObjective
from edgefed.learn.training.stacked_trainer import StackedTrainer
from edgefed.learn.training.trainer import Trainer

SHAPE, CLASSES = (1, 4, 4), 3
EXCEPTIONS = {
    "data/sets/map_style.py": "takes tensors that a user's data set returns",
    "learn/base/transfers.py": "is the one place",
}
MOVING = {"cpu", "cuda", "pin_memory", "item"}
CPU = torch.device("cpu")


CALLED = re.compile(rf"\.(?:{'|'.join(sorted(MOVING))}|to|tensor|as_tensor)\(")


def moves(source: str) -> list[int]:
    """Return the lines of a program that move a tensor."""
    if not CALLED.search(source):
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if moves_tensor(call)]


def moves_tensor(node: ast.Call) -> bool:
    if not isinstance(node.func, ast.Attribute):
        return False
    name = node.func.attr
    if name in MOVING and not node.args:
        return True
    words = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "device"]
    if name == "to":
        words += [ast.unparse(argument) for argument in node.args]
        return any("device" in word or "cpu" in word or "cuda" in word for word in words)
    return name in {"tensor", "as_tensor"} and bool(words)


def test_no_other_module_of_the_product_moves_a_tensor() -> None:
    root = Path(edgefed.__file__).parent
    moving = {
        str(path.relative_to(root)): lines
        for path in sorted(root.rglob("*.py"))
        if (lines := moves(path.read_text()))
    }
    assert moving.keys() == EXCEPTIONS.keys(), moving


@pytest.mark.parametrize(
    "line",
    ["a.cpu()", "a.item()", "a.to(self._device)", "a.to('cuda')", "torch.tensor(b, device=c)"],
)
def test_a_move_is_seen(line: str) -> None:
    assert moves(line) == [1]


def test_tensors_move_together_by_dtype_and_keep_values_and_shapes() -> None:
    tensors = [torch.arange(6).view(2, 3), torch.rand(4), torch.tensor(7), torch.rand(0, 2)]
    before = COUNTS.copy()
    with every_processor_is_remote():
        moved = upload_all(tensors, CPU, "plan")
    assert all(torch.equal(one, other) for one, other in zip(tensors, moved, strict=True))
    made = COUNTS.since(before)
    assert made.calls == {("up", "plan"): 2}
    assert made.bytes == {("up", "plan"): 7 * 8 + 4 * 4}
    before = COUNTS.copy()
    download(torch.zeros(3, requires_grad=True), "losses").numpy()
    assert COUNTS.since(before).bytes == {("down", "losses"): 12}


def model() -> Model:
    torch.manual_seed(1)
    return Model(nn.Sequential(nn.Flatten(), nn.Linear(16, CLASSES)), SHAPE, CLASSES)


def samples(sizes: Sequence[int], *, as_images: bool = False) -> list[Samples]:
    rng = np.random.default_rng(3)
    shards = []
    for size in sizes:
        inputs = rng.random((size, *SHAPE), dtype=np.float32)
        pixels = (inputs * 255).astype(np.uint8) if as_images else inputs
        shards.append(Samples(pixels, rng.integers(0, CLASSES, size)))
    return shards


def job(
    own: Model,
    seed: int,
    weights: Tensors | None = None,
    *,
    epochs: int = 1,
    batch_size: int = 4,
) -> Job:
    plan = Schedule(learning_rate=0.1, batch_size=batch_size, epochs=epochs)
    mixing, augment = LocalMixObjective(0.5), Augment(1, flip=True)
    return Job(weights or own.weights(), mixing, plan, seed, augment=augment)


def stacked(
    sizes: Sequence[int], *, remote: bool, chunk: int = 8, rounds: int = 1, epochs: int = 1
) -> tuple[list[Trained], TransferCounts]:
    """Return the last round's results and the transfers of all rounds."""
    own = model()
    trainer = StackedTrainer(own, "cpu", chunk)
    shards, before, weights = samples(sizes), COUNTS.copy(), own.weights()
    for turn in range(rounds):
        jobs = [job(own, 10 * turn + seed, weights, epochs=epochs) for seed in range(len(sizes))]
        if remote:
            with every_processor_is_remote():
                results = trainer.train(jobs, shards)
        else:
            results = trainer.train(jobs, shards)
    return results, COUNTS.since(before)


def assert_same(ours: Sequence[Trained], theirs: Sequence[Trained]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.loss == other.loss
        for name, array in one.weights.items():
            np.testing.assert_array_equal(array, other.weights[name])


def test_a_chunk_transfers_as_often_for_many_steps_and_clients_as_for_few() -> None:
    few, counts = stacked((4, 4), remote=True)
    _, many_counts = stacked((40, 33, 27, 9, 18), remote=True)
    # Inputs and targets; order, crops and places; float draws; weights, sums and "finite".
    assert counts.calls["up", "samples"] == many_counts.calls["up", "samples"] == 2
    assert counts.calls["up", "weights"] == many_counts.calls["up", "weights"] == 1
    assert counts.calls["down", "results"] == many_counts.calls["down", "results"] == 3
    assert counts.calls["up", "plan"] == many_counts.calls["up", "plan"] <= 3
    for calls in (counts.calls, many_counts.calls):
        del calls["up", "scales"]  # once a process
    assert counts.calls == many_counts.calls
    assert_same(few, stacked((4, 4), remote=False)[0])


def test_samples_are_uploaded_once_a_run_and_plans_once_an_epoch_and_chunk() -> None:
    sizes = (12, 9, 7, 5)
    results, counts = stacked(sizes, remote=True, chunk=2, rounds=3, epochs=2)
    assert counts.calls["up", "samples"] == 2
    assert counts.bytes["up", "samples"] == sum(sizes) * (16 * 4 + 8)
    once = stacked((4, 4), remote=True)[1].calls["up", "plan"]
    assert counts.calls["up", "plan"] == 3 * 2 * 2 * once
    assert_same(results, stacked(sizes, remote=False, chunk=2, rounds=3, epochs=2)[0])


def test_one_client_alone_reads_its_losses_once_a_task() -> None:
    own = model()
    trainer = Trainer(own, "cpu")
    (shard,) = samples((150,), as_images=True)
    ours = job(own, 5, epochs=2, batch_size=2)
    expected = trainer.train(ours, shard)
    with every_processor_is_remote():
        remote = Trainer(own, "cpu")
        before = COUNTS.copy()
        result = remote.train(ours, shard)
        counts = COUNTS.since(before)
        once = replace(ours, schedule=replace(ours.schedule, max_steps=1))
        before = COUNTS.copy()
        remote.train(once, shard)
        short = COUNTS.since(before)
    assert_same([result], [expected])
    assert counts.calls["down", "losses"] == short.calls["down", "losses"] == 1
    assert counts.calls["up", "plan"] == 2 * short.calls["up", "plan"]
    assert short.calls["up", "samples"] == 0


def test_a_test_reads_its_outputs_once() -> None:
    own = model()
    (shard,) = samples((700,))
    expected = Trainer(own, "cpu").evaluate(own.weights(), shard)
    with every_processor_is_remote():
        trainer, before = Trainer(own, "cpu"), COUNTS.copy()
        assert trainer.evaluate(own.weights(), shard) == expected
    assert COUNTS.since(before).calls["down", "outputs"] == 3


def test_freed_samples_leave_room_for_others() -> None:
    own = model()
    trainer = StackedTrainer(own, "cpu", 8, rows=12)
    for turn in range(4):
        shards = samples((6, 5))
        jobs = [replace(job(own, seed), objective=CrossEntropy()) for seed in range(2)]
        ours = trainer.train(jobs, shards)
        theirs = StackedTrainer(model(), "cpu", 8).train(jobs, shards)
        assert_same(ours, theirs)
        assert len(next(iter(trainer._pool._tables.values())).targets) <= 24, turn
