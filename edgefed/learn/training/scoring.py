"""Evaluate any predictor on samples: mean loss and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch

from edgefed.config.recipes.sections import LossName
from edgefed.learn.base.types import Array, Samples, Score, Tensors
from edgefed.learn.training.measures import NOTHING_MORE, Measures, Tally
from edgefed.learn.training.targets import has_accuracy
from edgefed.learn.training.user_losses import UserLoss, is_user_loss
from edgefed.learn.training.user_metrics import measured


class Predict(Protocol):
    """How a single model predicts; ``ModelPredictions`` is the one of a trainer."""

    def __call__(self, weights: Tensors, inputs: Array) -> Array:
        """Return the logits (n, classes) of inputs (n, …) under weights."""
        ...

    def with_features(self, weights: Tensors, inputs: Array) -> tuple[Array, Array]:
        """Return the logits (n, classes), and the features (n, width) that they are made of."""
        ...


Predictor = Callable[[Array], Array]
"""Inputs (n, …) to class scores (n, classes)."""


def score(
    predictor: Predictor,
    samples: Samples,
    loss: LossName = "cross_entropy",
    measures: Measures = NOTHING_MORE,
) -> Score:
    """Return mean loss and accuracy of a predictor's outputs; zeros over no samples.

    Where targets are numbers there is no accuracy: None.
    """
    labelled = has_accuracy(loss, samples)
    if not len(samples):
        return Score(0.0, 0.0 if labelled else None, 0)
    outputs, targets = predictor(samples.model_inputs), samples.targets
    fractions = measured(measures.metrics, *_tensors(outputs, targets)) if measures.metrics else {}
    own = float(UserLoss(loss).of(*_tensors(outputs, targets))) if is_user_loss(loss) else None
    scores = outputs.astype(np.float64)
    if not labelled:
        error = float(np.square(scores - targets).mean()) if own is None else own
        return Score(error, None, len(targets), fractions=fractions)
    # Shifted, so that no exponential overflows
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    if samples.has_labels:
        log_likelihoods, labels = log_softmax[np.arange(len(targets)), targets], targets
    else:
        log_likelihoods, labels = (log_softmax * targets).sum(axis=1), targets.argmax(axis=1)
    tally = Tally(measures)
    tally.add(scores, scores.argmax(axis=1), labels)
    return Score(
        loss=float(-log_likelihoods.mean()) if own is None else own,
        accuracy=tally.right / len(targets),
        samples=len(targets),
        top_k_hits=tally.top_k_hits,
        confusion=tally.confusion,
        fractions=fractions,
    )


def _tensors(outputs: Array, targets: Array) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs and targets as users' code takes them."""
    return torch.tensor(outputs, dtype=torch.float32), torch.tensor(targets)
