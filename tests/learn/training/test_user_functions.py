"""Users' own losses and metrics: used in training and tests, and refused with the reason."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from edgefed.errors import DataError, EdgeFedError
from edgefed.learn.base.types import Job, Objective, Samples, Schedule, Trained
from edgefed.learn.objectives.cross_entropy import CrossEntropy
from edgefed.learn.training.measures import Measures
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from edgefed.learn.training.user_losses import UserLoss, try_out_loss
from edgefed.learn.training.user_metrics import divided, find_metrics, measured
from tests.learn import worlds
from tests.learn.training.test_stacked import assert_alike

HERE = "tests.learn.own_functions"
LABELS = np.array([0, 2, 1, 2])


def own(name: str) -> str:
    return f"{HERE}:{name}"


def trained(objective: Objective, count: int = 24) -> Trained:
    model = worlds.model()
    job = Job(model.weights(), objective, Schedule(2, 6, 0.3), 5)
    return Trainer(model, "cpu").train(job, worlds.samples(count))


@pytest.mark.parametrize("name", ["cross_entropy", "mean_cross_entropy"])
def test_a_loss_per_sample_and_a_mean_train_as_ours_does(name: str) -> None:
    ours, users = trained(CrossEntropy()), trained(UserLoss(own(name)))
    assert users.loss == pytest.approx(ours.loss, rel=1e-5)
    for key, array in ours.weights.items():
        np.testing.assert_allclose(users.weights[key], array, atol=1e-5)


def test_another_loss_trains_another_model() -> None:
    ours, users = trained(CrossEntropy()), trained(UserLoss(own("focal")))
    assert users.loss < ours.loss
    assert any(not np.allclose(users.weights[key], ours.weights[key]) for key in ours.weights)


def test_many_clients_at_once_train_as_one_after_another() -> None:
    model = worlds.model()
    jobs = [Job(model.weights(), UserLoss(own("focal")), Schedule(1, 6, 0.3), n) for n in (1, 2)]
    data = [worlds.samples(12), worlds.samples(18)]
    assert_alike(model, jobs, data)


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("fails", "loss.failed", "ValueError: no such thing"),
        ("exits", "loss.failed", "SystemExit: 3"),
        ("a_number", "loss.output", "returns float, neither a loss per sample nor their mean"),
        ("a_matrix", "loss.output", "returns a tensor (4, 3)"),
        ("detached", "loss.output", "cannot be differentiated"),
        ("absent", "loss.import", "tests.learn.own_functions has no absent"),
        ("NUMBER", "loss.import", "is int, which cannot be called"),
    ],
)
def test_an_unusable_loss_is_told_in_one_line_before_anything_is_trained(
    name: str, code: str, told: str
) -> None:
    with pytest.raises(EdgeFedError) as caught:
        try_out_loss(own(name), 3, LABELS)
    assert caught.value.code == code
    assert told in caught.value.message
    assert "\n" not in caught.value.message


def test_without_samples_a_loss_is_only_looked_up() -> None:
    try_out_loss(own("fails"), 3, None)
    with pytest.raises(EdgeFedError, match=r"no module 'tests.learn.nowhere'"):
        try_out_loss("tests.learn.nowhere:loss", 3, None)


def test_a_loss_that_fails_in_training_fails_the_job() -> None:
    with pytest.raises(DataError, match="failed: ValueError: no such thing"):
        trained(UserLoss(own("fails")))


def test_evaluation_reports_a_users_loss_and_the_same_accuracy() -> None:
    """Over more than one batch of the evaluation, whose last one is smaller."""
    model, data = worlds.model(), worlds.samples(300)
    trainer = Trainer(model, "cpu")
    ours = trainer.evaluate(model.weights(), data)
    for name in ("cross_entropy", "mean_cross_entropy"):
        found = trainer.evaluate(model.weights(), data, own(name))
        assert found.loss == pytest.approx(ours.loss, rel=1e-5)
        assert (found.accuracy, found.samples) == (ours.accuracy, 300)
    logits = torch.tensor(trainer.predict(model.weights(), data.inputs))
    expected = float(UserLoss(own("focal")).of(logits, torch.tensor(data.targets)))
    found = trainer.evaluate(model.weights(), data, own("focal"))
    assert found.loss == pytest.approx(expected, rel=1e-5)
    predictions = ModelPredictions(trainer)
    other = score(lambda inputs: predictions(model.weights(), inputs), data, own("focal"))
    assert other.loss == pytest.approx(expected, rel=1e-5)
    assert other.accuracy == ours.accuracy


def test_of_numbers_a_users_loss_has_no_accuracy_and_nothing_is_counted_by_label() -> None:
    model, plain = worlds.model(), worlds.samples(20)
    numbers = np.random.default_rng(1).standard_normal((20, worlds.CLASSES)).astype(np.float32)
    data, trainer = Samples(plain.inputs, numbers), Trainer(model, "cpu")
    measures = Measures(confusion=True, top_k=2, metrics=(own("absolute_error"),))
    logits = trainer.predict(model.weights(), data.inputs)
    expected = float(torch.nn.functional.huber_loss(torch.tensor(logits), torch.tensor(numbers)))
    found = trainer.evaluate(model.weights(), data, own("huber"), measures)
    other = score(lambda inputs: logits, data, own("huber"), measures)
    for each in (found, other):
        assert each.loss == pytest.approx(expected, rel=1e-5)
        assert (each.accuracy, each.top_k_hits, each.confusion) == (None, None, None)
        numerator, denominator = each.fractions["absolute_error"]
        assert denominator == numbers.size
        assert numerator == pytest.approx(float(np.abs(logits - numbers).sum()), rel=1e-5)


def test_a_metric_sees_all_samples_of_a_test_at_once() -> None:
    model, data = worlds.model(), worlds.samples(300)
    trainer, measures = Trainer(model, "cpu"), Measures(metrics=(own("even_recall"),))
    predicted = trainer.predict(model.weights(), data.inputs).argmax(axis=1)
    even = data.targets % 2 == 0
    expected = {"even_recall": (float((predicted[even] % 2 == 0).sum()), float(even.sum()))}
    found = trainer.evaluate(model.weights(), data, measures=measures)
    predictions = ModelPredictions(trainer)
    other = score(lambda inputs: predictions(model.weights(), inputs), data, measures=measures)
    assert found.fractions == other.fractions == expected
    assert trainer.evaluate(model.weights(), data).fractions == {}


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("fails", "metric.failed", "ValueError: no such thing"),
        ("single", "metric.failed", "TypeError"),
        ("not_finite", "metric.output", "returns nan and 1"),
        ("negative", "metric.output", "returns 1 and -1"),
    ],
)
def test_a_metric_that_is_no_fraction_is_told_in_one_line(name: str, code: str, told: str) -> None:
    with pytest.raises(DataError) as caught:
        measured([own(name)], torch.zeros(4, 3), torch.tensor(LABELS))
    assert caught.value.code == code
    assert told in caught.value.message
    assert "\n" not in caught.value.message


def test_a_metric_that_is_not_there_is_refused() -> None:
    find_metrics([own("tenth")])
    with pytest.raises(EdgeFedError) as caught:
        find_metrics([own("tenth"), own("absent")])
    assert caught.value.code == "metric.import"


def test_fractions_are_summed_the_same_in_any_order_and_divided_at_the_end() -> None:
    parts = [(0.1 * n, float(n)) for n in range(1, 60)]
    first = divided({"tenth": parts})
    random.Random(3).shuffle(parts)
    assert divided({"tenth": parts}) == first
    assert divided({"few": [(1.0, 2.0), (0.0, 6.0)], "none": [(0.0, 0.0)]}) == {"few": 0.125}
