"""Statistics of batch normalisation, measured on all samples and pooled over devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgefed.algorithms.interface.device_side import StatisticsJob
from edgefed.errors import DataError
from edgefed.files.samples import Samples
from edgefed.learn.aggregation.pooled_statistics import MeasuredStatistics, pooled_statistics
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.training import batch_statistics as module
from edgefed.learn.training.batch_statistics import batch_statistics, normalised_layers
from edgefed.learn.training.trainer import Stopped, Trainer
from edgefed.worker.run_work import run_work
from tests.learn import worlds

SHAPE = (2, 6, 5)
DEVICES = (4, 30, 11)


def inputs(count: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (seed + rng.standard_normal((count, *SHAPE))).astype(np.float32)


def deep_model() -> Model:
    """Return a model with three normalisations, of images and of rows, and with dropout."""
    torch.manual_seed(3)
    layers = nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Conv2d(3, 4, 3, 2),
        nn.BatchNorm2d(4),
        nn.Flatten(),
        nn.Linear(4, 6),
        nn.BatchNorm1d(6),
        nn.Linear(6, 3),
    )
    for part in layers:
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.uniform_(part.bias, -1, 1)
            part.running_mean.add_(0.4)  # type: ignore[union-attr]
    return Model(layers, SHAPE, worlds.CLASSES)


LAYERS = ("1", "5", "8")


def measured(
    given: Model, data: Array, weights: Tensors | None = None, known: Sequence[str] = ()
) -> Tensors:
    start = given.weights() if weights is None else weights
    return batch_statistics(Trainer(given, "cpu"), start, data, frozenset(known))


def by_torch(given: Model, data: Array) -> tuple[Tensors, Array]:
    """Return the statistics of one batch of all data in training mode, and its logits."""
    given.module.train()
    seen: dict[str, Array] = {}
    hooks = []
    for name in normalised_layers(given):
        part = given.module.get_submodule(name)
        assert isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d)
        part.momentum = 1.0
        hooks.append(part.register_forward_pre_hook(_counts(seen, name)))
    for part in given.module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    with torch.no_grad():
        logits = given.module(torch.from_numpy(data)).numpy()
    for hook in hooks:
        hook.remove()
    state = {name: array.numpy() for name, array in given.module.state_dict().items()}
    found = {name: state[name] for name in state if ".running_" in name}
    for name, count in seen.items():  # torch divides by one less than the number of values
        found[f"{name}.running_var"] = found[f"{name}.running_var"] * (count - 1) / count
    return found, logits


def _counts(seen: dict[str, Array], name: str) -> Callable[[nn.Module, Any], None]:
    def see(_part: nn.Module, taken: tuple[torch.Tensor]) -> None:
        seen[name] = np.array(taken[0].numel() // taken[0].shape[1])

    return see


def assert_near(ours: Tensors, theirs: Tensors, tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_allclose(array, theirs[name], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("batch", [256, 7, 1])
def test_statistics_are_those_of_one_batch_of_all_samples(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", batch)
    model, data = deep_model(), inputs(23)
    ours = measured(model, data)
    theirs, logits = by_torch(model, data)
    assert_near(ours, theirs, 2e-6)
    assert list(ours) == [name for name in model.names if ".running_" in name]
    assert {array.dtype for array in ours.values()} == {np.dtype(np.float32)}
    weights = {**model.weights(), **ours}
    np.testing.assert_allclose(Trainer(model, "cpu").predict(weights, data), logits, atol=2e-5)


def test_a_residual_network_is_measured_through_its_shortcuts() -> None:
    model = worlds.model("resnet20", norm="batch")
    data = worlds.samples(12).inputs
    ours = measured(model, data)
    assert len(ours) == 2 * 19
    assert_near(ours, by_torch(model, data)[0], 1e-5)


def test_the_mean_of_large_values_with_little_spread_is_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of squares in float32 would leave nothing of such a variance."""
    monkeypatch.setattr(module, "EVAL_BATCH", 5)
    model = Model(nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(60, 3)), SHAPE, 3)
    data = (1000 + inputs(33)).astype(np.float32)
    ours, exact = measured(model, data), data.astype(np.float64)
    np.testing.assert_allclose(ours["0.running_mean"], exact.mean((0, 2, 3)), rtol=1e-7)
    np.testing.assert_allclose(ours["0.running_var"], exact.var((0, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize("batch", [256, 7])
def test_known_layers_normalise_with_the_statistics_they_have(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", batch)
    model, data = deep_model(), inputs(23)
    own, known = measured(model, data), measured(model, data, known=LAYERS)
    assert known.keys() == own.keys()
    assert np.array_equal(known["1.running_mean"], own["1.running_mean"])
    model.module.eval()
    with torch.no_grad():
        taken = model.module[:5](torch.from_numpy(data)).numpy()  # type: ignore[index]
    np.testing.assert_allclose(known["5.running_mean"], taken.mean((0, 2, 3)), rtol=1e-5)
    assert not np.allclose(own["5.running_mean"], known["5.running_mean"], atol=0.1)
    partly = measured(model, data, known=LAYERS[:1])
    assert_near(_of(partly, "5"), _of(known, "5"), 1e-6)
    middle = model.module[5]  # type: ignore[index]
    for part in ("running_mean", "running_var"):
        getattr(middle, part).copy_(torch.from_numpy(partly[f"5.{part}"]))
    with torch.no_grad():
        taken = model.module[:8](torch.from_numpy(data)).numpy()  # type: ignore[index]
    np.testing.assert_allclose(partly["8.running_mean"], taken.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(partly["8.running_var"], taken.var(0), rtol=1e-4)


@pytest.mark.parametrize(("known", "passes"), [((), 3), (("1",), 2), (LAYERS, 1)])
def test_only_layers_that_are_not_known_take_a_pass_each(
    known: Sequence[str], passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", 7)
    model, told = deep_model(), list[float]()
    trainer = Trainer(model, "cpu")
    batch_statistics(trainer, model.weights(), inputs(23), frozenset(known), told.append)
    assert len(told) == passes
    assert told[-1] == 1


def _of(statistics: Tensors, layer: str) -> Tensors:
    return {name: each for name, each in statistics.items() if name.startswith(f"{layer}.")}


def pooled(model: Model, weights: Tensors, known: Sequence[str]) -> Tensors:
    """Return what three very different devices measure, pooled."""
    answers = {}
    for place, count in enumerate(DEVICES):
        own = measured(model, inputs(count, place), weights, known)
        answers[f"device-{place}"] = MeasuredStatistics(count, own)
    return pooled_statistics(answers)


def test_pooled_statistics_are_those_of_the_union_if_the_layers_before_are_known() -> None:
    model = deep_model()
    union = np.concatenate([inputs(count, place) for place, count in enumerate(DEVICES)])
    weights: Tensors = model.weights()
    for number, layer in enumerate(LAYERS):
        found = pooled(model, weights, LAYERS[:number])
        assert_near(_of(found, layer), _of(measured(model, union), layer), 5e-6)
        weights = {**weights, **_of(found, layer)}
    everything = measured(model, union, weights, LAYERS)
    assert_near(pooled(model, weights, LAYERS), everything, 5e-6)
    assert_near(everything, measured(model, union), 5e-6)


def test_devices_that_are_alike_agree_in_one_exchange() -> None:
    """Behind the first layer, pooling is exact only as far as devices normalise alike."""
    model, data = deep_model(), inputs(20)
    own = MeasuredStatistics(20, measured(model, data))
    assert_near(pooled_statistics({"a": own, "b": own}), dict(own.statistics), 1e-6)


def statistics(mean: Sequence[float], variance: Sequence[float]) -> Tensors:
    arrays = {"n.running_mean": np.array(mean), "n.running_var": np.array(variance)}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def test_pooling_adds_the_variance_of_means_weighted_by_samples() -> None:
    one, other = statistics([1, 0], [2, 5]), statistics([5, 0], [6, 1])
    answers = {"a": MeasuredStatistics(3, one), "b": MeasuredStatistics(1, other)}
    found = pooled_statistics(answers)
    assert found["n.running_mean"].tolist() == [2, 0]
    assert found["n.running_var"].tolist() == [6, 4]  # 3/4·(2 + 1) + 1/4·(6 + 9), 3/4·5 + 1/4·1


def test_pooling_ends_in_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(1)
    answers = {}
    for number in range(4):
        own: Tensors = {"n.running_mean": rng.normal(size=40), "n.running_var": rng.random(40)}
        answers[f"device-{number}"] = MeasuredStatistics(int(rng.integers(1, 99)), own)
    results = [pooled_statistics(dict(order)) for order in permutations(answers.items())]
    assert results[0]["n.running_var"].dtype == np.float64
    for each in results:
        assert all(np.array_equal(each[name], results[0][name]) for name in each)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (MeasuredStatistics(0, statistics([1], [1])), "no samples"),
        (MeasuredStatistics(1, statistics([1, 2], [1, 1])), "not those of the model"),
        (MeasuredStatistics(1, {"m.running_mean": np.ones(1)}), "not those of the model"),
        (MeasuredStatistics(1, statistics([np.nan], [1])), "not finite"),
        (MeasuredStatistics(1, statistics([1], [np.inf])), "not finite"),
        (MeasuredStatistics(1, statistics([1], [-0.5])), "below 0"),
    ],
)
def test_pooling_refuses_what_no_device_can_have_measured(
    wrong: MeasuredStatistics, why: str
) -> None:
    right = MeasuredStatistics(4, statistics([1], [1]))
    with pytest.raises(DataError, match=why) as caught:
        pooled_statistics({"a": right, "b": wrong})
    assert caught.value.code == "statistics.values"


def test_pooling_needs_a_device() -> None:
    with pytest.raises(DataError) as caught:
        pooled_statistics({})
    assert caught.value.code == "statistics.none"


def test_a_model_without_batch_normalisation_has_nothing_to_measure() -> None:
    model = worlds.model("resnet20", norm="group")
    assert measured(model, worlds.samples(3).inputs) == {}


def test_measuring_leaves_the_weights_and_the_model_alone() -> None:
    model, data = deep_model(), inputs(9)
    before = model.weights()
    given = {name: np.array(array) for name, array in before.items()}
    measured(model, data, given)
    for weights in (given, model.weights()):
        assert all(np.array_equal(before[name], array) for name, array in weights.items())
    assert not any(part._forward_pre_hooks for part in model.module.modules())


def test_measuring_refuses_what_it_cannot_measure() -> None:
    model = deep_model()
    for data, known, code in (
        (inputs(0), (), "data.empty"),
        (inputs(3), ("1", "2"), "model.layer"),
        (inputs(3)[:, :, :5], (), "data.shape"),
        (np.full((2, *SHAPE), 3e38, np.float32), (), "train.diverged"),
    ):
        with pytest.raises(DataError) as caught:
            measured(model, data, known=known)
        assert caught.value.code == code


def test_a_worker_measures_its_own_samples_or_those_of_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", 4)
    model, told = deep_model(), list[float]()
    trainer, labels = Trainer(model, "cpu"), np.zeros(9, np.int64)
    own, brought = (Samples(inputs(9, seed), labels) for seed in (1, 2))
    weights = model.weights()
    for job, data in ((StatisticsJob(weights), own), (StatisticsJob(weights, brought), brought)):
        result = run_work(trainer, job, own, told.append)
        assert isinstance(result, dict)
        wanted = measured(model, data.inputs)
        assert all(np.array_equal(result[name], array) for name, array in wanted.items())
    assert told == pytest.approx([1 / 3, 2 / 3, 1] * 2)
    known = run_work(trainer, StatisticsJob(weights, known=frozenset(LAYERS)), own)
    assert isinstance(known, dict)
    wanted = measured(model, own.inputs, known=LAYERS)
    assert all(np.array_equal(known[name], array) for name, array in wanted.items())


def test_measuring_can_be_stopped_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVAL_BATCH", 4)
    model, asked = deep_model(), list[int]()

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 5

    with pytest.raises(Stopped):
        run_work(
            Trainer(model, "cpu"),
            StatisticsJob(model.weights()),
            worlds.samples(9, shape=SHAPE),
            None,
            stop,
        )
    assert len(asked) == 5
