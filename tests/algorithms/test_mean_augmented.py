"""The exchange of averaged data: who is asked, what is stacked, what devices train with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.base import Answer, Exchange, Finished, Group, Member, Remark, State
from edgefed.algorithms.mean_augmented import AVERAGED, MEAN, MeanAugmented
from edgefed.algorithms.registry import find
from edgefed.algorithms.shares import PATIENCE
from edgefed.config.recipe import ModelSection, Recipe
from edgefed.errors import DataError, RecipeError
from edgefed.learn.models import build
from edgefed.learn.objectives.entries import KEPT
from edgefed.learn.training import Trainer
from edgefed.learn.types import Job
from edgefed.samples import Samples
from edgefed.sharing.means import Withheld
from edgefed.sharing.packing import pack, unpack
from edgefed.sharing.policy import Policy
from edgefed.sharing.types import Entries
from edgefed.wire.codecs import CODECS, decode
from tests.algorithms.play import SIZES, Players, algorithm, asked, bits
from tests.worlds import CLASSES, SHAPE, samples

mixing = pytest.mark.parametrize("name", ["naivemix", "fedmix"])
DEVICES = [f"device-{number:02d}" for number in range(len(SIZES))]


def half_of(name: str = "fedmix", rounds: int = 2, **settings: Any) -> MeanAugmented:
    half = algorithm(name, rounds, **settings)
    assert isinstance(half, MeanAugmented)
    return half


def planned(half: MeanAugmented, state: State, players: Players, seed: int = 1) -> Exchange:
    exchange = half.plan(state, players.roster, seed)
    assert isinstance(exchange, Exchange)
    return exchange


def after_sharing(half: MeanAugmented, players: Players) -> State:
    """Return the state after the exchange of averages."""
    state = players.start(half)
    exchange = planned(half, state, players)
    assert exchange.name == MEAN
    return half.merge(state, asked(exchange), players.answers(half, exchange))


def stacked(state: State) -> Any:
    return unpack(dict(state.groups[AVERAGED]))


# -- asking ---------------------------------------------------------------------------------------


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
    half = find("fedmix")(find("fedmix").Settings(), Recipe.model_validate(recipe))
    players = Players()
    first = half.plan(players.start(half), players.roster, 1)
    assert isinstance(first, Exchange)
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
    again = half.plan(state, roster, 1)
    assert isinstance(again, Exchange)
    assert (again.name, [each.device for each in again.questions]) == (MEAN, ["device-99"])


def test_who_was_silent_is_asked_again_after_some_rounds() -> None:
    half, players = half_of(rounds=99), Players()
    state = players.start(half)
    exchange = planned(half, state, players)
    answers = players.answers(half, exchange)[1:]
    state = half.merge(state, asked(exchange), answers)
    assert planned(half, state, players).name == "fit"
    late = replace(state, round=PATIENCE)
    again = planned(half, late, players)
    assert (again.name, [each.device for each in again.questions]) == (MEAN, DEVICES[:1])
    state = half.merge(late, asked(again), players.answers(half, again))
    assert len(stacked(state)) == 4
    assert planned(half, replace(state, round=3 * PATIENCE), players).name == "fit"


def test_changed_data_are_shared_again_only_when_enough_devices_have_changed() -> None:
    half = half_of(rounds=9)
    members = tuple(Member(f"device-{k:02d}", 5, SHAPE, CLASSES, "old") for k in range(10))
    state = half.start(Players().trainer.model.weights(), members, 1)
    exchange = half.plan(state, members, 1)
    assert isinstance(exchange, Exchange)
    players = Players([samples(5, k) for k in range(10)])
    state = half.merge(state, asked(exchange), players.answers(half, exchange))
    state = replace(state, round=1)
    for changed, name in ((1, "fit"), (2, MEAN)):
        roster = tuple(
            replace(member, data="new") if k < changed else member
            for k, member in enumerate(members)
        )
        again = half.plan(state, roster, 1)
        assert isinstance(again, Exchange)
        assert again.name == name
    assert isinstance(again, Exchange)
    assert [question.device for question in again.questions] == DEVICES[:2]


# -- stacking -------------------------------------------------------------------------------------


def test_the_stack_holds_the_mean_of_each_device() -> None:
    half, players = half_of(packing="fp32"), Players()
    entries = stacked(after_sharing(half, players))
    means = np.stack([part.inputs.mean(axis=0) for part in players.parts])
    order = np.argsort(entries.inputs[:, 0])
    np.testing.assert_allclose(
        entries.inputs[order], means[np.argsort(means[:, 0])], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(entries.targets.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("packing", "most"), [("uint8", 0.02), ("bf16", 0.01), ("fp32", 0)])
def test_packed_averages_are_near_the_true_ones(packing: str, most: float) -> None:
    exact, found = (
        entries[np.argsort(entries[:, 0])]
        for entries in (
            stacked(after_sharing(half_of(packing=how), Players())).inputs
            for how in ("fp32", packing)
        )
    )
    assert np.abs(found - exact).max() <= most * np.abs(exact).max() + 1e-7


def test_a_group_size_gives_more_entries() -> None:
    entries = stacked(after_sharing(half_of(group_size=2), Players()))
    assert len(entries) == sum(size // 2 for size in SIZES)


def test_entries_may_be_averaged_again() -> None:
    half, players = half_of(merge_entries=2, packing="fp32"), Players()
    entries = stacked(after_sharing(half, players))
    assert len(entries) == 2
    each = np.stack([part.inputs.mean(axis=0) for part in players.parts])
    np.testing.assert_allclose(entries.inputs.mean(axis=0), each.mean(axis=0), atol=1e-6)


def test_noise_in_the_place_of_averages() -> None:
    plain = stacked(after_sharing(half_of(packing="fp32"), Players()))
    noise = stacked(after_sharing(half_of(packing="fp32", entries="random"), Players()))
    assert (noise.inputs != plain.inputs).all()
    assert sorted(map(bytes, noise.targets)) == sorted(map(bytes, plain.targets))


def test_own_averages_are_not_exchanged() -> None:
    half, players = half_of(entries="own"), Players()
    history = players.play(half)
    assert [exchange.name for _, exchange in history] == ["fit", "fit"]
    exchange = history[0][1]
    assert exchange.payloads.keys() == {"weights"}
    question = exchange.questions[0]
    job = half.prepare(players.task(exchange, question), players.view(question.device))
    assert isinstance(job, Job)
    np.testing.assert_allclose(
        job.extra["inputs"][0], players.parts[0].inputs.mean(axis=0), rtol=1e-5
    )


def test_a_device_may_leave_its_own_rows_out() -> None:
    half, players = half_of(exclude_own=True, group_size=2, packing="fp32"), Players()
    state = after_sharing(half, players)
    exchange = planned(half, state, players)
    means = half.prepare(
        replace(players.task(exchange, exchange.questions[1]), question=MEAN),
        players.view(DEVICES[1]),
    )
    assert isinstance(means, Answer)
    own = {row.tobytes() for row in means.groups["means"].arrays["inputs"]}
    job = half.prepare(players.task(exchange, exchange.questions[1]), players.view(DEVICES[1]))
    assert isinstance(job, Job)
    mixed = {row.tobytes() for row in job.extra["inputs"][job.extra[KEPT]]}
    everything = {row.tobytes() for row in stacked(state).inputs}
    assert mixed == everything - own
    assert own <= everything


def test_leaving_rows_out_copies_no_stack_and_keeps_clients_alike() -> None:
    """So that a stack of clients holds what all are sent once, and its clients' extras fit."""
    half, players = half_of(exclude_own=True, group_size=2), Players()
    exchange = planned(half, after_sharing(half, players), players)
    given = exchange.payloads[AVERAGED].arrays
    shapes = set()
    for question in exchange.questions:
        job = half.prepare(players.task(exchange, question), players.view(question.device))
        assert isinstance(job, Job)
        assert all(job.extra[name] is array for name, array in given.items())
        shapes.add(tuple((name, job.extra[name].shape) for name in sorted(job.extra)))
    assert len(shapes) == 1


def test_a_device_whose_averages_are_all_there_are_trains_without() -> None:
    half, players = half_of(exclude_own=True), Players([samples(5, 1)])
    exchange = planned(half, after_sharing(half, players), players)
    job = half.prepare(players.task(exchange, exchange.questions[0]), players.view(DEVICES[0]))
    assert isinstance(job, Job)
    assert not job.extra


def test_the_weighted_mean_of_all_averages_is_the_mean_of_all_data() -> None:
    for settings in ({}, {"group_size": 2}, {"group_size": 100}):
        half, players = half_of(packing="fp32", **settings), Players()
        exchange = planned(half, players.start(half), players)
        found = players.answers(half, exchange)
        sizes = [
            len(group)
            for each in found
            for group in np.array_split(np.arange(each.samples), int(each.metrics["entries"]))
        ]
        entries = [unpack(dict(each.groups["means"].arrays)) for each in found]
        mean = np.average(np.concatenate([e.inputs for e in entries]), axis=0, weights=sizes)
        whole = np.concatenate([part.inputs for part in players.parts])
        np.testing.assert_allclose(mean, whole.mean(axis=0), atol=1e-6)
        labels = np.concatenate([part.targets for part in players.parts])
        shares = np.average(np.concatenate([e.targets for e in entries]), axis=0, weights=sizes)
        np.testing.assert_allclose(shares, np.bincount(labels, minlength=CLASSES) / len(labels))


# -- subsets --------------------------------------------------------------------------------------


@mixing
@pytest.mark.parametrize("sharers", range(5))
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
        assert remark == Remark(
            f"{sharers} of 4 devices shared averaged data: {sharers} entries in all"
        )
    else:
        assert remark.warning
        assert "this is FedAvg" in remark.text
    assert history[-1][0].round == 2


def test_with_nobody_sharing_it_is_fedavg_to_the_bit() -> None:
    half, players = half_of(), Players()
    state = players.start(half)
    state = half.merge(state, asked(planned(half, state, players)), [])
    exchange = planned(half, state, players)
    plain = algorithm("fedavg")
    theirs = plain.plan(players.start(plain), players.roster, 1)
    assert isinstance(theirs, Exchange)
    mine = half.merge(state, asked(exchange), players.answers(half, exchange))
    other = plain.merge(players.start(plain), asked(theirs), players.answers(plain, theirs))
    assert bits(mine.groups["weights"]) == bits(other.groups["weights"])


def test_a_policy_is_honoured() -> None:
    half, players = half_of(), Players(policy=Policy(share_means=False))
    exchange = planned(half, players.start(half), players)
    with pytest.raises(Withheld):
        players.answers(half, exchange)
    strict = Players(policy=Policy(least_group=6))
    means = [
        strict.answer(half_of(group_size=2), exchange, question)
        for question in exchange.questions[1:3]
    ]
    assert [answer.metrics["group"] for answer in means] == [9.0, 6.0]


def test_who_shares_nothing_may_mix_its_own_averages() -> None:
    """Nothing leaves the device then, so its policy has nothing to say."""
    half, players = half_of(entries="own"), Players(policy=Policy(False, 10))
    history = players.play(half)
    assert history[-1][0].round == 2


def test_nobody_large_enough_is_said() -> None:
    half, players = half_of(threshold=100), Players()
    before = players.start(half)
    exchange = planned(half, before, players)
    after = half.merge(before, asked(exchange), players.answers(half, exchange))
    (remark,) = half.remarks(before, exchange, after)
    assert remark == Remark(
        "no device has the 100 samples that threshold asks for: this is FedAvg", warning=True
    )
    later = planned(half, after, players)
    assert not half.remarks(after, later, half.merge(after, asked(later), []))
    own = half_of(entries="own")
    assert not own.remarks(players.start(own), exchange, after)


def test_changed_data_that_were_not_sent_are_asked_for_again() -> None:
    half, players = half_of(rounds=99), Players()
    state = replace(after_sharing(half, players), round=1)
    roster = tuple(replace(member, data="new") for member in players.roster)
    again = half.plan(state, roster, 1)
    assert isinstance(again, Exchange)
    assert again.name == MEAN
    state = half.merge(state, asked(again), players.answers(half, again)[1:])
    assert len(stacked(state)) == 4
    (remark,) = half.remarks(state, again, state)
    assert remark.text.startswith("3 of 4 devices shared")
    late = half.plan(replace(state, round=1 + PATIENCE), roster, 1)
    assert isinstance(late, Exchange)
    assert (late.name, [each.device for each in late.questions]) == (MEAN, DEVICES[:1])


def test_data_that_change_all_the_time_hold_up_no_round() -> None:
    half, players = half_of(rounds=99), Players()
    state = after_sharing(half, players)
    for word in ("one", "other"):
        roster = tuple(replace(member, data=word) for member in players.roster)
        exchange = half.plan(state, roster, 1)
        assert isinstance(exchange, Exchange)
        assert exchange.name == "fit"
    asked_next = half.plan(replace(state, round=1), roster, 1)
    assert isinstance(asked_next, Exchange)
    assert asked_next.name == MEAN


# -- what comes from outside ----------------------------------------------------------------------


def mean_answer(**arrays: Any) -> Answer:
    return Answer(DEVICES[0], 5, {"means": Group(arrays)})


def test_averages_of_another_shape_are_refused_with_a_reason() -> None:
    half, players = half_of(), Players()
    exchange = planned(half, players.start(half), players)
    model = players.trainer.model
    good = players.answers(half, exchange)[0]
    assert half.refusal(exchange, good, model) == ""
    assert half.refusal(replace(exchange, name="fit"), replace(good, groups={}), model) == ""
    bad = mean_answer(
        inputs=np.zeros((1, 2, 2), np.float32), targets=np.ones((1, CLASSES), np.float32)
    )
    assert "another run" in half.refusal(exchange, bad, model)
    assert "no averaged data" in half.refusal(exchange, replace(good, groups={}), model)
    nan = mean_answer(
        inputs=np.full((1, *SHAPE), np.nan, np.float32), targets=np.ones((1, 3), np.float32)
    )
    assert "NaN" in half.refusal(exchange, nan, model)


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
    exchange = planned(half, players.start(half), players)
    good = players.answers(half, exchange)[0]
    assert reason in half.refusal(exchange, replace(good, metrics=metrics), players.trainer.model)


def first_answer(half: MeanAugmented, players: Players) -> tuple[Exchange, Answer]:
    exchange = planned(half, players.start(half), players)
    return exchange, players.answers(half, exchange)[0]


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
    assert half.refusal(exchange, good, players.trainer.model) == ""
    assert reason in half.refusal(exchange, many, players.trainer.model)


@pytest.mark.parametrize("target", [[1e5, 0, 0], [2, -1, 0], [0, 0, 0]])
def test_targets_that_are_no_shares_of_labels_are_refused(target: list[float]) -> None:
    half, players = half_of(), Players()
    exchange, good = first_answer(half, players)
    arrays = {**good.groups["means"].arrays, "targets": np.array([target], np.float32)}
    false = replace(good, groups={"means": Group(arrays)})
    assert "no shares of labels" in half.refusal(exchange, false, players.trainer.model)


@pytest.mark.parametrize("split", [0, 1])
def test_one_device_cannot_say_that_averages_are_of_hidden_states(split: int) -> None:
    """Else it could have everybody asked again in every round, and drop what others shared."""
    half, players = half_of(split=split), Players()
    exchange, good = first_answer(half, players)
    assert half.refusal(exchange, good, players.trainer.model) == ""
    false = replace(good, metrics={**good.metrics, "hidden": 1.0 - split})
    assert "hidden states" in half.refusal(exchange, false, players.trainer.model)


@pytest.mark.parametrize("name", ["fedmix", "naivemix", "globalmix"])
@pytest.mark.parametrize("packing", ["uint8", "bf16", "fp32"])
@pytest.mark.parametrize("same_class", [False, True])
def test_no_true_answer_is_refused(name: str, packing: str, same_class: bool) -> None:
    """After its way over the wire, with whatever its codec drops."""
    for settings in ({}, {"group_size": 1}, {"group_size": 3, "split": 1}):
        if name == "globalmix" and settings.get("group_size") == 3:
            continue
        half = half_of(name, packing=packing, same_class=same_class, **settings)
        players = Players()
        exchange = planned(half, players.start(half), players)
        for answer in players.answers(half, exchange):
            group = answer.groups["means"]
            code = CODECS[group.codec or "fp32"].encode(group.arrays, np.random.default_rng(1))
            sent = replace(answer, groups={"means": Group(decode(code, None))})
            assert half.refusal(exchange, sent, players.trainer.model) == ""


def test_a_device_refuses_a_stack_that_is_not_of_its_run() -> None:
    half, players = half_of(), Players()
    exchange = planned(half, after_sharing(half, players), players)
    task = players.task(exchange, exchange.questions[0])
    foreign = {
        "inputs": np.zeros((2, 3, 3), np.float32),
        "targets": np.zeros((2, CLASSES), np.float32),
    }
    with pytest.raises(DataError, match="another run"):
        half.prepare(
            replace(task, groups={**task.groups, AVERAGED: foreign}), players.view(DEVICES[0])
        )


def test_the_room_for_averages_follows_what_a_device_announced() -> None:
    half, players = half_of(group_size=2), Players()
    exchange = planned(half, players.start(half), players)
    model = players.trainer.model
    largest = max(
        sum(array.nbytes for array in answer.groups["means"].arrays.values())
        for answer in players.answers(half, exchange)
    )
    assert half.room(exchange, model) >= largest
    assert half.room(replace(exchange, name="fit"), model) == 0


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


def test_globalmix_mixes_with_the_raw_samples_of_others() -> None:
    half, players = half_of("globalmix", packing="fp32"), Players()
    exchange = planned(half, after_sharing(half, players), players)
    job = half.prepare(players.task(exchange, exchange.questions[2]), players.view(DEVICES[2]))
    assert isinstance(job, Job)
    others = np.concatenate([part.inputs for k, part in enumerate(players.parts) if k != 2])
    mixed = job.extra["inputs"][job.extra[KEPT]]
    assert sorted(map(bytes, mixed)) == sorted(map(bytes, others))


def test_a_run_ends_as_before() -> None:
    half, players = half_of(rounds=1), Players()
    last = players.play(half)[-1][0]
    assert isinstance(half.plan(last, players.roster, 1), Finished)


# -- behind a split -------------------------------------------------------------------------------


def test_averages_of_hidden_states_are_exchanged_anew_in_each_round() -> None:
    half, players = half_of(rounds=3, split=1, packing="fp32"), Players()
    history = players.play(half)
    assert [exchange.name for _, exchange in history] == [MEAN, "fit"] * 3
    assert [exchange.round for _, exchange in history] == [1, 1, 2, 2, 3, 3]
    assert all(exchange.payloads.keys() >= {"weights"} for _, exchange in history)
    first, second = stacked(history[0][0]).inputs, stacked(history[2][0]).inputs
    assert first.shape == second.shape == (4, 3)
    assert not np.isin(first, second).any()


def test_hidden_averages_are_means_of_what_the_round_s_encoder_makes() -> None:
    half, players = half_of(split=1, packing="fp32"), Players()
    state = after_sharing(half, players)
    weights = players.trainer.model.weights()
    hidden = [players.trainer.encode(weights, part.inputs, 1) for part in players.parts]
    wanted = np.stack([each.mean(axis=0) for each in hidden])
    found = stacked(state).inputs
    order, theirs = np.lexsort(found.T), np.lexsort(wanted.T)
    np.testing.assert_allclose(found[order], wanted[theirs], rtol=1e-5, atol=1e-6)


def test_a_round_without_sharers_does_not_train_with_another_round_s_hidden_states() -> None:
    half, players = half_of(rounds=9, split=1), Players()
    state = replace(after_sharing(half, players), round=1)
    exchange = planned(half, state, players)
    assert exchange.name == MEAN
    state = half.merge(state, asked(exchange), [])
    assert AVERAGED not in state.groups
    assert planned(half, state, players).payloads.keys() == {"weights"}


def test_a_split_that_the_model_does_not_have_is_refused_before_the_run() -> None:
    model = Players().trainer.model
    half_of(split=1).check_model(model)
    with pytest.raises(RecipeError, match="cannot be split after 7 layers"):
        half_of(split=7).check_model(model)
    with pytest.raises(RecipeError, match="own averages of hidden states"):
        half_of(split=1, entries="own").check_model(model)


def lstm() -> Trainer:
    section = ModelSection.model_validate({"name": "lstm", "hidden": 4, "embedding": 3})
    return Trainer(build(section, (5,), 6, 1), "cpu")


def test_raw_tokens_have_room() -> None:
    rng = np.random.default_rng(1)
    parts = [Samples(rng.integers(0, 6, (9000, 5)), rng.integers(0, 6, 9000))]
    half, players = half_of("globalmix", split=1), Players(parts, lstm())
    exchange, answer = first_answer(half, players)
    needed = sum(array.nbytes for array in answer.groups["means"].arrays.values())
    assert half.room(exchange, players.trainer.model) >= needed


@pytest.mark.parametrize("settings", [{"noise": 0.1}, {"entries": "random"}])
def test_raw_tokens_take_no_noise(settings: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match="raw tokens"):
        half_of("globalmix", split=1, **settings).check_model(lstm().model)
    half_of("globalmix", **settings).check_model(Players().trainer.model)


@pytest.mark.parametrize("name", ["localmix", "naivemix", "fedmix", "globalmix"])
def test_tokens_are_mixed_behind_the_embedding_and_averaged_once(name: str) -> None:
    rng = np.random.default_rng(1)
    parts = [Samples(rng.integers(0, 6, (size, 5)), rng.integers(0, 6, size)) for size in SIZES]
    players = Players(parts, lstm())
    half = algorithm(name, 2, split=1)
    half.check_model(players.trainer.model)
    first = players.trainer.model.weights()
    state = half.start(first, players.roster, 1)
    names = []
    for number in range(9):
        exchange = half.plan(state, players.roster, number)
        if isinstance(exchange, Finished):
            break
        names.append(exchange.name)
        answers = players.answers(half, exchange)
        assert not any(half.refusal(exchange, each, players.trainer.model) for each in answers)
        state = half.merge(state, asked(exchange), answers)
    assert names == ["fit", "fit"] if name == "localmix" else [MEAN, "fit", "fit"]
    assert bits(half.weights(state)) != bits(first)
    with pytest.raises(RecipeError, match="tokens, which have no mean"):
        algorithm(name, 2).check_model(players.trainer.model)
