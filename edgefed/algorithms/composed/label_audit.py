"""The disclosure of a device's labels by its answer to the coordinator, for any algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgefed.algorithms.averaging.training import adjusts_labels, schedule_of
from edgefed.algorithms.experts.expert_records import MIXTURE, PHI, TABLE
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.matched.fedma_records import LAYER, STEP, WEIGHTS
from edgefed.config.recipes.training_section import TrainingSection
from edgefed.learn.base.mixture_table import shares_of
from edgefed.learn.base.types import Array
from edgefed.sharing.label_leakage import (
    frequencies_after_one_step,
    frequencies_after_steps,
    frequencies_of_mixture,
)

Source = Literal["mixture", "output-bias"]
"""``mixture``: the shares q(z|s) with the table that they were computed with; ``output-bias``: the
change of the output layer's bias."""


@dataclass(frozen=True, eq=False)
class Disclosure:
    """Label frequencies that were computed from an answer.

    Attributes:
        source: the part of the answer.
        role: the reply role of that part.
        shares: of the labels (labels,).
        determined: whether no other frequencies give the same answer; for an output bias, whether
            the answer is one step of gradient descent.
    """

    source: Source
    role: str
    shares: Array
    determined: bool


def disclosures(
    answer: Answer,
    state: State,
    number: int,
    training: TrainingSection,
    bias: str,
    by_label: bool = True,
    rounds: int = 0,
) -> Iterator[Disclosure]:
    """Yield the label frequencies that an answer discloses; none where it has neither part.

    Args:
        answer: as the coordinator decodes it.
        state: that the exchange was planned from.
        number: of the round.
        training: the recipe's section.
        bias: name of the output layer's bias; empty for a model without one.
        by_label: whether a table of shares has a row for each label, and not for a column's values.
        rounds: planned rounds of the run.
    """
    if by_label and MIXTURE in answer.groups and TABLE in answer.groups and TABLE in state.groups:
        table = state.groups[TABLE][PHI] + answer.groups[TABLE].arrays[PHI]
        yield of_mixture(answer.groups[MIXTURE].arrays["raw"], table)
        return
    for role, group in answer.groups.items():
        if bias and bias in group.arrays:
            change, steps = group.arrays[bias], answer.metrics.get("steps", 0.0)
            if role == LAYER:  # FedMA sends weights, and trains before each of its steps
                change = change - state.groups[WEIGHTS][bias]
                steps = 0.0 if state.params[STEP] else steps
            plain = steps == 1 and _is_plain_descent(training)
            rate = schedule_of(training, number, rounds).rate(0, 1) if plain else 0.0
            yield _of_bias(role, change, rate)


def of_mixture(mixture: Array, table: Array) -> Disclosure:
    """Return the disclosure of shares q(z|s), with the table's logits (labels, experts)."""
    estimate = frequencies_of_mixture(mixture, shares_of(table))
    return Disclosure("mixture", MIXTURE, estimate.shares, estimate.determined)


def _is_plain_descent(training: TrainingSection) -> bool:
    """Return whether a step moves weights by the learning rate times the loss's own gradient."""
    clips = training.max_gradient_norm > 0
    return training.optimizer == "sgd" and not (
        training.nesterov or clips or adjusts_labels(training)
    )


def _of_bias(role: str, bias: Array, rate: float) -> Disclosure:
    """Return the disclosure of the change of the output layer's bias.

    Args:
        role: of the reply.
        bias: its change.
        rate: of plain gradient descent, if the change is one step of it; else 0.
    """
    change = np.ravel(bias)
    if rate > 0:
        shares = frequencies_after_one_step(change, rate)
        return Disclosure("output-bias", role, shares, determined=True)
    return Disclosure("output-bias", role, frequencies_after_steps(change), determined=False)
