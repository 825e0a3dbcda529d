"""The training loop: steps written by hand, repeatability, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import DataError, UsageError
from edgefed.learn.base.types import (
    Array,
    Batch,
    Context,
    Forward,
    Job,
    Params,
    Samples,
    Schedule,
    Tensors,
)
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.objectives.proximal import Proximal
from edgefed.learn.objectives.squared_error import SquaredError
from edgefed.learn.training.trainer import Stopped, Trainer
from tests.learn import worlds
from tests.learn.steps.test_local_optimizers import by_torch


def train(model: Model, job: Job, data: Samples) -> Tensors:
    return Trainer(model, "cpu").train(job, data).weights


def same(left: Tensors, right: Tensors) -> bool:
    return list(left) == list(right) and all(np.array_equal(left[n], right[n]) for n in left)


def test_buffers_are_updated_as_by_torch() -> None:
    data = worlds.samples(20)
    schedule = Schedule(2, batch_size=6, learning_rate=0.01)
    job = worlds.job(worlds.normalised_model(), schedule)
    ours = train(worlds.normalised_model(), job, data)
    theirs = by_torch(worlds.normalised_model(), job, data)
    assert ours["1.num_batches_tracked"] == 8
    assert ours["1.num_batches_tracked"].dtype == np.int64
    for key, array in ours.items():
        np.testing.assert_allclose(array, theirs[key], rtol=2e-5, atol=2e-6)


def test_one_epoch_in_one_batch_is_one_full_gradient_step() -> None:
    model, data = worlds.model("mlp", hidden=[]), worlds.samples(20)
    start = model.weights()
    schedule = Schedule(1, batch_size=20, learning_rate=0.5)
    after = train(model, worlds.job(model, schedule), data)
    x = data.inputs.reshape(20, -1).astype(np.float64)
    scores = x @ start["out.weight"].T.astype(np.float64) + start["out.bias"]
    chance = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    error = (chance - np.eye(worlds.CLASSES)[data.targets]) / 20
    np.testing.assert_allclose(
        after["out.weight"], start["out.weight"] - 0.5 * error.T @ x, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        after["out.bias"], start["out.bias"] - 0.5 * error.sum(axis=0), rtol=1e-4, atol=1e-6
    )


def test_two_momentum_steps_by_hand() -> None:
    """Squared error of y = b on targets 0: the gradient of b is 2 b."""
    model = worlds.model("mlp", hidden=[])
    bias_only = Job(
        {"out.weight": np.zeros((3, 64), np.float32), "out.bias": np.full(3, 3.0, np.float32)},
        SquaredError(),
        Schedule(2, batch_size=4, learning_rate=0.1, momentum=0.5),
        seed=1,
    )
    data = Samples(np.zeros((4, 1, 8, 8), np.float32), np.zeros((4, 3), np.float32))
    trained = Trainer(model, "cpu").train(bias_only, data)
    # The mean over 3 outputs makes it 2 b / 3: v1 = 2, b = 2.8; v2 = 1 + 5.6 / 3, b = 2.8 - 0.1 v2.
    np.testing.assert_allclose(trained.weights["out.bias"], 2.8 - 0.1 * (1 + 5.6 / 3), rtol=1e-6)
    assert trained.loss == pytest.approx(2.8**2, rel=1e-6)
    assert (trained.steps, trained.samples) == (2, 4)


@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(1, 13),
    batch=st.integers(1, 15),
    epochs=st.integers(1, 3),
    most=st.integers(0, 8),
)
def test_steps_are_those_of_the_schedule(count: int, batch: int, epochs: int, most: int) -> None:
    model = worlds.model("mlp", hidden=[])
    told: list[float] = []
    job = worlds.job(model, Schedule(epochs, batch, max_steps=most))
    trained = Trainer(model, "cpu").train(job, worlds.samples(count), told.append)
    full = epochs * ((count + batch - 1) // batch)
    assert trained.steps == (min(full, most) if most else full)
    assert told == [*((step + 1) / trained.steps for step in range(trained.steps)), 1.0]


def test_the_loss_is_the_last_epochs_mean_weighted_by_batch_sizes() -> None:
    model, data = worlds.model("mlp"), worlds.samples(10)
    trainer = Trainer(model, "cpu")
    still = Schedule(2, batch_size=4, learning_rate=1e-12)
    loss = trainer.train(worlds.job(model, still), data).loss
    assert loss == pytest.approx(trainer.evaluate(model.weights(), data).loss, rel=1e-5)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_same_job_twice_ends_in_the_same_bits(name: str) -> None:
    data = worlds.samples(20)
    job = worlds.job(worlds.model(name, dropout=0.5), Schedule(2, batch_size=6, momentum=0.9))
    trainer = Trainer(worlds.model(name, seed=2, dropout=0.5), "cpu")
    first = trainer.train(job, data)
    torch.manual_seed(1234)
    assert trainer.train(job, data).loss == first.loss
    assert same(trainer.train(job, data).weights, first.weights)
    fresh = Trainer(worlds.model(name, seed=3, dropout=0.5), "cpu").train(job, data)
    assert same(fresh.weights, first.weights)


def test_another_seed_shuffles_and_drops_otherwise() -> None:
    data, alone = worlds.samples(20), worlds.samples(1)
    dropping, calm = worlds.model("mlp", dropout=0.5), worlds.model("mlp")
    one_batch = Schedule(1, batch_size=20)  # of one sample, which no shuffle changes
    first = train(dropping, worlds.job(dropping, one_batch, seed=1), alone)
    assert not same(first, train(dropping, worlds.job(dropping, one_batch, seed=2), alone))
    first = train(calm, worlds.job(calm, one_batch, seed=1), alone)
    assert same(first, train(calm, worlds.job(calm, one_batch, seed=2), alone))
    shuffled = Schedule(1, batch_size=3)
    first = train(calm, worlds.job(calm, shuffled, seed=1), data)
    assert not same(first, train(calm, worlds.job(calm, shuffled, seed=2), data))


def test_training_leaves_global_generator_and_given_arrays_alone() -> None:
    model, data = worlds.model("mlp", dropout=0.5), worlds.samples(20)
    job = worlds.job(model)
    before, inputs = {k: v.copy() for k, v in job.weights.items()}, data.inputs.copy()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    train(model, job, data)
    assert torch.equal(torch.rand(3), expected)
    assert same(job.weights, before)
    assert same(model.weights(), before)
    assert np.array_equal(data.inputs, inputs)


def test_frozen_weights_stay_and_others_move() -> None:
    model, data = worlds.normalised_model(), worlds.samples(20)
    frozen = frozenset({"5.bias", "1.running_mean"})
    job = worlds.job(model, Schedule(1, 6, weight_decay=0.1), frozen=frozen)
    names = {
        name
        for name, array in train(model, job, data).items()
        if np.array_equal(array, job.weights[name])
    }
    assert names == frozen


def test_frozen_names_must_be_the_models_and_leave_something() -> None:
    model, data = worlds.model(), worlds.samples(4)
    with pytest.raises(DataError, match="typo"):
        train(model, worlds.job(model, frozen=frozenset({"typo"})), data)
    with pytest.raises(DataError, match="nothing to train"):
        train(model, worlds.job(model, frozen=frozenset(model.names)), data)


def test_the_larger_mu_the_nearer_a_training_stays() -> None:
    model, data = worlds.model(), worlds.samples(20)
    schedule, start = Schedule(3, batch_size=4), model.weights()

    def moved(mu: float) -> float:
        objective = Proximal(CrossEntropy(), mu)
        after = train(model, worlds.job(model, schedule, objective=objective), data)
        return sum(float(np.square(after[n] - start[n]).sum()) for n in start)

    distances = [moved(mu) for mu in (0.0, 0.1, 1.0, 5.0)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.5 * distances[0]


@pytest.mark.parametrize("form", ["read-only", "strided", "float64"])
def test_weights_of_any_form_start_the_same_training_and_stay_as_they_are(form: str) -> None:
    model, data = worlds.model(), worlds.samples(20)
    objective, start = Proximal(CrossEntropy(), 1.0), model.weights()
    job = worlds.job(model, Schedule(2, batch_size=4), objective=objective)
    wanted = train(model, job, data)
    assert same(start, dict(job.weights)), (
        "training does not change the weights that it starts from"
    )
    given = {name: array.copy() for name, array in start.items()}
    if form == "strided":
        given = {name: np.stack([array, -array], axis=-1)[..., 0] for name, array in given.items()}
    elif form == "float64":
        given = {name: array.astype(np.float64) for name, array in given.items()}
    for array in given.values():
        array.flags.writeable = form != "read-only"
    assert same(train(model, replace(job, weights=given), data), wanted)


def test_bf16_trains_nearly_as_fp32_and_keeps_fp32_weights() -> None:
    model, data = worlds.model("cnn"), worlds.samples(20)
    full = train(model, worlds.job(model, Schedule(2, 6)), data)
    half = train(model, worlds.job(model, Schedule(2, 6, precision="bf16")), data)
    assert all(array.dtype == np.float32 for array in half.values())
    assert not same(full, half)
    for name, array in full.items():
        np.testing.assert_allclose(half[name], array, atol=0.02)


def test_an_unknown_precision_is_a_usage_error() -> None:
    model = worlds.model()
    with pytest.raises(UsageError, match="fp8"):
        train(model, worlds.job(model, Schedule(precision="fp8")), worlds.samples(4))


def test_stop_ends_training_before_the_next_step() -> None:
    model, told = worlds.model(), list[float]()
    with pytest.raises(Stopped) as caught:
        Trainer(model, "cpu").train(
            worlds.job(model, Schedule(5, 4)),
            worlds.samples(20),
            told.append,
            lambda: len(told) == 3,
        )
    assert len(told) == 3
    assert caught.value.code == "train.stopped"


def test_divergence_is_a_clear_error() -> None:
    model = worlds.model()
    with pytest.raises(DataError, match="diverged") as caught:
        train(model, worlds.job(model, Schedule(50, 4, learning_rate=1e30)), worlds.samples(20))
    assert caught.value.code == "train.diverged"
    assert "training.learning_rate" in caught.value.hint


def test_weights_that_overflow_in_the_very_last_step_are_noticed() -> None:
    model = worlds.model("mlp", hidden=[])
    huge = Schedule(1, 20, learning_rate=3e38)
    data = worlds.samples(20)
    stretched = Samples(data.inputs * 100, data.targets)
    with pytest.raises(DataError, match="weights are no longer finite"):
        train(model, worlds.job(model, huge), stretched)


def broken(inputs: Array | None = None, targets: Array | None = None) -> Samples:
    good = worlds.samples(4)
    return Samples(
        good.inputs if inputs is None else inputs, good.targets if targets is None else targets
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (worlds.samples(0), "data.empty"),
        (worlds.samples(4, shape=(1, 9, 8)), "data.shape"),
        (broken(targets=np.array([0, 1, 3, 0])), "data.labels"),
        (broken(targets=np.array([0, 1, -1, 0])), "data.labels"),
        (broken(targets=np.array([0, 1, 1])), "data.targets"),
        (broken(targets=np.zeros((4, 2), np.float32)), "data.targets"),
        (broken(targets=np.array(["a", "b", "c", "d"])), "data.targets"),
        (broken(inputs=np.full((4, *worlds.SHAPE), np.nan, np.float32)), "data.not_finite"),
    ],
)
def test_data_that_cannot_be_trained_on_is_a_clear_error(data: Samples, code: str) -> None:
    model = worlds.model()
    with pytest.raises(DataError) as caught:
        train(model, worlds.job(model), data)
    assert caught.value.code == code
    assert caught.value.hint


def test_soft_targets_and_labels_train_alike() -> None:
    model, data = worlds.model(), worlds.samples(20)
    soft = Samples(data.inputs, np.eye(worlds.CLASSES, dtype=np.float32)[data.targets])
    hard_weights = train(model, worlds.job(model), data)
    for name, array in train(model, worlds.job(model), soft).items():
        np.testing.assert_allclose(array, hard_weights[name], rtol=1e-4, atol=1e-6)
    trainer = Trainer(model, "cpu")
    hard, mixed = (trainer.evaluate(model.weights(), test) for test in (data, soft))
    assert mixed.accuracy == hard.accuracy
    assert mixed.loss == pytest.approx(hard.loss)


def test_read_only_and_foreign_arrays_are_taken() -> None:
    model, data = worlds.model(), worlds.samples(8)
    frozen = Samples(data.inputs.astype(np.float64), data.targets.astype(np.uint8))
    frozen.inputs.flags.writeable = frozen.targets.flags.writeable = False
    assert same(train(model, worlds.job(model), frozen), train(model, worlds.job(model), data))


def test_the_jobs_extras_reach_the_objective_as_tensors() -> None:
    seen: list[torch.Tensor] = []

    def objective(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
        seen.append(context.extra["means"])
        return CrossEntropy()(forward, params, batch, context)

    model = worlds.model()
    job = Job(model.weights(), objective, Schedule(1, 20), 1, {"means": np.arange(3.0)})
    train(model, job, worlds.samples(20))
    assert seen[0].tolist() == [0, 1, 2]


def test_a_trained_model_examines_better_and_predicts_what_it_was_examined_on() -> None:
    model, data = worlds.model("cnn"), worlds.samples(300)
    trainer = Trainer(model, "cpu")
    after = trainer.train(worlds.job(model, Schedule(8, 16)), data).weights
    before, score = (trainer.evaluate(weights, data) for weights in (model.weights(), after))
    assert score.samples == 300
    assert score.accuracy is not None
    assert before.accuracy is not None
    assert score.accuracy > 0.9 > before.accuracy
    logits = trainer.predict(after, data.inputs)
    assert logits.shape == (300, worlds.CLASSES)
    assert (logits.argmax(axis=1) == data.targets).mean() == score.accuracy
    chance = logits - np.log(np.exp(logits.astype(np.float64)).sum(axis=1, keepdims=True))
    assert score.loss == pytest.approx(-chance[np.arange(300), data.targets].mean(), rel=1e-5)


def test_examining_drops_nothing_and_leaves_running_statistics() -> None:
    model, data = worlds.normalised_model(), worlds.samples(20)
    trainer, weights = Trainer(model, "cpu"), model.weights()
    assert trainer.evaluate(weights, data) == trainer.evaluate(weights, data)
    assert same(model.weights(), weights)
    dropping = worlds.model("mlp", dropout=0.9)
    assert np.array_equal(
        Trainer(dropping, "cpu").predict(dropping.weights(), data.inputs),
        Trainer(worlds.model("mlp"), "cpu").predict(dropping.weights(), data.inputs),
    )


def test_nothing_to_examine_or_predict_is_no_error() -> None:
    model = worlds.model()
    trainer = Trainer(model, "cpu")
    score = trainer.evaluate(model.weights(), worlds.samples(0))
    assert (score.loss, score.accuracy, score.samples) == (0.0, 0.0, 0)
    nothing = trainer.predict(model.weights(), np.zeros((0, *worlds.SHAPE), np.float32))
    assert nothing.shape == (0, worlds.CLASSES)


def test_weights_of_another_model_are_refused() -> None:
    trainer, other = Trainer(worlds.model("mlp", hidden=[4]), "cpu"), worlds.model("mlp")
    with pytest.raises(DataError, match="not this model's"):
        trainer.train(worlds.job(other), worlds.samples(4))
    with pytest.raises(DataError, match="not this model's"):
        trainer.evaluate(other.weights(), worlds.samples(4))


def test_images_come_in_the_order_that_convolutions_are_fastest_in() -> None:
    seen: list[tuple[int, ...]] = []

    def objective(forward: Forward, params: Params, batch: Batch, context: Context) -> torch.Tensor:
        seen.append(batch.inputs.stride())
        return CrossEntropy()(forward, params, batch, context)

    model = worlds.model("cnn")
    train(model, worlds.job(model, Schedule(1, 20), objective=objective), worlds.samples(20))
    assert seen == [(64, 1, 8, 1)]
