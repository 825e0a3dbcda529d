"""The exchange of averaged data: which devices are asked, which share, what the others do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from edgefed.algorithms.averaged_data.mean_exchange import AVERAGED, MEAN
from edgefed.algorithms.averaged_data.mean_records import PATIENCE
from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.answer import Answer, Remark
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.releases import means_release
from tests.algorithms.mean_play import DEVICES, after_sharing, half_of, mixing, stacked
from tests.algorithms.play import SIZES, Players, algorithm, asked, bits, planned_for
from tests.run_fixture import CLASSES, SHAPE, samples


@mixing
def test_averages_are_asked_for_once_of_all_and_then_only_training(name: str) -> None:
    history = Players().play(half_of(name, rounds=3))
    assert [exchange.name for _, exchange in history] == [MEAN, "fit", "fit", "fit"]
    first = history[0][1]
    assert [question.device for question in first.questions] == DEVICES
    assert first.quorum == 0
    assert first.payloads == {}
    for _, exchange in history[1:]:
        assert exchange.payloads.keys() == {"weights", AVERAGED}


def test_a_cohort_does_not_limit_who_shares() -> None:
    recipe = {"algorithm": {"name": "fedmix"}, "rounds": {"cohort": 2, "count": 1}}
    half = make(Recipe.model_validate(recipe))
    players = Players()
    first = players.planned(half, players.start(half))
    assert len(first.questions) == len(SIZES)


def test_small_devices_are_not_asked_but_train() -> None:
    half, players = half_of(threshold=6), Players()
    history = players.play(half)
    assert [question.device for question in history[0][1].questions] == DEVICES[1:3]
    assert [question.device for question in history[1][1].questions] == DEVICES
    assert len(stacked(history[0][0])) == 2


def test_nobody_large_enough_is_fedavg() -> None:
    history = Players().play(half_of(threshold=100))
    assert [exchange.name for _, exchange in history] == ["fit", "fit"]
    plain = Players().play(algorithm("fedavg"))
    assert bits(history[-1][0].groups["weights"]) == bits(plain[-1][0].groups["weights"])


def test_a_device_that_comes_later_is_asked_when_it_comes() -> None:
    half, players = half_of(rounds=9), Players()
    state = after_sharing(half, players)
    roster = (*players.roster, Member("device-99", 5, SHAPE, CLASSES))
    again = planned_for(half, state, roster)
    assert (again.name, [each.device for each in again.questions]) == (MEAN, ["device-99"])


def test_who_was_silent_is_asked_again_after_some_rounds() -> None:
    half, players = half_of(rounds=99), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    answers = players.answers(half, exchange)[1:]
    state = half.merge(state, asked(exchange), answers)
    for early in range(PATIENCE):
        assert players.planned(half, replace(state, round=early)).name == "fit"
    late = replace(state, round=PATIENCE)
    again = players.planned(half, late)
    assert (again.name, [each.device for each in again.questions]) == (MEAN, DEVICES[:1])
    state = half.merge(late, asked(again), players.answers(half, again))
    assert len(stacked(state)) == 4
    assert players.planned(half, replace(state, round=3 * PATIENCE)).name == "fit"


def test_a_single_sample_is_enough_to_be_asked() -> None:
    half, players = half_of(), Players([samples(1, 3), samples(0, 4), samples(2, 5)])
    exchange = players.planned(half, players.start(half))
    assert [question.samples for question in exchange.questions] == [1, 2]


def test_changed_data_are_shared_again_only_when_enough_devices_have_changed() -> None:
    half = half_of(rounds=9)
    members = tuple(Member(f"device-{k:02d}", 5, SHAPE, CLASSES, "old") for k in range(10))
    state = half.start(Players().trainer.model.weights(), members, 1)
    exchange = planned_for(half, state, members)
    players = Players([samples(5, k) for k in range(10)])
    state = half.merge(state, asked(exchange), players.answers(half, exchange))
    state = replace(state, round=1)
    for changed, name in ((1, "fit"), (2, MEAN)):
        roster = tuple(
            replace(member, data="new") if k < changed else member
            for k, member in enumerate(members)
        )
        again = planned_for(half, state, roster)
        assert again.name == name
    assert isinstance(again, Exchange)
    assert [question.device for question in again.questions] == DEVICES[:2]


# -- subsets --------------------------------------------------------------------------------------


@mixing
@pytest.mark.parametrize("sharers", [0, 1, 4])
def test_any_subset_of_sharers_works(name: str, sharers: int) -> None:
    half = half_of(name)

    class Some(Players):
        def answers(self, half: Any, exchange: Exchange) -> list[Answer]:
            found = super().answers(half, exchange)
            return found[:sharers] if exchange.name == MEAN else found

    history = Some().play(half)
    state, exchange = history[0]
    (remark,) = half.remarks(Some().start(half), exchange, state)
    if sharers:
        assert len(stacked(state)) == sharers
        entries = "1 entry" if sharers == 1 else f"{sharers} entries"
        assert remark == Remark(f"{sharers} of 4 devices shared averaged data: {entries} in all")
    else:
        assert remark.warning
        assert "this is FedAvg" in remark.text
        plain = Players().play(algorithm("fedavg"))
        assert bits(history[-1][0].groups["weights"]) == bits(plain[-1][0].groups["weights"])
    assert history[-1][0].round == 2


def test_a_policy_is_honoured() -> None:
    half, players = half_of(), Players(policy=Policy(share_means=False))
    exchange = players.planned(half, players.start(half))
    with pytest.raises(Withheld):
        players.answers(half, exchange)
    strict = Players(policy=Policy(least_group=6))
    means = [
        strict.answer(half_of(group_size=2), exchange, question)
        for question in exchange.questions[1:3]
    ]
    assert [answer.metrics["group"] for answer in means] == [9.0, 6.0]


def test_averages_that_leave_a_device_are_in_its_ledger() -> None:
    half, players = half_of(group_size=2, noise=0.25), Players()
    exchange = players.planned(half, players.start(half))
    for answer, part in zip(players.answers(half, exchange), players.parts, strict=True):
        assert answer.ledger == (means_release(1, len(part), len(part) // 2, 2, 0.25),)


def test_training_with_averages_releases_none() -> None:
    for half in (half_of(), half_of(entries="own")):
        players = Players()
        state = players.start(half) if half.settings.entries == "own" else None
        exchange = players.planned(half, state or after_sharing(half, players))
        assert exchange.name == "fit"
        assert all(answer.ledger == () for answer in players.answers(half, exchange))


def test_who_shares_nothing_may_mix_its_own_averages() -> None:
    """Nothing leaves the device then, so its policy has nothing to say."""
    half, players = half_of(entries="own"), Players(policy=Policy(False, 10))
    history = players.play(half)
    assert history[-1][0].round == 2


def test_nobody_large_enough_is_said() -> None:
    half, players = half_of(threshold=100), Players()
    before = players.start(half)
    exchange = players.planned(half, before)
    after = half.merge(before, asked(exchange), players.answers(half, exchange))
    (remark,) = half.remarks(before, exchange, after)
    assert remark == Remark(
        "no device has the 100 samples that threshold asks for: this is FedAvg", warning=True
    )
    # An exchange of another part, such as label bounties, comes before the first round.
    assert not half.remarks(before, exchange, before)
    later = players.planned(half, after)
    assert not half.remarks(after, later, half.merge(after, asked(later), []))
    own = half_of(entries="own")
    assert not own.remarks(players.start(own), exchange, after)


def test_averages_that_come_again_may_be_packed_in_another_way() -> None:
    half, players = half_of(rounds=99), Players()
    state = replace(after_sharing(half, players), round=1)
    roster = tuple(replace(member, data="new") for member in players.roster)
    again = planned_for(half, state, roster)
    answers = players.answers(half_of(packing="fp32"), again)
    assert not any(half.reject_reason(again, each, players.trainer.model) for each in answers)
    assert len(stacked(half.merge(state, asked(again), answers))) == 4


def test_changed_data_that_were_not_sent_are_asked_for_again() -> None:
    half, players = half_of(rounds=99), Players()
    state = replace(after_sharing(half, players), round=1)
    roster = tuple(replace(member, data="new") for member in players.roster)
    again = planned_for(half, state, roster)
    assert again.name == MEAN
    state = half.merge(state, asked(again), players.answers(half, again)[1:])
    assert len(stacked(state)) == 4
    (remark,) = half.remarks(state, again, state)
    assert remark.text.startswith("3 of 4 devices shared")
    late = planned_for(half, replace(state, round=1 + PATIENCE), roster)
    assert (late.name, [each.device for each in late.questions]) == (MEAN, DEVICES[:1])


def test_data_that_change_all_the_time_hold_up_no_round() -> None:
    half, players = half_of(rounds=99), Players()
    state = after_sharing(half, players)
    for word in ("one", "other"):
        roster = tuple(replace(member, data=word) for member in players.roster)
        exchange = planned_for(half, state, roster)
        assert exchange.name == "fit"
    asked_next = planned_for(half, replace(state, round=1), roster)
    assert asked_next.name == MEAN


@mixing
@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_without_a_share_it_is_fedavg_to_the_bit(name: str, mu: float) -> None:
    """Also where cross-entropy has a compiled shortcut, which mixing has not."""
    images = [Samples(part.inputs.reshape(-1, 1, 2, 4), part.targets) for part in Players().parts]

    def weights(half: Any) -> Any:
        section = ModelSection.model_validate({"name": "mlp", "hidden": [6, 5]})
        players = Players(images, Trainer(build(section, (1, 2, 4), CLASSES, 1), "cpu"))
        return bits(players.play(half)[-1][0].groups["weights"])

    plain = weights(algorithm("fedavg", mu=mu))
    assert weights(half_of(name, mixup_ratio=0.0, mu=mu)) == plain
    assert weights(half_of(name, mixup_ratio=0.1, mu=mu)) != plain
