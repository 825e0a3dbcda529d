"""Label smoothing and class weights of cross-entropy, as a change of its targets.

With targets y (one-hot for labels), smoothing e, weights w and C classes, the loss of B samples is

    - 1/B sum_b sum_c a_bc log softmax(f_b)_c,    a_bc = w_c ((1 - e) y_bc + e / C) / v

with v = 1 for soft targets, and for labels v = 1/B sum_b w_(y_b). That is the mean over weights of
torch's ``cross_entropy(weight=…, label_smoothing=…)`` for labels, and its mean over the batch for
soft targets. Where all labels of a batch have weight 0, torch's loss is not a number, and this is
0.
"""

from __future__ import annotations

import numpy as np
import torch

from edgefed.config.recipes.class_weights import ClassWeights
from edgefed.errors import RecipeError
from edgefed.learn.base.types import Array, Samples
from edgefed.learn.objectives.label_counts import label_counts
from edgefed.learn.objectives.losses import soft

CLASS_WEIGHTS = "class_weights"
"""The extra that holds w: float32 (classes,)."""


def adjusted(
    targets: torch.Tensor, outputs: torch.Tensor, smoothing: float, weights: torch.Tensor | None
) -> torch.Tensor:
    """Return a (batch, classes), in float32 at least.

    Args:
        targets: labels (batch,) or soft targets (batch, classes).
        outputs: logits (batch, classes), for the number of classes and the dtype.
        smoothing: e.
        weights: w (classes,); None for 1.
    """
    kind = torch.promote_types(outputs.dtype, torch.float32)
    wanted = soft(targets, outputs).to(kind)
    smoothed = wanted * (1 - smoothing) + smoothing / outputs.shape[-1]
    if weights is None:
        return smoothed
    weights = weights.to(kind)
    if targets.is_floating_point():
        return smoothed * weights
    mean = (wanted * weights).sum(dim=-1).mean()
    return torch.where(mean > 0, smoothed * weights / mean, torch.zeros_like(smoothed))


def class_weights(choice: ClassWeights, samples: Samples, classes: int) -> Array:
    """Return w of a device with these samples, float32 (classes,); all 1 where there are none.

    ``balanced`` are n / (K n_c), with n samples of K classes, n_c of them of class c, as in
    scikit-learn; a class without samples has weight 0.

    Raises:
        RecipeError: ``train.class_weights``: there is not one number for each class.
        DataError: ``train.label_counts``: a label is none of the classes.
    """
    if choice == "none":
        return np.ones(classes, np.float32)
    if choice == "balanced":
        counts = label_counts(samples, classes).astype(np.float64)
        present = counts > 0
        share = counts.sum() / max(1, np.count_nonzero(present))
        balanced = np.divide(share, counts, out=np.zeros(classes), where=present)
        return np.asarray(balanced, np.float32)
    check_class_weights(choice, classes)
    return np.asarray(choice, np.float32)


def check_class_weights(choice: ClassWeights, classes: int) -> None:
    """Check that there is one number for each class, if there are numbers.

    Raises:
        RecipeError: ``train.class_weights``.
    """
    if isinstance(choice, tuple) and len(choice) != classes:
        raise RecipeError(
            f"There are {len(choice)} class weights, and the run has {classes} classes.",
            code="train.class_weights",
            hint='give training.class_weights a number for each class, or set it to "balanced"',
        )
