"""Evaluate any predictor on samples: mean loss and accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from edgefed.config.recipe import LossName
from edgefed.learn.types import Array, Samples, Score, Tensors


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


def score(predictor: Predictor, samples: Samples, loss: LossName = "cross_entropy") -> Score:
    """Return mean loss and accuracy of a predictor's outputs; zeros over no samples.

    Squared error has no accuracy: None.
    """
    if not len(samples):
        return Score(0.0, None if loss == "squared_error" else 0.0, 0)
    scores, targets = predictor(samples.model_inputs).astype(np.float64), samples.targets
    if loss == "squared_error":
        return Score(float(np.square(scores - targets).mean()), None, len(targets))
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    if samples.has_labels:
        each, labels = log_softmax[np.arange(len(targets)), targets], targets
    else:
        each, labels = (log_softmax * targets).sum(axis=1), targets.argmax(axis=1)
    return Score(
        loss=float(-each.mean()),
        accuracy=float((scores.argmax(axis=1) == labels).mean()),
        samples=len(targets),
    )
