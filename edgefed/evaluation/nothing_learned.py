"""Detect that a model has learned nothing: its test is no better than a guess.

With k classes that have samples, n_c of each, a model that guesses has a balanced accuracy of 1 / k
on average, for any shares of the classes; a constant guess has exactly that. Its standard deviation
is at most

    sqrt( sum_c (1 / k) (1 - 1 / k) / n_c ) / k
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.evaluation.classification import averages
from edgefed.evaluation.confusion import Confusion

LEAST_SAMPLES, LEAST_ROUNDS = 50, 5
"""A smaller test, or a shorter run, says nothing."""

FALLEN = 0.8
"""A training loss that ends below this part of the first one has fallen."""


@dataclass(frozen=True)
class Finding:
    """A finding of a test, and advice."""

    text: str
    hint: str


def nothing_learned(
    confusion: Confusion,
    train_losses: Sequence[float],
    *,
    rounds: int,
    has_statistics: bool,
    called: Callable[[int], str],
) -> Finding | None:
    """Return a sign that the model learned nothing; None where it may have learned something.

    Args:
        confusion: of the last test.
        train_losses: by round, of those that have one.
        rounds: that were trained.
        has_statistics: whether the model has running statistics that are trained.
        called: returns the name of a label.
    """
    samples = confusion.samples[confusion.samples > 0]
    if len(samples) < 2 or samples.sum() < LEAST_SAMPLES or rounds < LEAST_ROUNDS:
        return None
    guess, score = 1 / len(samples), averages(confusion)["balanced_accuracy"]
    deviation = math.sqrt(guess * (1 - guess) * float((1 / samples).sum())) * guess
    if score > guess + 2 * deviation:
        return None
    fallen = len(train_losses) > 1 and train_losses[-1] < FALLEN * train_losses[0]
    return Finding(_shown(confusion, train_losses, fallen, called), _advice(fallen, has_statistics))


def _shown(
    confusion: Confusion,
    train_losses: Sequence[float],
    fallen: bool,
    called: Callable[[int], str],
) -> str:
    total = int(confusion.samples.sum())
    accuracy = float(confusion.hits.sum()) / total
    predicted = np.flatnonzero(confusion.predicted)
    if len(predicted) == 1:
        shown = f"it predicts {called(int(predicted[0]))} for all {total:,} test samples"
    else:
        shown = f"its test is no better than a guess (accuracy {accuracy:.3f})"
    if fallen:
        shown += f", although the training loss fell from {train_losses[0]:.3g}"
        shown += f" to {train_losses[-1]:.3g}"
    return shown


def _advice(fallen: bool, has_statistics: bool) -> str:
    if fallen and has_statistics:
        return (
            "train for more steps, raise the momentum of batch normalisation (model.norm_momentum"
            ' of torchvision\'s networks), or use model.norm = "group" where there is that key:'
            " running statistics may lag behind the weights"
        )
    if fallen:
        return (
            "train for more rounds, above all if devices have few classes each (edgefed data show);"
            " compare the labels and pixels of test and training samples"
        )
    return (
        "lower training.learning_rate if the loss jumps, else raise it; train for more rounds or"
        " epochs, above all if devices have few classes each (edgefed data show)"
    )
