"""How experts predict together: on a device with a gate, and on one that has only others'."""

from __future__ import annotations

import numpy as np
import pytest

from edgefed.learn.base.mixture_table import pruned
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.training.mixture_prediction import (
    Gate,
    device_predictor,
    gate_probabilities,
    marginal_predictor,
    mixture_scores,
    prior_shares,
)
from edgefed.learn.training.scoring import score
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from tests.learn import worlds

K, FEATURES, CLASSES, N = 3, 4, 5, 7
NUMBERS = np.random.default_rng(5)
LOGITS = {k: NUMBERS.normal(size=(N, CLASSES)).astype(np.float32) for k in range(K)}
HIDDEN = {k: NUMBERS.normal(size=(N, FEATURES)).astype(np.float32) for k in range(K)}
WEIGHT, BIAS = NUMBERS.normal(size=(FEATURES, K)), NUMBERS.normal(size=K)
SHARES = np.array([0.5, 0.3, 0.2])


def softmax(scores: Array) -> Array:
    exponents = np.exp(scores.astype(np.float64))
    found: Array = exponents / exponents.sum(-1, keepdims=True)
    return found


def test_the_gate_takes_the_mean_of_the_features_by_the_mixture() -> None:
    mixed = sum(SHARES[k] * HIDDEN[k].astype(np.float64) for k in range(K))
    found = gate_probabilities(HIDDEN, SHARES, WEIGHT, BIAS, range(K))
    np.testing.assert_allclose(found, softmax(mixed @ WEIGHT + BIAS), rtol=1e-12)


def test_a_pruned_expert_has_no_probability_and_no_part_in_the_features() -> None:
    kept = {0: HIDDEN[0], 2: HIDDEN[2]}  # the device was never sent expert 1
    found = gate_probabilities(kept, SHARES, WEIGHT, BIAS, (0, 2))
    mixed = (0.5 * HIDDEN[0].astype(np.float64) + 0.2 * HIDDEN[2].astype(np.float64)) / 0.7
    scores = (mixed @ WEIGHT + BIAS)[:, [0, 2]]
    np.testing.assert_allclose(found[:, [0, 2]], softmax(scores), rtol=1e-12)
    assert not found[:, 1].any()
    np.testing.assert_allclose(pruned(SHARES, (0, 2)), [5 / 7, 0, 2 / 7])
    np.testing.assert_allclose(pruned(np.array([0.0, 1.0, 0.0]), (0, 2)), [0.5, 0, 0.5])


def test_the_mixture_is_the_sum_of_what_the_experts_say() -> None:
    gates = gate_probabilities(HIDDEN, SHARES, WEIGHT, BIAS, range(K))
    bias = NUMBERS.normal(size=CLASSES)
    found = mixture_scores(LOGITS, gates, bias)
    by_hand = sum(gates[:, [k]] * softmax(LOGITS[k] + bias) for k in range(K))
    np.testing.assert_allclose(np.exp(found), by_hand, rtol=1e-12)
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0, rtol=1e-12)
    without = mixture_scores({k: LOGITS[k] for k in (0, 2)}, gates * [1, 0, 1])
    np.testing.assert_allclose(
        np.exp(without), gates[:, [0]] * softmax(LOGITS[0]) + gates[:, [2]] * softmax(LOGITS[2])
    )


def test_extreme_logits_leave_the_scores_finite() -> None:
    wild = {0: np.array([[3e4, 0.0]], np.float32), 1: np.array([[-3e4, 0.0]], np.float32)}
    found = mixture_scores(wild, np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(found, [[0.0, -3e4]])


def _experts(trainer: Trainer) -> dict[int, Tensors]:
    own = trainer.model.weights()
    numbers = np.random.default_rng(3)
    drawn = {name: numbers.normal(0, 1, a.shape).astype(np.float32) for name, a in own.items()}
    return {0: own, 1: drawn}


def test_one_expert_predicts_as_the_model_that_it_is() -> None:
    trainer, data = Trainer(worlds.model("mlp"), "cpu"), worlds.samples(40)
    expert, width = _experts(trainer)[1], trainer.model.output_layer.width
    gate = Gate(np.zeros((width, 1)), np.zeros(1), np.ones(1), (0,))
    predictor = device_predictor({0: expert}, gate)(ModelPredictions(trainer))
    found, tested = score(predictor, data), trainer.evaluate(expert, data)
    assert found.loss == pytest.approx(tested.loss, rel=1e-5)
    assert found.accuracy == tested.accuracy


def test_a_device_without_labels_averages_the_gates_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgefed.learn.training.mixture_prediction.PREDICTED_ROWS", 16)
    trainer, inputs = Trainer(worlds.model("mlp"), "cpu"), worlds.samples(40).inputs
    experts, width = _experts(trainer), trainer.model.output_layer.width
    predict = ModelPredictions(trainer)
    first = Gate(NUMBERS.normal(size=(width, 2)), np.zeros(2), np.array([0.9, 0.1]), (0, 1))
    second = Gate(np.zeros((width, 2)), np.zeros(2), np.array([0.1, 0.9]), (1,))
    each = [np.exp(device_predictor(experts, g)(predict)(inputs)) for g in (first, second)]
    found = np.exp(
        marginal_predictor(experts, (first, second), prior_shares([3, 1]))(predict)(inputs)
    )
    np.testing.assert_allclose(found, 0.75 * each[0] + 0.25 * each[1], rtol=1e-6)
