"""Checks of the answers to the exchanges of secure aggregation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.algorithms.secure.secure_keys import (
    CERTIFICATE,
    MAX_CERTIFICATE,
    MAX_SIGNATURE,
    SIGNATURE,
    wrong_keys,
)
from edgefed.algorithms.secure.secure_phases import (
    ADVERTISED,
    COMMITMENTS,
    KEYS,
    LISTS,
    SHARES,
    SIGNED,
    UNCOVERED,
    UNMASK,
)
from edgefed.learn.base.types import Array
from edgefed.sharing.pairwise_keys import commitment
from edgefed.sharing.shamir import SHARE_BYTES

DIGEST_BYTES = 32


def wrong_answer(exchange: Exchange, answer: Answer) -> str:
    """Return why an answer cannot be merged, or nothing."""
    if answer.samples != 1 or answer.metrics:
        return "it tells samples or metrics beside what is masked"
    question = next(question for question in exchange.questions if question.device == answer.device)
    if exchange.name == KEYS:
        return wrong_keys(answer.groups[ADVERTISED].arrays)
    if exchange.name == SHARES:
        return _wrong_shares(question, answer)
    if exchange.name == LISTS:
        return _wrong_signature(answer.groups[SIGNED].arrays)
    if exchange.name == UNMASK:
        return _wrong_uncovering(question, answer.groups[UNCOVERED].arrays)
    return ""


def _wrong_shares(question: Question, answer: Answer) -> str:
    """Return the problem of commitments and of blobs for other devices, or nothing."""
    arrays, count = answer.groups[COMMITMENTS].arrays, len(question.params["devices"])
    if not _is(arrays, COMMITMENTS, (count, 2 * DIGEST_BYTES)) or len(arrays) != 1:
        return "it does not commit to its shares"
    if {relay.receiver for relay in answer.relayed} != set(question.receivers):
        return "it does not send every other device its shares"
    return ""


def _wrong_signature(arrays: Mapping[str, Array]) -> str:
    if set(arrays) != {SIGNATURE, CERTIFICATE}:
        return "it does not sign"
    for name, most in ((SIGNATURE, MAX_SIGNATURE), (CERTIFICATE, MAX_CERTIFICATE)):
        array = arrays[name]
        if array.dtype != np.uint8 or array.ndim != 1 or not 0 < array.size <= most:
            return f"its {name} has a wrong size"
    return ""


def _wrong_uncovering(question: Question, arrays: Mapping[str, Array]) -> str:
    """Return the problem of shares, each of which must fit its maker's commitment, or nothing."""
    commitments = question.params["commitments"]
    count = len(commitments)
    if not (
        len(arrays) == 2
        and _is(arrays, UNCOVERED, (count, SHARE_BYTES))
        and _is(arrays, "known", (count,))
    ):
        return "it does not tell a share of each device"
    for place, wanted in enumerate(commitments):
        shares = arrays[UNCOVERED][place].tobytes()
        # A share that it does not know is sent as zeros, for which there is no commitment
        if arrays["known"][place] and commitment(shares).hex() != wanted:
            return "a share that it tells is not the one that it was sent"
    return ""


def _is(arrays: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> bool:
    """Whether there are bytes of this name and shape."""
    array = arrays.get(name)
    return array is not None and array.dtype == np.uint8 and array.shape == shape
