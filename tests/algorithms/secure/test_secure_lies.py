"""A coordinator that asks devices different things, with and without colluders, learns no update.

It then does with the answers all that it can: it adds them up and removes each mask that it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make_device_half
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask
from edgefed.algorithms.interface.exchange import Exchange, Payload, Question
from edgefed.algorithms.secure.secure_device_half import grid_of, sign_of, with_own_params
from edgefed.algorithms.secure.secure_device_record import SecureRecord
from edgefed.algorithms.secure.secure_keys import CERTIFICATE, SIGNATURE, joined, list_text
from edgefed.algorithms.secure.secure_merging import merge_masked, open_session, without_masks
from edgefed.algorithms.secure.secure_phases import (
    FORM,
    HEADER,
    least_threshold,
    threshold_of,
    tolerated,
)
from edgefed.algorithms.secure.secure_questions import masking_params
from edgefed.algorithms.secure.secure_records import keys_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.secure_aggregation_section import SecureAggregationSection
from edgefed.errors import RecipeError, UsageError
from edgefed.learn.base.types import Tensors
from edgefed.sharing.masking import add_mask, signed, unpacked
from edgefed.sharing.pairwise_keys import agreed_key
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.shamir import SHARE_BYTES, combine
from tests.algorithms.interface.test_secure_signatures import of
from tests.algorithms.play import task_fields
from tests.algorithms.secure.test_secure_aggregation import SIZES, devices
from tests.algorithms.secure_play import (
    ALL,
    FIT,
    KEYS,
    LISTS,
    SHARES,
    UNMASK,
    Round,
    algorithm,
    asked,
    question_of,
    refusal,
)
from tests.signed_fleet import Trust

VICTIM = ALL[3]

Lie = Callable[[Exchange, Question], tuple[Exchange, Question]]


def with_secure(question: Question, **changes: Any) -> Question:
    secure = {**question.params["secure"], **changes}
    return replace(question, params={**question.params, "secure": secure})


def other_grid(planned: Exchange, question: Question) -> tuple[Exchange, Question]:
    """Numbers of the same width: the victim's fill it, those of the others round to 0."""
    is_victim = question.device == VICTIM
    bits, total = (28, 15) if is_victim else (1, 2**28 - 1)
    limits = dict.fromkeys(ALL, 1)
    for name in (VICTIM,) if is_victim else ALL:
        limits[name] = SIZES[ALL.index(name)]
    limits["nobody"] = total - sum(limits.values()) if total > sum(limits.values()) else 1
    return planned, with_secure(question, bits=bits, limits=limits)


def dead_weights(planned: Exchange, question: Question) -> tuple[Exchange, Question]:
    """Weights of which no gradient reaches the first layer, for all but the victim."""
    if question.device == VICTIM:
        return planned, question
    weights = dict(planned.payloads["weights"].arrays)
    weights["fc1.bias"] = np.full_like(weights["fc1.bias"], -1e3)
    return replace(planned, payloads={"weights": Payload(weights, "fp32")}), question


def other_limits(planned: Exchange, question: Question) -> tuple[Exchange, Question]:
    """The others are told that the victim is one of many, and count for less than they have."""
    limits = dict(question.params["secure"]["limits"])
    limits[VICTIM] += question.device != VICTIM
    return planned, with_secure(question, limits=limits)


def other_parameter(planned: Exchange, question: Question) -> tuple[Exchange, Question]:
    more = {"more": question.device == VICTIM}
    return planned, replace(question, params={**question.params, **more})


def lied(secure: Round, lie: Lie) -> tuple[Exchange, list[Answer]]:
    """Return the training exchange as planned, and what devices answer to lies about it."""
    planned = secure.until(FIT)
    answers = [
        secure.devices.answer(secure.half, *lie(planned, question))
        for question in planned.questions
    ]
    return planned, answers


def true_update() -> Tensors:
    """Return the victim's update, as it answers without masks."""
    there = Round.of(algorithm(secure=False), devices())
    answers = {each.device: each for each in there.answers(there.plan())}
    return dict(answers[VICTIM].groups["delta"].arrays)


def error_of(cells: Any, total: int, bits: int, weight: int) -> float:
    """Return how far numbers are from the victim's update in the first layer, relative to it."""
    update = true_update()
    grid = grid_of(update, total, bits)
    sums = grid.sums(signed(np.asarray(cells)[HEADER:], grid.width))
    found, true = sums["fc1.weight"] * 2.0**-bits / weight, update["fc1.weight"]
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


LIES: dict[str, tuple[Lie, int, int]] = {
    "grid": (other_grid, 15, 28),
    "dead weights": (dead_weights, sum(SIZES), 40),
    "limits": (other_limits, sum(SIZES), 40),
    "parameter": (other_parameter, sum(SIZES), 40),
}


def attacked(lie: str) -> float:
    """Return how far what the coordinator finds is from the victim's update."""
    secure = Round.of(algorithm(), devices())
    change, total, bits = LIES[lie]
    planned, answers = lied(secure, change)
    grid = grid_of(secure.state.groups["weights"], total, bits)
    secure.state = merge_masked(secure.state, asked(planned), grid, answers)
    cells = without_masks(secure.state, secure.answers(secure.plan()))
    return error_of(cells, total, bits, SIZES[3])


@pytest.mark.parametrize("lie", LIES)
def test_the_masks_of_devices_that_are_asked_different_things_do_not_cancel(lie: str) -> None:
    assert attacked(lie) > 100


@pytest.mark.parametrize("lie", ["grid", "dead weights"])
def test_these_lies_uncover_an_update_where_masks_do_not_depend_on_the_task(
    lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else hides it: the test above cannot pass because the attack is done wrongly."""
    monkeypatch.setattr("tests.algorithms.secure_play.task_digest", lambda task: b"")
    assert attacked(lie) < 1e-6


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (dict.fromkeys(ALL, 1) | {VICTIM: SIZES[3]}, "only 1 of its 5 samples would count"),
        (dict.fromkeys(ALL, 0) | {VICTIM: SIZES[3]}, "how many samples of each device count"),
        ({VICTIM: SIZES[3]}, "how many samples of each device count"),
    ],
)
def test_the_others_are_not_made_to_count_for_less(limits: dict[str, int], reason: str) -> None:
    """All are told the same, so that their masks cancel: the sum would be nearly the victim's."""
    secure = Round.of(algorithm(), devices())
    planned = secure.until(FIT)
    question = with_secure(question_of(planned, "device-00"), limits=limits)
    assert reason in refusal(secure, planned, question)


def test_an_update_is_not_trained_in_answer_to_another_question() -> None:
    """The algorithm trains for any name of a question; only ``fit`` is masked."""
    secure = Round.of(algorithm(), devices())
    planned = secure.until(FIT)
    question = replace(question_of(planned, VICTIM), params={}, relays=())
    for name in ("train", "evaluate-all"):
        reason = refusal(secure, replace(planned, name=name), question)
        assert reason == "it trains for fit tasks only, whose updates it masks"


def test_a_device_masks_for_no_algorithm_that_sends_more_than_a_sum() -> None:
    recipe = Recipe.model_validate({"algorithm": {"name": "ifca", "clusters": 2}})
    table = SecureAggregationSection(enabled=True).model_dump(mode="json")
    with pytest.raises(RecipeError, match="ifca does more"):
        make_device_half(task_fields(recipe, secure_aggregation=table))


def test_what_differs_from_device_to_device_is_in_tables_that_all_are_told() -> None:
    """So that honest tasks have one digest, and a device still finds its own row."""
    secure = Round.of(algorithm(), devices())
    secure.until(FIT)
    _, session = open_session(secure.state)
    told = [{"same": 1, "seed": number, "rows": [[number, 2]]} for number in range(10)]
    questions = [Question(name, 1, params=own) for name, own in zip(ALL, told, strict=True)]
    params = masking_params(questions, session, 40)
    assert params["same"] == 1
    assert not {"seed", "rows"} & set(params)
    assert params["secure"]["limits"] == dict(zip(ALL, SIZES, strict=True))
    for name, own in zip(ALL, told, strict=True):
        seen = with_own_params(DeviceTask(FIT, 1, name, 0, {}, params)).params
        assert {key: seen[key] for key in own} == own
    with pytest.raises(UsageError, match="devices are sent different arrays"):
        masking_params([replace(questions[0], blobs={"a": "b"}), *questions[1:]], session, 40)


@pytest.mark.parametrize("form", [None, 1, FORM + 1])
def test_questions_of_another_form_are_refused(form: Any) -> None:
    secure = Round.of(algorithm(), devices())
    for name in (KEYS, SHARES, FIT, UNMASK):
        planned = secure.until(name)
        question = question_of(planned, VICTIM)
        if name == FIT:
            other = with_secure(question, form=form)
        else:
            other = replace(question, params={**question.params, "form": form})
        assert "another form" in refusal(secure, planned, other)


# -- what a device's owner demands ----------------------------------------------------------------


def test_an_owner_demands_a_least_threshold() -> None:
    there = devices()
    there.policy = Policy(least_threshold=8)
    secure = Round.of(algorithm(), there)
    planned = secure.plan()
    assert "demands a threshold of 8 devices (least_threshold), and this round has 7" in refusal(
        secure, planned, question_of(planned, VICTIM)
    )
    there.policy = Policy(least_threshold=7)
    secure.until(FIT)


@pytest.mark.parametrize("moment", [SHARES, FIT, LISTS, UNMASK])
def test_an_owner_demands_a_least_cohort(moment: str, trust: Trust) -> None:
    """At each moment at which the coordinator says how many devices there are."""
    secure = with_certificates(trust)
    planned = secure.until(moment)
    question = question_of(planned, VICTIM)
    secure.devices.policy = Policy(least_cohort=11)
    assert "10 devices: its owner demands 11 (least_cohort)" in refusal(secure, planned, question)
    secure.devices.policy = Policy(least_cohort=10)
    secure.devices.answer(secure.half, planned, question)


# -- colluders ------------------------------------------------------------------------------------


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "trust")


def with_certificates(trust: Trust) -> Round:
    there = devices()
    there.trust = {name: of(trust.issue("device", name)) for name in ALL}
    return Round.of(algorithm(), there)


def test_devices_that_were_asked_different_things_do_not_uncover_a_sum(trust: Trust) -> None:
    """The list that they sign has the task in it, so that they see it before they tell shares."""
    secure = with_certificates(trust)
    planned, answers = lied(secure, other_parameter)
    secure.state = secure.half.merge(secure.state, asked(planned), answers)
    secure.step(LISTS)
    planned = secure.plan()
    for device in (VICTIM, "device-00"):
        reason = refusal(secure, planned, question_of(planned, device))
        assert "the signatures of the list of" in reason
        assert "are not its own" in reason


def list_of(planned: Exchange, question: Question, survivors: Sequence[str]) -> Question:
    return replace(question, params={**question.params, "devices": list(survivors)})


def two_lists(secure: Round, colluders: int) -> dict[str, list[Answer]]:
    """Sign two lists, with and without the victim, and return what devices then uncover.

    The honest devices are divided; colluders sign both lists, and uncover both.
    """
    fit = secure.until(FIT)
    secure.merge(fit, secure.answers(fit))
    planned, (_, session) = secure.plan(), open_session(secure.state)
    others = [name for name in ALL if name != VICTIM]
    false, honest = others[:colluders], [*others[colluders:], VICTIM]
    half = len(honest) // 2
    views = {"seed": (ALL, honest[half:]), "mask": (others, honest[:half])}
    text = {
        name: list_text("r-0001-test", session.number, session.task_digest, survivors)
        for name, (survivors, _) in views.items()
    }
    signatures: dict[str, dict[str, bytes]] = {}
    for name, (survivors, signers) in views.items():
        for device in signers:
            question = list_of(planned, question_of(planned, device), survivors)
            answer = secure.devices.answer(secure.half, planned, question)
            signatures.setdefault(name, {})[device] = (
                answer.groups["signature"].arrays["signature"].tobytes()
            )
        for device in false:
            signatures[name][device] = secure.devices.trust[device].sign(text[name])
    return {name: uncovered_by(secure, planned, views[name], signatures[name]) for name in views}


def uncovered_by(
    secure: Round,
    lists: Exchange,
    view: tuple[Sequence[str], Sequence[str]],
    signatures: Mapping[str, bytes],
) -> list[Answer]:

    survivors, signers = view
    names = sorted(set(signatures) & set(survivors))
    certificates = [secure.devices.trust[name].certificate for name in names]
    group = {
        **joined(SIGNATURE, [signatures[name] for name in names]),
        **joined(CERTIFICATE, certificates),
    }
    params = {
        "form": FORM,
        "number": 1,
        "survivors": list(survivors),
        "lost": [name for name in ALL if name not in survivors],
        "signers": names,
        "commitments": [],
    }
    planned = replace(lists, name=UNMASK, payloads={"lists": Payload(group, "fp32")})
    question = Question("", 1, {"lists": "lists"}, params)
    return [
        secure.devices.answer(secure.half, planned, replace(question, device=name))
        for name in signers
    ]


def test_as_many_colluders_as_the_bound_says_uncover_nothing(trust: Trust) -> None:
    secure = with_certificates(trust)
    assert tolerated(10, 7) == 3
    with pytest.raises(Withheld, match="fewer than 7 devices signed the list"):
        two_lists(secure, 3)


def test_one_more_colluder_uncovers_an_update(trust: Trust) -> None:
    """With 4 of 10, and a threshold of 7: what ``tolerated`` states is no more than is true."""
    secure = with_certificates(trust)
    told = two_lists(secure, 4)
    _, session = open_session(secure.state)
    keys = keys_of(secure.state, session)
    secrets = {}
    for name, start in (("mask", 0), ("seed", SHARE_BYTES)):
        shares = {
            keys.place(each.device): each.groups["shares"].arrays["shares"][3].tobytes()
            for each in told[name]
        }
        for colluder in [name for name in ALL if name != VICTIM][:4]:
            held = SecureRecord.of(secure.devices.private[colluder]).shares[VICTIM]
            shares[keys.place(colluder)] = bytes.fromhex(held)[start : start + SHARE_BYTES]
        assert len(shares) == 7
        secrets[name] = combine(shares)
    (answer,) = [each for each in secure.devices.answered[FIT] if each.device == VICTIM]
    wire = answer.groups["masked"].arrays["masked"]
    width = grid_of(true_update(), session.total, 40).width
    cells = np.concatenate([unpacked(wire[:24], 8), unpacked(wire[24:], width)])
    add_mask(cells, secrets["seed"], -1)
    for other in ALL:
        if other != VICTIM:
            purpose = keys.mask_purpose(session.task_digest, VICTIM, other)
            key = agreed_key(secrets["mask"], keys.of(other).mask, purpose)
            add_mask(cells, key, -sign_of(VICTIM, other))
    assert error_of(cells, session.total, 40, SIZES[3]) < 1e-9


@pytest.mark.parametrize("colluders", [0, 0.25, 1 / 3, 1, 3])
def test_the_default_threshold_tolerates_the_colluders_that_are_stated(colluders: float) -> None:
    section = SecureAggregationSection(colluders=colluders)
    for asked_devices in range(5, 257):
        stated = int(colluders) if colluders >= 1 else int(colluders * asked_devices + 1e-6)
        threshold = threshold_of(section, asked_devices)
        assert (
            tolerated(asked_devices, threshold) >= stated > tolerated(asked_devices, threshold - 1)
        )
        assert threshold == least_threshold(asked_devices, stated) <= asked_devices
