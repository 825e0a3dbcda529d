"""The coordinator's step, against numbers computed by hand."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from edgefed.errors import DataError, UsageError
from edgefed.learn.aggregation.server_optimizers import BLOCK, OptimizerName, ServerOptimizer
from edgefed.learn.base.types import Tensors

NAMES = get_args(OptimizerName)


def steps(optimizer: ServerOptimizer, start: float, *deltas: float) -> float:
    """Return a single weight after the deltas, one a round."""
    weights: Tensors = {"w": np.array([start])}
    memory: Tensors = {}
    for number, delta in enumerate(deltas, start=1):
        weights, memory = optimizer.step(weights, {"w": np.array([delta])}, memory, number)
    return float(weights["w"][0])


# tau = 0.5 so that v starts at 0.25; b1 = 0.5, b2 = 0.75, η = 2; deltas 1, then -2.
SETTINGS: dict[str, Any] = {"learning_rate": 2.0, "beta1": 0.5, "beta2": 0.75, "tau": 0.5}


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("sgd", 10 + 2 * 1, 12 - 2 * 2),
        # m = 1, then 0.5 - 2 = -1.5.
        ("momentum", 10 + 2 * 1, 12 - 2 * 1.5),
        # m = 0.5, then 0.25 - 1 = -0.75. v = 0.25 + 1 = 1.25, then 1.25 + 4 = 5.25.
        (
            "adagrad",
            10 + 1 / (1.25**0.5 + 0.5),
            10 + 1 / (1.25**0.5 + 0.5) - 1.5 / (5.25**0.5 + 0.5),
        ),
        # v = 0.75·0.25 + 0.25 = 0.4375, then 0.75·0.4375 + 0.25·4 = 1.328125.
        (
            "adam",
            10 + 1 / (0.4375**0.5 + 0.5),
            10 + 1 / (0.4375**0.5 + 0.5) - 1.5 / (1.328125**0.5 + 0.5),
        ),
        # v = 0.25 + 0.25·1 = 0.5, then 0.5 + 0.25·4 = 1.5: D² is the larger each time.
        ("yogi", 10 + 1 / (0.5**0.5 + 0.5), 10 + 1 / (0.5**0.5 + 0.5) - 1.5 / (1.5**0.5 + 0.5)),
    ],
)
def test_two_steps_by_hand(name: OptimizerName, first: float, second: float) -> None:
    optimizer = ServerOptimizer(name, **SETTINGS)
    assert steps(optimizer, 10.0, 1.0) == pytest.approx(first, rel=1e-12)
    assert steps(optimizer, 10.0, 1.0, -2.0) == pytest.approx(second, rel=1e-12)


def test_yogi_falls_slowly_when_the_delta_shrinks() -> None:
    # v = 0.25 - 0.25·0.01 = 0.2475; m = 0.05.
    got = steps(ServerOptimizer("yogi", **SETTINGS), 0.0, 0.1)
    assert got == pytest.approx(2 * 0.05 / (0.2475**0.5 + 0.5), rel=1e-12)


def test_kingmas_adam_is_torchs() -> None:
    import torch

    rng = np.random.default_rng(2)
    deltas = rng.standard_normal((5, 4))
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weight], lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    optimizer = ServerOptimizer("adam", 0.1, 0.9, 0.999, 1e-8, "kingma")
    ours: Tensors = {"w": np.zeros(4)}
    memory: Tensors = {}
    for number, delta in enumerate(deltas, start=1):
        weight.grad = -torch.from_numpy(delta)
        adam.step()
        ours, memory = optimizer.step(ours, {"w": delta}, memory, number)
    np.testing.assert_allclose(ours["w"], weight.detach().numpy(), rtol=1e-9)


def test_kingmas_first_step_moves_by_the_learning_rate() -> None:
    optimizer = ServerOptimizer("adam", 0.1, 0.9, 0.999, 1e-8, "kingma")
    assert steps(optimizer, 0.0, 0.37) == pytest.approx(0.1, rel=1e-6)
    assert steps(optimizer, 0.0, -20.0) == pytest.approx(-0.1, rel=1e-6)


def test_sgd_with_rate_one_is_fedavg_exactly() -> None:
    rng = np.random.default_rng(3)
    weights: Tensors = {"w": rng.standard_normal(1000).astype(np.float32)}
    delta: Tensors = {"w": rng.standard_normal(1000).astype(np.float32)}
    got, memory = ServerOptimizer().step(weights, delta, {}, 1)
    assert got["w"].tobytes() == (weights["w"] + delta["w"]).tobytes()
    assert memory == {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", ["reddi", "kingma"])
def test_no_change_is_no_step_at_the_start(name: OptimizerName, variant: Any) -> None:
    weights: Tensors = {"w": np.array([0.1, -7.3], np.float32)}
    nothing: Tensors = {"w": np.zeros(2, np.float32)}
    memory: Tensors = {}
    optimizer = ServerOptimizer(name, adam_variant=variant)
    for number in (1, 2, 3):
        got, memory = optimizer.step(weights, nothing, memory, number)
        assert got["w"].tobytes() == weights["w"].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_buffers_and_integers_are_added_and_never_adapted(name: OptimizerName) -> None:
    weights: Tensors = {
        "w": np.ones(2, np.float32),
        "running_mean": np.ones(2, np.float32),
        "tracked": np.array(7),
    }
    delta: Tensors = {
        "w": np.full(2, 0.25, np.float32),
        "running_mean": np.full(2, 0.25, np.float32),
        "tracked": np.array(5),
    }
    optimizer = ServerOptimizer(name, learning_rate=0.5)
    got, memory = optimizer.step(weights, delta, {}, 1, plain=("running_mean",))
    assert got["running_mean"].tolist() == [1.25, 1.25]
    assert got["tracked"] == 12
    assert got["tracked"].dtype == weights["tracked"].dtype
    assert got["w"].tolist() != [1.25, 1.25]
    assert all(key.endswith("/w") for key in memory)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_changes_nothing_that_it_is_given_and_keeps_float32(name: OptimizerName) -> None:
    weights: Tensors = {"w": np.ones(2, np.float32), "untouched": np.ones(1, np.float32)}
    delta: Tensors = {"w": np.full(2, 0.25, np.float32)}
    optimizer = ServerOptimizer(name)
    first, memory = optimizer.step(weights, delta, {}, 1)
    kept = {key: array.copy() for key, array in memory.items()}
    second, _ = optimizer.step(first, delta, memory, 2)
    assert weights["w"].tolist() == [1, 1]
    assert all(np.array_equal(memory[key], kept[key]) for key in kept)
    assert list(second) == list(weights)
    assert second["untouched"].tolist() == [1]
    assert all(array.dtype == np.float32 for array in (*second.values(), *memory.values()))


@pytest.mark.parametrize("delta", [{"x": np.zeros(2, np.float32)}, {"w": np.zeros(3, np.float32)}])
def test_a_delta_of_another_model_is_refused(delta: Tensors) -> None:
    with pytest.raises(DataError, match="does not fit"):
        ServerOptimizer().step({"w": np.zeros(2, np.float32)}, delta, {}, 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("learning_rate", 0.0),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("tau", 0.0),
        ("name", "adamw"),
        ("adam_variant", "other"),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=key):
        ServerOptimizer(**{key: value})


@pytest.mark.parametrize("name", NAMES)
def test_a_tensor_of_many_blocks_moves_like_its_values_one_by_one(name: OptimizerName) -> None:
    rng = np.random.default_rng(8)
    shape = (3, BLOCK // 2 + 5)
    large = {"w": rng.standard_normal(shape, dtype=np.float32)}
    places = [(0, 0), (1, BLOCK // 2 - 6), (1, BLOCK // 2 - 5), (2, 7), (2, BLOCK // 2 + 4)]
    few = {"w": np.array([large["w"][place] for place in places])}
    optimizer, memory, small_memory = ServerOptimizer(name, **SETTINGS), Tensors(), Tensors()
    for number in (1, 2, 3):
        delta = rng.standard_normal(shape, dtype=np.float32)
        before = {key: array.copy() for key, array in (large | memory).items()}
        after, remembered = optimizer.step(large, {"w": delta}, memory, number)
        assert all((array == before[key]).all() for key, array in (large | memory).items())
        picked = {"w": np.array([delta[place] for place in places])}
        few, small_memory = optimizer.step(few, picked, small_memory, number)
        large, memory = after, remembered
        assert memory.keys() == small_memory.keys()
        for ours, theirs in ((large, few), (memory, small_memory)):
            for key, array in theirs.items():
                assert [ours[key][place] for place in places] == array.tolist()
                assert ours[key].shape == shape
