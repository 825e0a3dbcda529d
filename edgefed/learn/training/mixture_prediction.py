"""Predict with a mixture of experts, p(y|x) = sum_k p(k|x) p_k(y|x): on a known or a new device.

A device's gate takes the mean of its experts' features, weighted by the device's mixture q(z|s)
(equation 9 of Reisser et al., arXiv 2107.06724). Probabilities are normalised over the experts that
are kept, while training normalises the gate over all experts (``expert_mixture``). A new
device without labels has no gate; its probabilities are those of other devices' gates, averaged
(``marginal_predictor``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from edgefed.learn.base.mixture_table import pruned
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.training.scoring import Predict, Predictor

Floats: TypeAlias = npt.NDArray[np.float64]
"""Numbers with which probabilities are computed."""

PREDICTED_ROWS = 1024
"""Samples whose logits and features of all experts are in memory at a time."""


@dataclass(frozen=True)
class Gate:
    """A device's gate over K experts, and the mixture that it takes features by.

    Attributes:
        weight: (F, K), for F features.
        bias: (K,).
        shares: (K,), the device's mixture q(z|s).
        kept: numbers of the experts that the device uses; all others get probability 0.
    """

    weight: Array
    bias: Array
    shares: Array
    kept: tuple[int, ...]


@dataclass(frozen=True)
class ExpertOutputs:
    """Outputs of experts, by number, on the same n inputs.

    Attributes:
        logits: (n, classes) of each.
        features: (n, F) of each.
    """

    logits: Mapping[int, Array]
    features: Mapping[int, Array]


def gate_probabilities(
    features_by_expert: Mapping[int, Array],
    shares: Array,
    weight: Array,
    bias: Array,
    kept: Sequence[int],
) -> Floats:
    """Return p(z|x, s) of each sample, (n, K): 0 for experts that are not kept.

    Args:
        features_by_expert: features (n, F) of at least the kept experts.
        shares: (K,), the device's mixture q(z|s); that of the other experts is not used.
        weight: (F, K) of the gate.
        bias: (K,) of the gate.
        kept: numbers of the experts that the device uses, at least one.
    """
    chosen, mixture = list(kept), pruned(shares, tuple(kept))
    mixed = sum(mixture[k] * features_by_expert[k].astype(np.float64) for k in chosen)
    scores = mixed @ weight[:, chosen].astype(np.float64) + bias[chosen].astype(np.float64)
    probabilities = np.zeros((len(scores), len(shares)))
    probabilities[:, chosen] = np.exp(log_softmax(scores))
    return probabilities


def mixture_scores(
    logits_by_expert: Mapping[int, Array],
    probabilities: Array,
    personal_bias: Array | None = None,
) -> Floats:
    """Return log p(y|x), (n, classes), of the mixture.

    Args:
        logits_by_expert: logits (n, classes) of the experts with any probability.
        probabilities: p(z|x) of each sample, (n, K).
        personal_bias: (classes,) that the device adds to the logits of every expert.
    """
    bias = np.zeros(1) if personal_bias is None else personal_bias.astype(np.float64)
    # The logarithm of a probability of 0 is minus infinity, which adds nothing to the sum
    with np.errstate(divide="ignore"):
        weights = np.log(probabilities.astype(np.float64))
    terms = [
        weights[:, [k]] + log_softmax(logits.astype(np.float64) + bias)
        for k, logits in sorted(logits_by_expert.items())
    ]
    joint: Floats = np.logaddexp.reduce(np.stack(terms), axis=0)
    return joint


def device_predictor(
    experts: Mapping[int, Tensors], gate: Gate, personal_bias: Array | None = None
) -> Callable[[Predict], Predictor]:
    """Return how a device with a gate of its own predicts, for a ``PredictorEvalJob``.

    Args:
        experts: weights by number, of at least the kept experts.
        gate: the device's.
        personal_bias: see ``mixture_scores``.
    """

    def scores(outputs: ExpertOutputs, inputs: Array) -> Array:
        del inputs
        return mixture_scores(outputs.logits, _gated(outputs, gate), personal_bias)

    return lambda predict: _in_parts(predict, {k: experts[k] for k in gate.kept}, scores)


def marginal_predictor(
    experts: Mapping[int, Tensors],
    gates: Sequence[Gate],
    device_shares: Callable[[Array], Array],
) -> Callable[[Predict], Predictor]:
    """Return how a device without labels predicts, p(z|x) = sum_s p(z|x, s) p(s|x).

    Args:
        experts: weights by number, of all experts.
        gates: of the S devices that gave theirs.
        device_shares: inputs (n, …) to p(s|x), (n, S); see ``prior_shares``.
    """

    def scores(outputs: ExpertOutputs, inputs: Array) -> Array:
        shares = device_shares(inputs)
        terms = (shares[:, [s]] * _gated(outputs, gate) for s, gate in enumerate(gates))
        return mixture_scores(outputs.logits, sum(terms, start=np.zeros(1)))

    return lambda predict: _in_parts(predict, experts, scores)


def prior_shares(samples: Sequence[int]) -> Callable[[Array], Floats]:
    """Return p(s|x) = p(s), each device's share of all samples, whatever the input."""
    prior = np.asarray(samples, np.float64) / sum(samples)
    return lambda inputs: np.tile(prior, (len(inputs), 1))


def log_softmax(scores: Floats) -> Floats:
    """Return scores (n, …) as logarithms of probabilities over their last axis."""
    # Shifted, so that no exponential overflows
    shifted = scores - scores.max(axis=-1, keepdims=True)
    normalised: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


def _gated(outputs: ExpertOutputs, gate: Gate) -> Floats:
    return gate_probabilities(outputs.features, gate.shares, gate.weight, gate.bias, gate.kept)


def _in_parts(
    predict: Predict,
    experts: Mapping[int, Tensors],
    scores: Callable[[ExpertOutputs, Array], Array],
) -> Predictor:
    """Return a predictor that runs all experts on a part of the inputs at a time."""

    def predicted(inputs: Array) -> Array:
        # One part at least, so that no inputs give scores of the right width
        starts = range(0, max(1, len(inputs)), PREDICTED_ROWS)
        return np.concatenate([part(inputs[k : k + PREDICTED_ROWS]) for k in starts])

    def part(inputs: Array) -> Array:
        outputs = {k: predict.with_features(weights, inputs) for k, weights in experts.items()}
        logits = {k: pair[0] for k, pair in outputs.items()}
        return scores(ExpertOutputs(logits, {k: pair[1] for k, pair in outputs.items()}), inputs)

    return predicted
