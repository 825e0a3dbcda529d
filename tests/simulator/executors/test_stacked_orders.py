"""Orders that are trained together, when some of them fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.data.base.types import Shard
from edgefed.files.samples import Samples
from edgefed.learn.base.transfers import every_processor_is_remote
from edgefed.learn.base.types import Tensors, Trained
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training import stacked_trainer
from edgefed.learn.training.stacked_steps import ClientStack
from edgefed.simulator.executors import Sequential, WorkOrder
from edgefed.simulator.stacked_executor import StackedExecutor
from edgefed.wire.codecs import decode
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest, pack, specs_of
from edgefed.worker.outcomes import Outcome
from edgefed.worker.trainer_cache import TrainerCache
from tests.run_fixture import CLASSES, SHAPE, shards
from tests.simulator.executors.test_stacked_executor import MODEL, assert_near
from tests.simulator.work import never, task

TASK: dict[str, Any] = {"shape": SHAPE, "training": {"batch_size": 4}, "codec": "fp32"}


def orders(
    sizes: Sequence[int], model: dict[str, Any] = MODEL, **changes: Any
) -> tuple[list[WorkOrder], dict[str, bytes]]:
    packed = pack(weights(model))
    ref = BlobRef(digest=digest(packed), size=len(packed))
    made = [
        WorkOrder(number, task(number, ref, **{**TASK, "model": model, **changes}), {})
        for number in range(len(sizes))
    ]
    return made, {ref.digest: packed}


def weights(model: dict[str, Any] = MODEL) -> Tensors:
    section = ModelSection.model_validate(model)
    return build(section, SHAPE, CLASSES, 3, allow_user=True).weights()


def done(
    executor: Sequential | StackedExecutor, asked: Sequence[WorkOrder], blobs: dict[str, bytes]
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
    ours = done(StackedExecutor(parts, trainers=TrainerCache("cpu")), asked, blobs)
    assert_outcomes_near(ours, done(Sequential(parts, TrainerCache("cpu")), asked, blobs))
    assert [ours[k].status for k in range(5)] == ["ok", "ok", "refused", "failed", "ok"]
    assert "diverged" in ours[3].reason


def test_different_models_and_questions_in_one_exchange_are_kept_apart() -> None:
    sizes = (5, 9, 6)
    parts = shards(sizes, tested=3)
    asked, blobs = orders(sizes)
    asked[0] = WorkOrder(0, asked[0].task.model_copy(update={"question": "evaluate"}), {})
    other = {**MODEL, "dropout": 0.0}
    asked[2] = WorkOrder(2, asked[2].task.model_copy(update={"model": other}), {})
    ours = done(StackedExecutor(parts, trainers=TrainerCache("cpu")), asked, blobs)
    assert_outcomes_near(ours, done(Sequential(parts, TrainerCache("cpu")), asked, blobs))
    assert "accuracy" in ours[0].metrics


def test_a_stack_that_breaks_is_trained_one_by_one() -> None:
    sizes = (5, 9)
    parts, said = shards(sizes), list[str]()
    asked, blobs = orders(sizes, {"name": f"{__name__}:Moody"})
    trainers = TrainerCache("cpu", user_models=True)
    ours = done(StackedExecutor(parts, tell=said.append, trainers=trainers), asked, blobs)
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
    executor = StackedExecutor(shards((5, 9)), trainers=TrainerCache("cpu", user_models=True))
    ours = done(executor, asked, blobs)
    (reason,) = {outcome.reason for outcome in ours.values()}
    assert reason.startswith(f"The model {__name__}:Leaving failed in forward: SystemExit: 3.")


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

    class Narrow(ClientStack):
        """A stack on a GPU that has room for two clients."""

        def run(self, stop: Callable[[], None]) -> list[Trained | Any]:
            tried.append(len(self._clients))
            if len(self._clients) > 2:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return super().run(stop)

    sizes = (5, 9, 6, 12, 7, 8, 9)
    parts = shards(sizes)
    asked, blobs = orders(sizes)
    expected = done(Sequential(parts, TrainerCache("cpu")), asked, blobs)
    monkeypatch.setattr(stacked_trainer, "ClientStack", Narrow)
    executor = StackedExecutor(parts, chunk=6, trainers=TrainerCache("cpu"))
    assert_outcomes_near(done(executor, asked, blobs), expected)
    assert tried == [6, 3, 1, 1, 1, 1, 1, 1, 1]


def test_a_single_client_without_room_fails_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full(ClientStack):
        """A stack on a GPU that has no room at all."""

        def run(self, stop: Callable[[], None]) -> list[Trained | Any]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(stacked_trainer, "ClientStack", Full)
    asked, blobs = orders((5, 6))
    ours = done(StackedExecutor(shards((5, 6)), trainers=TrainerCache("cpu")), asked, blobs)
    assert {each.status for each in ours.values()} == {"failed"}
    assert {each.reason for each in ours.values()} == {
        "Training ran out of the GPU's memory.  [train.memory]; try: lower batch_size, or choose a"
        " smaller model"
    }


def test_no_more_orders_are_prepared_ahead_than_a_chunk_holds() -> None:
    sizes = (5,) * 6
    asked, blobs = orders(sizes)
    stopped_at, came = list[int](), list[int]()

    def stop() -> bool:
        stopped_at.append(len(came))
        return False

    executor = StackedExecutor(shards(sizes), chunk=2, trainers=TrainerCache("cpu"))
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

    executor = kind(shards((20, 20)), trainers=TrainerCache("cpu"))
    assert list(executor.outcomes(asked, blobs.__getitem__, stop)) == []


def test_outcomes_are_coded_beside_the_next_chunks_training() -> None:
    sizes = (5, 9, 6, 12, 7)
    asked, blobs = orders(sizes)
    expected = done(StackedExecutor(shards(sizes), 2, trainers=TrainerCache("cpu")), asked, blobs)
    with every_processor_is_remote():
        executor = StackedExecutor(shards(sizes), 2, trainers=TrainerCache("cpu"))
        ours = {order.device: outcome for order, outcome in read_slowly(executor, asked, blobs)}
    assert list(ours) == list(expected)
    assert [each.blobs for each in ours.values()] == [each.blobs for each in expected.values()]


def read_slowly(
    executor: StackedExecutor, asked: Sequence[WorkOrder], blobs: dict[str, bytes]
) -> Iterator[tuple[WorkOrder, Outcome]]:
    """Yield outcomes; the first chunk's are not passed on before the second's training begins."""
    begun = [threading.Event() for _ in range(3)]
    waiting = iter(begun)
    attempt = stacked_trainer.StackedTrainer.attempt

    def noted(*arguments: Any) -> Any:
        next(waiting).set()
        return attempt(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacked_trainer.StackedTrainer, "attempt", noted)
        for number, pair in enumerate(executor.outcomes(asked, blobs.__getitem__, never)):
            assert begun[min(number // 2 + 1, 2)].wait(10)
            yield pair


def test_a_reader_that_leaves_ends_the_training_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (9, 9, 9, 9)
    asked, blobs = orders(sizes)
    attempt = stacked_trainer.StackedTrainer.attempt
    attempts, stopped = list[int](), list[bool]()

    def waiting(*arguments: Any) -> Any:
        attempts.append(1)
        if len(attempts) == 2:
            stop, never_set = arguments[-1], threading.Event()
            stopped.append(any(stop() or never_set.wait(0.01) for _ in range(200)))
        return attempt(*arguments)

    monkeypatch.setattr(stacked_trainer.StackedTrainer, "attempt", waiting)
    with every_processor_is_remote():
        executor = StackedExecutor(shards(sizes), 2, trainers=TrainerCache("cpu"))
        outcomes = executor.outcomes(asked, blobs.__getitem__, never)
        next(outcomes)
        assert isinstance(outcomes, Generator)
        outcomes.close()
    assert stopped == [True]
