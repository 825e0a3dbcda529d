"""Claims of devices and coordinators about averaged data are validated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaged_data.mean_exchange import AVERAGED
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Exchange, Question, ReplyRole
from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.learn.modeling.model_building import build
from edgefed.sharing.packing import pack
from edgefed.sharing.types import Entries
from edgefed.wire.codecs import CODECS, decode
from tests.algorithms.mean_play import DEVICES, after_sharing, first_answer, half_of
from tests.algorithms.play import Players
from tests.run_fixture import CLASSES, SHAPE


def mean_answer(**arrays: Any) -> Answer:
    return Answer(DEVICES[0], 5, {"means": Group(arrays)})


def test_averages_of_another_shape_are_refused_with_a_reason() -> None:
    half, players = half_of(), Players()
    exchange = players.planned(half, players.start(half))
    model = players.trainer.model
    good = players.answers(half, exchange)[0]
    assert half.reject_reason(exchange, good, model) == ""
    assert half.reject_reason(replace(exchange, name="fit"), replace(good, groups={}), model) == ""
    bad = mean_answer(
        inputs=np.zeros((1, 2, 2), np.float32), targets=np.ones((1, CLASSES), np.float32)
    )
    assert "another run" in half.reject_reason(exchange, bad, model)
    assert exchange.reply_roles.keys() == good.groups.keys() == {"means"}
    nan = mean_answer(
        inputs=np.full((1, *SHAPE), np.nan, np.float32), targets=np.ones((1, 3), np.float32)
    )
    assert "NaN" in half.reject_reason(exchange, nan, model)


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        ({}, "it holds 1 entries, and says 0"),
        ({"entries": 2.0, "group": 5.0}, "it holds 1 entries, and says 2"),
        ({"entries": 1.0, "group": 0.0}, "says that 0 of 5 samples stand behind an entry"),
        ({"entries": 1.0, "group": 6.0}, "says that 6 of 5 samples stand behind an entry"),
        ({"entries": 1.0, "group": 1.5}, "says that 1.5 of 5 samples stand behind an entry"),
    ],
)
def test_averages_that_are_told_wrongly_are_refused(metrics: dict[str, float], reason: str) -> None:
    half, players = half_of(), Players()
    exchange = players.planned(half, players.start(half))
    good = players.answers(half, exchange)[0]
    assert reason in half.reject_reason(
        exchange, replace(good, metrics=metrics), players.trainer.model
    )


@pytest.mark.parametrize(
    ("settings", "count", "group", "reason"),
    [
        ({}, 2, 2, "it holds 2 entries, and its 5 samples make at most 1"),
        ({"group_size": 2}, 3, 1, "it holds 3 entries, and its 5 samples make at most 2"),
        ({"group_size": 2}, 2, 1, "1 of 5 samples stand behind an entry, fewer than 2"),
        ({"group_size": 9}, 1, 4, "4 of 5 samples stand behind an entry, fewer than 5"),
        ({}, 1, 4, "4 of 5 samples stand behind an entry, fewer than 5"),
        ({"group_size": 2}, 2, 3, "3 samples cannot stand behind each of 2 entries"),
    ],
)
def test_no_device_takes_more_of_the_stack_than_its_samples_make(
    settings: dict[str, Any], count: int, group: int, reason: str
) -> None:
    half, players = half_of(**settings), Players()
    exchange, good = first_answer(half, players)
    entries = Entries(
        np.zeros((count, *SHAPE), np.float32), np.full((count, CLASSES), 1 / CLASSES, np.float32)
    )
    many = replace(
        good,
        groups={"means": Group(pack(entries, as_bytes=True))},
        metrics={**good.metrics, "entries": float(count), "group": float(group)},
    )
    assert half.reject_reason(exchange, good, players.trainer.model) == ""
    assert reason in half.reject_reason(exchange, many, players.trainer.model)


@pytest.mark.parametrize("target", [[1e5, 0, 0], [2, -1, 0], [0, 0, 0]])
def test_targets_that_are_no_shares_of_labels_are_refused(target: list[float]) -> None:
    half, players = half_of(), Players()
    exchange, good = first_answer(half, players)
    arrays = {**good.groups["means"].arrays, "targets": np.array([target], np.float32)}
    false = replace(good, groups={"means": Group(arrays)})
    assert "not label distributions" in half.reject_reason(exchange, false, players.trainer.model)


@pytest.mark.parametrize("split", [0, 1])
def test_one_device_cannot_say_that_averages_are_of_hidden_states(split: int) -> None:
    """Else it could have everybody asked again in every round, and drop what others shared."""
    half, players = half_of(split=split), Players()
    exchange, good = first_answer(half, players)
    assert half.reject_reason(exchange, good, players.trainer.model) == ""
    false = replace(good, metrics={**good.metrics, "hidden": 1.0 - split})
    assert "hidden states" in half.reject_reason(exchange, false, players.trainer.model)


@pytest.mark.parametrize(
    ("name", "packing", "same_class"),
    [
        *(("fedmix", "uint8", True), ("fedmix", "bf16", True), ("fedmix", "fp32", False)),
        *(("naivemix", "uint8", False), ("globalmix", "bf16", False), ("globalmix", "fp32", True)),
    ],
)
def test_no_true_answer_is_refused(name: str, packing: str, same_class: bool) -> None:
    """After its way over the wire, with whatever its codec drops."""
    for settings in ({}, {"group_size": 1}, {"group_size": 3, "split": 1}):
        if name == "globalmix" and settings.get("group_size") == 3:
            continue
        half = half_of(name, packing=packing, same_class=same_class, **settings)
        players = Players()
        exchange = players.planned(half, players.start(half))
        for answer in players.answers(half, exchange):
            group = answer.groups["means"]
            code = CODECS[group.codec or "fp32"].encode(group.arrays, np.random.default_rng(1))
            sent = replace(answer, groups={"means": Group(decode(code, None))})
            assert half.reject_reason(exchange, sent, players.trainer.model) == ""


def test_a_device_refuses_a_stack_that_is_not_of_its_run() -> None:
    half, players = half_of(), Players()
    exchange = players.planned(half, after_sharing(half, players))
    task = players.task(exchange, exchange.questions[0])
    foreign = {
        "inputs": np.zeros((2, 3, 3), np.float32),
        "targets": np.zeros((2, CLASSES), np.float32),
    }
    with pytest.raises(DataError, match="another run"):
        half.prepare(
            replace(task, groups={**task.groups, AVERAGED: foreign}), players.view(DEVICES[0])
        )


@pytest.mark.parametrize(
    ("name", "settings", "entries", "numbers"),
    [
        ("fedmix", {}, 1, 8),
        ("fedmix", {"group_size": 2}, 4, 8),
        ("fedmix", {"group_size": 100}, 1, 8),
        ("fedmix", {"group_size": 2, "same_class": True}, 4 + CLASSES, 8),
        ("fedmix", {"split": 1}, 1, 3),
        ("globalmix", {}, 9, 8),
    ],
)
def test_the_room_for_averages_by_hand(
    name: str, settings: dict[str, Any], entries: int, numbers: int
) -> None:
    """The largest of the devices has 9 samples; a number takes four bytes, and there are three

    targets, a scale and an offset to an entry.
    """
    half, players = half_of(name, **settings), Players()
    exchange = players.planned(half, players.start(half))
    model = players.trainer.model
    assert half.max_reply_bytes(exchange, model) == entries * (4 * numbers + 12 + 8) + 65536
    assert half.max_reply_bytes(replace(exchange, questions=()), model) == 65536
    assert half.max_reply_bytes(replace(exchange, name="fit"), model) == 0


@pytest.mark.parametrize(
    ("name", "entry"), [("globalmix", 8 * 5 + 4 * 6 + 8), ("fedmix", 4 * 5 * 6 + 4 * 6 + 8)]
)
def test_the_room_for_tokens_by_hand(name: str, entry: int) -> None:
    """Raw tokens take eight bytes each; averages of tokens a number for each word of six."""
    half = half_of(name, split=1)
    exchange = Exchange("mean", 1, (Question("a", 7), Question("b", 2)), {}, 2, 0, 1.0)
    section = ModelSection.model_validate({"name": "lstm", "hidden": 4, "embedding": 3})
    most = 7 if name == "globalmix" else 1
    assert half.max_reply_bytes(exchange, build(section, (5,), 6, 1)) == most * entry + 65536


@pytest.mark.parametrize("split", [0, 1])
def test_the_exchange_of_averages_says_what_it_is(split: int) -> None:
    half, players = half_of(split=split), Players()
    state = players.start(half)
    training = FedAvg(half.settings, half.training, half.planned_rounds).plan(
        state, players.roster, 1
    )
    assert isinstance(training, Exchange)
    section = ModelSection.model_validate({"name": "mlp", "hidden": [7]})
    exchange = half.parts()[0].plan(state, players.roster, replace(training, model=section))
    assert exchange is not None
    assert exchange.preparatory is True
    assert (exchange.round, exchange.deadline) == (1, training.deadline)
    assert exchange.model == section
    assert exchange.reply_roles == {"means": ReplyRole(None, 1e6)}


@pytest.mark.parametrize(
    ("packing", "codec"), [("uint8", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")]
)
def test_averages_travel_as_the_recipe_says_whatever_its_codecs_are(
    packing: str, codec: str
) -> None:
    half, players = half_of(packing=packing), Players()
    exchange, answer = first_answer(half, players)
    assert answer.groups["means"].codec == codec
    question = exchange.questions[0]
    own = half.prepare(players.task(exchange, question), players.view(question.device))
    assert isinstance(own, Answer)
    assert own.device == question.device
    training = players.planned(half, after_sharing(half, players))
    assert training.payloads[AVERAGED].codec == codec


@pytest.mark.parametrize(
    ("name", "settings", "needs"),
    [
        ("fedmix", {}, ""),
        ("fedmix", {"group_size": 1}, "raw data"),
        ("fedmix", {"group_size": 1, "entries": "random"}, "raw data"),
        ("fedmix", {"group_size": 1, "entries": "own"}, ""),
        ("naivemix", {"same_class": True}, "single labels"),
        ("globalmix", {}, "raw data"),
    ],
)
def test_what_no_fleet_gives(name: str, settings: dict[str, Any], needs: str) -> None:
    assert needs in half_of(name, **settings).needs_simulation()
    assert bool(needs) == bool(half_of(name, **settings).needs_simulation())
