"""Check that an algorithm merges in accordance with its capabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import CAPABILITIES, State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.learn.base.types import Tensors
from edgefed.testing.common import called, require
from edgefed.testing.play import asked

AVERAGING = ("averages_updates", "private_updates", "sums_deltas")
"""Capabilities with which equal updates must merge as one of them."""


def check_capabilities(
    half: CompleteAlgorithm[Any], state: State, planned: Exchange, answers: Sequence[Answer]
) -> None:
    """Check the capabilities of an algorithm on the answers to one exchange.

    Args:
        half: the coordinator's half.
        state: the state from which the exchange was planned.
        planned: the exchange.
        answers: one of each device.

    Raises:
        AssertionError: a capability is declared that the merge, or the exchange, contradicts.
    """
    declared = [name for name in CAPABILITIES if getattr(half, name)]
    if not declared or planned.preparatory or not answers:
        return
    averaging = [name for name in AVERAGING if name in declared]
    if averaging:
        _check_averaging(half, state, planned, answers, averaging)
    if half.takes_user_loss:
        _check_loss_unread(half, state, planned, answers)
    if half.personal_weights:
        roles = {role for question in planned.questions for role in question.blobs}
        require(
            "weights" in roles and "delta" in planned.reply_roles,
            f"personal_weights is declared, but '{planned.name}' does not send 'weights' and ask"
            " for a 'delta'",
        )


def _check_averaging(
    half: CompleteAlgorithm[Any],
    state: State,
    planned: Exchange,
    answers: Sequence[Answer],
    averaging: Sequence[str],
) -> None:
    """Check that a merge reads no metrics, and that equal updates merge as one of them."""
    bare = [replace(answer, metrics={}) for answer in answers]
    what = f"merge of '{planned.name}' without metrics"
    stripped = called(what, _weights, half, state, planned, bare)
    require(
        _close(_weights(half, state, planned, answers), stripped),
        f"merge of '{planned.name}' reads metrics, which are not sent with privacy or secure"
        f" aggregation; set {' = '.join(averaging)} = False",
    )
    equal = [
        replace(answers[0], device=answer.device, samples=answer.samples) for answer in answers
    ]
    others = [
        replace(answer, metrics={name: value * number for name, value in answer.metrics.items()})
        for number, answer in enumerate(equal, 1)
    ]
    one, all_of_them = (_weights(half, state, planned, some) for some in (equal[:1], others))
    require(
        _close(one, all_of_them),
        f"merge of '{planned.name}' does not average updates: equal updates with unequal samples,"
        f" losses and metrics merge as something else; set {' = '.join(averaging)} = False",
    )


def _check_loss_unread(
    half: CompleteAlgorithm[Any], state: State, planned: Exchange, answers: Sequence[Answer]
) -> None:
    """Check that a merge does not depend on the value of the metric ``loss``."""
    changed = [
        replace(
            answer, metrics={**answer.metrics, "loss": answer.metrics["loss"] * number + number}
        )
        if "loss" in answer.metrics
        else answer
        for number, answer in enumerate(answers, 1)
    ]
    one, other = (_weights(half, state, planned, some) for some in (answers, changed))
    require(
        _close(one, other),
        f"merge of '{planned.name}' reads the metric loss, whose values a user's loss may choose"
        " freely; set takes_user_loss = False",
    )


def _weights(
    half: CompleteAlgorithm[Any], state: State, planned: Exchange, answers: Sequence[Answer]
) -> Tensors:
    """Return the weights of all models after a merge."""
    after = half.merge(state, asked(planned), iter(answers))
    return {
        f"{model}/{name}": array
        for model, weights in half.models(after).items()
        for name, array in weights.items()
    }


def _close(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(
        array.shape == other[name].shape and np.allclose(array, other[name], rtol=1e-5, atol=1e-6)
        for name, array in one.items()
    )
