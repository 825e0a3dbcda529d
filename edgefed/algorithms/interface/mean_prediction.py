"""The joint prediction of several models: the mean of their probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.config.recipes.sections import LossName
from edgefed.learn.base.types import Array


def mean_prediction(
    outputs: Sequence[Array], loss: LossName, weights: Sequence[float] | None = None
) -> Array:
    """Return the mean of outputs; where they are logits, the logarithm of the mean probability.

    Args:
        outputs: of each model, (samples, outputs).
        loss: that the models were trained with; outputs are logits except for squared error.
        weights: of the models; None for equal ones.
    """
    stacked = np.stack(outputs).astype(np.float64)
    own = np.ones(len(outputs)) if weights is None else np.asarray(weights, np.float64)
    weight = own[:, None, None]
    if loss == "squared_error":
        return np.asarray((stacked * weight).sum(axis=0) / own.sum())
    logs = stacked - np.logaddexp.reduce(stacked, axis=2, keepdims=True) + np.log(weight)
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(own.sum()))
