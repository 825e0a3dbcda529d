"""Answers about label bounties that are rejected, and recipes that are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from edgefed.algorithms.bounties.bounty_answers import COLUMNS, NEEDS, OFFERS, RECEIVED, ROLES
from edgefed.algorithms.bounties.bounty_exchange import NOISE_SEED
from edgefed.algorithms.composed.registry import check_fleet, make
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError, UsageError
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.networks.base import Shape
from edgefed.wire.envelope import encode
from edgefed.wire.messages import Task
from edgefed.wire.tensors import pack
from tests.algorithms.bounty_play import (
    LABELS,
    Device,
    LabelPlayers,
    images,
    model,
    one_label_each,
    recipe,
    rows,
)
from tests.worker.tasks import task

EXCHANGE = {NEEDS: "label_need", OFFERS: "label_offer", RECEIVED: "label_fill"}


def reason(role: str, *values: tuple[int, ...], **plan: Any) -> str:
    """Return why an answer with these rows is rejected."""
    players = one_label_each(**plan)
    _, exchange = players.to_exchange(EXCHANGE[role])
    answer = Answer("device-01", 8, rows(role, COLUMNS[role], *values))
    return players.half.reject_reason(exchange, answer, players.model)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((0, 8, 4, 0), ""),
        ((0, 8, 4, 4), ""),
        ((0, 1, 0, 0), ""),
        ((LABELS, 8, 4, 0), "there is no label 4"),
        ((0, 0, 0, 0), "wants 0 samples"),
        ((0, 9, 4, 0), "wants 9 samples, and may want 1 to 8"),
        ((0, 2**25, 4, 0), "may want 1 to 8"),
        ((0, 8, 5, 0), "it wants 5 as mixes"),
        ((0, 8, 4, 5), "it wants 4 as mixes, has 5"),
        ((0, 2, 4, 0), "it wants 4 as mixes"),
        ((0, -8, 4, 0), "a number is negative"),
        ((-1, 8, 4, 0), "a number is negative"),
        ((0, 8, -4, 0), "a number is negative"),
    ],
)
def test_needs(row: tuple[int, ...], why: str) -> None:
    found = reason(NEEDS, row)
    assert (found == "") == (why == "")
    assert why in found
    assert not found or found.startswith("needs: ")


def test_a_label_is_needed_once_and_one_is_there() -> None:
    assert "a label is there twice" in reason(NEEDS, (0, 8, 4, 0), (0, 8, 4, 0))
    everything = [(n, 8, 4, 0) for n in range(LABELS)]
    assert "it lacks every label" in reason(NEEDS, *everything)
    assert reason(NEEDS, *everything, fewer_than=2) == "", "all of them may be rare"
    assert reason(NEEDS) == ""


def test_needs_are_bounded_by_the_recipe_s_count() -> None:
    assert reason(NEEDS, (0, 100, 50, 0), count=100) == ""
    assert "may want 1 to 100" in reason(NEEDS, (0, 101, 50, 0), count=100)


def test_more_mixes_than_a_device_keeps_are_not_wanted() -> None:
    players = LabelPlayers({"asks": Device(images([1, 0, 0, 0]))}, recipe(count=10**6))
    _, exchange = players.to_exchange("label_need")
    answer = Answer("asks", 1, rows(NEEDS, COLUMNS[NEEDS], (1, 10**6, 500_000, 0)))
    assert players.half.reject_reason(exchange, answer, players.model) == ""
    wide = model((1, 40, 40))
    assert "more mixes than the 156503" in players.half.reject_reason(exchange, answer, wide)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((0, 4), ""),
        ((8, 1), ""),
        ((9, 1), "there is no bounty 9"),
        ((0, 5), "it offers 5 mixes where 4 are asked for"),
        ((0, 0), "it offers 0 mixes"),
        ((0, -1), "a number is negative"),
    ],
)
def test_offers(row: tuple[int, ...], why: str) -> None:
    found = reason(OFFERS, row)
    assert (found == "") == (why == "")
    assert why in found


def test_a_bounty_is_answered_once() -> None:
    assert "a bounty is there twice" in reason(OFFERS, (0, 1), (0, 1))


def test_received() -> None:
    assert reason(RECEIVED, (3, 10**6)) == ""
    assert "there is no label 4" in reason(RECEIVED, (4, 1))


@pytest.mark.parametrize("role", [NEEDS, OFFERS, RECEIVED])
def test_arrays_of_other_kinds(role: str) -> None:
    players = one_label_each()
    _, exchange = players.to_exchange(EXCHANGE[role])
    names = COLUMNS[role]
    fine: Tensors = {name: np.ones(1, np.int64) for name in names}
    wrong: dict[str, Tensors] = {
        "does not hold": dict(list(fine.items())[1:]),
        "does not hold label": {**fine, "more": np.ones(1, np.int64)},
        "lists of whole numbers": {**fine, names[1]: np.ones(1, np.float32)},
        "hold lists": {**fine, names[0]: np.ones((1, 1), np.int64)},
        "differ in length": {**fine, names[0]: np.arange(2)},
    }
    if role == OFFERS:
        wrong["does not hold bounty"] = wrong.pop("does not hold label")
    for why, arrays in wrong.items():
        answer = Answer("device-01", 8, {role: Group(arrays)})
        assert why in players.half.reject_reason(exchange, answer, players.model)


def test_a_device_says_no_more_than_it_holds() -> None:
    """What a device reports beyond its bounty does not count."""
    players = one_label_each()

    def boast(exchange: Exchange, answer: Answer) -> Answer:
        if exchange.name == "label_fill" and answer.device == "device-00":
            told = rows(RECEIVED, COLUMNS[RECEIVED], (1, 99), (2, 1), (0, 9))
            return replace(answer, groups=told)
        return answer

    players.tamper = boast
    state = players.to_training()
    mine = [(b.label, b.received, b.noise) for b in players.bounties(state, "device-00")]
    assert mine == [(1, 4, 4), (2, 1, 7), (3, 0, 8)]


def test_a_rejected_offer_is_not_taken() -> None:
    players = one_label_each()

    def boast(exchange: Exchange, answer: Answer) -> Answer:
        if exchange.name == "label_offer" and answer.device == "device-01":
            return replace(answer, groups=rows(OFFERS, COLUMNS[OFFERS], (0, 99)))
        return answer

    players.tamper = boast
    state = players.to_training()
    assert set(players.rejected) == {("device-01", "label_offer")}
    assert {b.received for b in players.bounties(state) if b.label == 1} == {0}


def test_answers_have_the_space_that_the_largest_ones_take() -> None:
    players = one_label_each()
    for name in ROLES:
        _, exchange = players.to_exchange(name)
        most = players.half.max_reply_bytes(exchange, players.model)
        for question in exchange.questions:
            answer = players.answer(exchange, question)
            assert answer is not None
            assert sum(len(pack(group.arrays)) for group in answer.groups.values()) <= most
    many = LabelPlayers({f"d-{n:02d}": Device(images([1] + [0] * 900)) for n in range(2)}, recipe())
    many.model = model(classes=901)
    _, exchange = many.to_exchange("label_need")
    found = many.answer(exchange, exchange.questions[0])
    assert found is not None
    size = len(pack(found.groups[NEEDS].arrays))
    assert 2**14 < size <= many.half.max_reply_bytes(exchange, many.model)


def test_the_seed_of_noise_is_small_and_of_the_device() -> None:
    players = one_label_each()
    exchange = players.planned(players.to_training())
    seeds = {each.device: each.params[NOISE_SEED] for each in exchange.questions}
    assert len(set(seeds.values())) == LABELS
    bare, told = (
        encode(Task.model_validate({**task().model_dump(), "params": params}))
        for params in ({}, {NOISE_SEED: max(seeds.values())})
    )
    assert len(told) - len(bare) < 64
    again = one_label_each()
    state = again.to_training()
    assert {e.device: e.params[NOISE_SEED] for e in again.planned(state).questions} == seeds
    later = again.planned(again.next_round(state))
    assert {each.device: each.params[NOISE_SEED] for each in later.questions} == seeds
    other = again.half.start(again.model.weights(), again.roster, 12)
    third = again.planned(again.to_training(other))
    assert {each.params[NOISE_SEED] for each in third.questions}.isdisjoint(seeds.values())


# -- recipes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "classes", "loss", "why"),
    [
        ((8,), 4, "", "its inputs are no images"),
        ((1, 2, 3, 4), 4, "", "its inputs are no images"),
        ((1, 4, 4), 4, "squared_error", "with squared error there are none"),
    ],
)
def test_what_has_no_labels_or_images_is_refused(
    shape: Shape, classes: int, loss: str, why: str
) -> None:
    half = make(recipe(loss=loss))
    with pytest.raises(RecipeError, match=why) as caught:
        half.check_model(model(shape, classes))
    assert caught.value.code == "label.unfit"
    make(recipe(loss=loss, supplement=0)).check_model(model(shape, classes))


def test_tokens_are_refused() -> None:
    text = build(ModelSection.model_validate({"name": "lstm", "hidden": 3}), (20,), 80, 1)
    with pytest.raises(RecipeError, match="tokens of a text") as caught:
        make(recipe()).check_model(text)
    assert caught.value.code == "label.unfit"


def test_images_that_no_generator_draws_are_refused_if_noise_is_wanted() -> None:
    shape = (65, 4, 4)
    with pytest.raises(DataError) as caught:
        make(recipe()).check_model(model(shape))
    assert caught.value.code == "noise.shape"
    make(recipe(noise="none")).check_model(model(shape))
    make(recipe()).check_model(model((28, 28)))


def test_a_range_of_weights_is_not_upside_down() -> None:
    upside_down: list[dict[str, Any]] = [
        {"low": 0.9},
        {"low": 0.9, "high": 0.6},
        {"high": 0.5, "low": 0.51},
    ]
    for values in upside_down:
        with pytest.raises(ValidationError, match="must be at least low"):
            recipe(**values)
    make(recipe(low=0.9, high=0.9))


def test_samples_of_all_devices_are_for_simulations() -> None:
    for name in ("fedavg", "fedmix"):
        check_fleet(make(recipe(name)))
        with pytest.raises(
            UsageError, match=r"samples of all devices \(labels\.others\)"
        ) as caught:
            check_fleet(make(recipe(name, others="global")))
        assert caught.value.code == "run.simulation_only"
