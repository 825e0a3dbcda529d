"""What a device refuses a coordinator that asks for more than one sum, and with which reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.interface.exchange import Exchange, Question
from edgefed.algorithms.secure.secure_phases import FORM
from edgefed.sharing.policy import Withheld
from tests.algorithms.secure.test_secure_aggregation import devices
from tests.algorithms.secure_play import (
    ALL,
    FIT,
    KEYS,
    SHARES,
    UNMASK,
    Round,
    algorithm,
    question_of,
    refusal,
)

ME = "device-03"


def at(name: str) -> tuple[Round, Exchange, Question]:
    """Return a round before an exchange, and what the device is asked in it."""
    secure = Round.of(algorithm(), devices())
    planned = secure.until(name)
    return secure, planned, question_of(planned, ME)


def with_params(question: Question, **changes: Any) -> Question:
    return replace(question, params={**question.params, **changes})


def without(*names: str) -> Callable[[list[str]], list[str]]:
    return lambda devices: [each for each in devices if each not in names]


FEW = ALL[:6]


def test_keys_are_made_once_for_a_session_and_never_for_an_earlier_one() -> None:
    secure, planned, question = at(SHARES)
    keys = replace(planned, name=KEYS)
    for number in (1, 0):
        params = {"form": FORM, "number": number, "threshold": 7}
        asked = replace(question, params=params, blobs={})
        assert f"the keys of secure session {number}, and has made those of 1 already" in refusal(
            secure, keys, asked
        )


@pytest.mark.parametrize(
    ("threshold", "count"), [(1, 1), (1, 2), (5, 10), (4, 10), (11, 10)], ids=str
)
def test_no_secret_is_shared_below_half_of_the_cohort(threshold: int, count: int) -> None:
    secure = Round.of(algorithm(), devices())
    keys = secure.plan()
    keys = replace(
        keys, questions=tuple(with_params(each, threshold=threshold) for each in keys.questions)
    )
    secure.merge(replace(keys, quorum=1), secure.answers(keys, lost=ALL[count:]))
    planned = secure.plan()
    question = planned.questions[0]
    with pytest.raises(Withheld, match="more than half of the devices"):
        secure.devices.answer(secure.half, planned, question)


def test_its_own_keys_have_to_be_among_those_it_is_told() -> None:
    secure, planned, question = at(SHARES)
    group = dict(planned.payloads["secure-keys"].arrays)
    group["mask"] = group["mask"][[1, 0, 2, *range(4, 10), 3]]
    payload = replace(planned.payloads["secure-keys"], arrays=group)
    wrong = replace(planned, payloads={"secure-keys": payload})
    assert "its own keys are not among the cohort's keys" in refusal(secure, wrong, question)


def test_secrets_are_shared_once() -> None:
    secure, planned, question = at(SHARES)
    secure.devices.answer(secure.half, planned, question)
    other = with_params(question, devices=without("device-09")(ALL))
    assert "has shared its secrets" in refusal(secure, planned, other)


def with_cohort(question: Question, cohort: list[str]) -> Question:
    return with_params(question, secure={**question.params["secure"], "devices": cohort})


def test_an_update_is_masked_for_one_cohort_only() -> None:
    secure, planned, question = at(FIT)
    secure.devices.answer(secure.half, planned, question)
    other = with_cohort(question, without("device-09")(ALL))
    assert "masked its update for another cohort" in refusal(secure, planned, other)
    assert "masked its update for the same cohort" in refusal(secure, planned, question)


@pytest.mark.parametrize(
    ("cohort", "reason"),
    [
        (FEW, "does not mask its update for 6 devices: the threshold is 7"),
        ([*FEW, "device-00"], "does not mask its update for 6 devices"),
        ([*ALL, "stranger"], "stranger, which was not among those before"),
        (without(ME)(ALL), "without itself"),
    ],
)
def test_a_cohort_to_mask_for_is_enough_devices_that_it_knows(
    cohort: list[str], reason: str
) -> None:
    secure, planned, question = at(FIT)
    assert reason in refusal(secure, planned, with_cohort(question, cohort))


def test_nothing_is_trained_without_shares_to_recover_with() -> None:
    secure, planned, question = at(FIT)
    question = replace(question, relays=question.relays[:5])
    assert "can read the shares of 6 devices" in refusal(secure, planned, question)


UNCOVERING: list[tuple[list[str], list[str], str]] = [
    (ALL, ["device-05"], "both shares of device-05"),
    (without("device-05")(ALL), ["device-05", "device-06"], "both shares of device-06"),
    (FEW, ALL[6:], "does not uncover the sum of 6 devices: the threshold is 7"),
    (without("device-05")(ALL), [], "another cohort than it masked for"),
    (without("device-05")(ALL), ["stranger"], "another cohort than it masked for"),
    ([*ALL, "stranger"], [], "stranger, which was not among those before"),
    (without(ME)(ALL), [ME], "without itself"),
]


@pytest.mark.parametrize(("survivors", "lost", "reason"), UNCOVERING)
def test_one_sum_of_enough_devices_is_uncovered_and_no_single_update(
    survivors: list[str], lost: list[str], reason: str
) -> None:
    secure, planned, question = at(UNMASK)
    assert reason in refusal(secure, planned, with_params(question, survivors=survivors, lost=lost))


def test_a_sum_is_uncovered_once() -> None:
    secure, planned, question = at(UNMASK)
    secure.devices.answer(secure.half, planned, question)
    other = with_params(question, survivors=without("device-05")(ALL), lost=["device-05"])
    assert "has uncovered the sum already" in refusal(secure, planned, other)


def test_nothing_is_uncovered_of_another_session_or_before_its_time() -> None:
    secure, planned, question = at(FIT)
    unmask = replace(planned, name=UNMASK)
    params = {"form": FORM, "number": 1, "survivors": ALL, "lost": [], "commitments": []}
    early = replace(question, params=params, blobs={}, relays=())
    assert "has shared its secrets, and not masked an update" in refusal(secure, unmask, early)
    other = replace(early, params={**params, "number": 2})
    assert "about secure session 2, and knows that of 1 only" in refusal(secure, unmask, other)


def test_a_device_keeps_no_secret_once_it_has_answered() -> None:
    secure, planned, question = at(UNMASK)
    masked = secure.devices.private[ME]["secure_aggregation"]["secure_aggregation"].tobytes()
    assert b'"mask": "", "channel": "", "seed": ""' in masked
    secure.devices.answer(secure.half, planned, question)
    done = secure.devices.private[ME]["secure_aggregation"]["secure_aggregation"].tobytes()
    assert b'"shares": {}' in done
