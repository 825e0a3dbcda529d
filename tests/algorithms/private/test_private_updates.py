"""Differentially private updates: clipping, noise, accounting, and what cannot be covered."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import AveragingSettings, FedAvg
from edgefed.algorithms.composed.registry import built_in, make, make_device_half
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.private.privacy_plan import check_privacy, privacy_plan
from edgefed.algorithms.private.private_updates import PRIVACY, PrivateUpdates
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.errors import RecipeError
from edgefed.events.base.method_tables import Column, MethodTable, method_table
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.sharing.policy import ANYTHING, Withheld
from edgefed.sharing.private_sum import norm_of
from edgefed.sharing.releases import update_release
from edgefed.sharing.update_accounting import Releases, epsilon_of
from tests.algorithms.play import Players, asked, bits, planned_for, task_fields
from tests.support.private_randomness import of_round

CENTRAL = {"mechanism": "central", "noise_multiplier": 1.0, "clip": 0.5}
LOCAL = {"mechanism": "local", "noise_multiplier": 1.0, "clip": 0.5}


def recipe(privacy: dict[str, Any], name: str = "fedavg", rounds: int = 2, **keys: Any) -> Recipe:
    algorithm = {"name": name, **keys.pop("algorithm", {})}
    values: dict[str, Any] = {
        "algorithm": algorithm,
        "training": {"batch_size": 4, "learning_rate": 0.1},
        "rounds": {"count": rounds, **keys.pop("rounds_too", {})},
        "privacy": privacy,
    }
    return Recipe.model_validate({**values, **keys})


def half_of(plan: Recipe) -> PrivateUpdates:
    made = make(plan, randomness=of_round)
    assert isinstance(made, PrivateUpdates)
    return made


def device_half(plan: Recipe) -> PrivateUpdates:
    made = make_device_half(task_fields(plan))
    assert isinstance(made, PrivateUpdates)
    return made


def begun(plan: Recipe, players: Players | None = None) -> tuple[PrivateUpdates, State, Exchange]:
    half, players = half_of(plan), players or Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    return half, state, exchange


def update(state: State, seed: int, scale: float) -> Tensors:
    draws = np.random.default_rng(seed)
    return {
        name: (scale * draws.normal(size=array.shape)).astype(np.float32)
        for name, array in state.groups["weights"].items()
    }


def answers(state: State, exchange: Exchange, scales: list[float], **more: Any) -> list[Answer]:
    return [
        Answer(question.device, question.samples, {"delta": Group(update(state, n, scale))}, **more)
        for n, (question, scale) in enumerate(zip(exchange.questions, scales, strict=True))
    ]


def moved(before: State, after: State) -> Tensors:
    old, new = before.groups["weights"], after.groups["weights"]
    return {name: new[name].astype(np.float64) - old[name] for name in old}


def distance(first: State, second: State) -> float:
    return norm_of(moved(first, second))


# -- off ------------------------------------------------------------------------------------------


def test_without_privacy_nothing_is_wrapped() -> None:
    assert type(make(recipe({}))) is FedAvg
    plain = Players().play(make(recipe({})))
    again = Players().play(make(recipe({"mechanism": "none", "noise_multiplier": 3.0})))
    assert bits(plain[-1][0]) == bits(again[-1][0])
    assert PRIVACY not in plain[-1][0].params


# -- central --------------------------------------------------------------------------------------


COVERED = ("fedavg", "fedprox", "fedopt", "fedlc", "fedrs", "localmix")


@pytest.mark.parametrize("name", ["fedopt", "localmix"])
def test_methods_that_average_updates_train_with_it(name: str) -> None:
    plan = recipe(CENTRAL, name, rounds=3)
    first = Players().play(half_of(plan))
    plain = Players().play(make(recipe({}, name, rounds=3)))
    assert bits(first[-1][0].groups["weights"]) != bits(plain[-1][0].groups["weights"])
    assert [state.params[PRIVACY]["epsilon"] for state, _ in first] == [
        epsilon_of([Releases(count, 1.0)], 1e-5) for count in (1, 2, 3)
    ]


def test_the_noise_is_on_the_mean_and_has_the_deviation_of_the_plan() -> None:
    plan = recipe({**CENTRAL, "noise_multiplier": 4.0})
    half, state, exchange = begun(plan)
    nothing = answers(state, asked(exchange), [0.0] * 4)
    changes = []
    for number in range(1, 200):
        after = half.merge(state, replace(asked(exchange), round=number), nothing)
        changes += [float(value) for each in moved(state, after).values() for value in each.ravel()]
    assert np.std(changes) == pytest.approx(4.0 * 0.5 / 4, rel=0.03)
    assert np.mean(changes) == pytest.approx(0.0, abs=0.02)


def test_noise_of_the_operating_system_differs_each_time() -> None:
    plan = recipe(CENTRAL)
    half = make(plan)
    players = Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    given = answers(state, asked(exchange), [0.1] * 4)
    first, second = (half.merge(state, asked(exchange), given) for _ in range(2))
    assert distance(first, second) > 0.01


def test_the_coordinator_clips_again_what_a_device_did_not() -> None:
    half, state, exchange = begun(recipe(CENTRAL))
    honest = answers(state, asked(exchange), [0.0] * 4)
    lying = [*honest[:-1], answers(state, asked(exchange), [0.0] * 3 + [60.0])[-1]]
    first, second = (half.merge(state, asked(exchange), given) for given in (honest, lying))
    assert distance(first, second) == pytest.approx(0.5 / 4, rel=1e-4)


@pytest.mark.parametrize("scale", [0.001, 50.0])
def test_replacing_an_answer_moves_the_model_by_twice_the_norm_at_most(scale: float) -> None:
    """With the same noise, the difference is that of the sums."""
    half, state, exchange = begun(recipe(CENTRAL))
    given = answers(state, asked(exchange), [scale] * 4)
    for place in range(4):
        other = {name: -array for name, array in given[place].groups["delta"].arrays.items()}
        changed = [*given]
        changed[place] = replace(given[place], groups={"delta": Group(other)})
        first, second = (half.merge(state, asked(exchange), each) for each in (given, changed))
        expected = 2 * min(0.5, norm_of(other)) / 4
        assert distance(first, second) <= 2 * 0.5 / 4 + 1e-6
        assert distance(first, second) == pytest.approx(expected, rel=1e-3)


def test_all_devices_weigh_the_same_whatever_they_say() -> None:
    half, state, exchange = begun(recipe(CENTRAL))
    given = answers(state, asked(exchange), [0.1, 0.2, 0.3, 0.4])
    other = [replace(each, samples=1) for each in given]
    first, second = (half.merge(state, asked(exchange), each) for each in (given, other))
    assert bits(first) == bits(second)


def test_a_device_clips_all_arrays_together_and_tells_no_loss() -> None:
    plan = recipe({**CENTRAL, "clip": 1e-3})
    players = Players()
    _, _, exchange = begun(plan, players)
    made = players.answer(device_half(plan), exchange, exchange.questions[0])
    assert norm_of(made.groups["delta"].arrays) == pytest.approx(1e-3, rel=1e-4)
    assert made.metrics == {}


def test_a_round_without_answers_costs_nothing() -> None:
    half, state, exchange = begun(recipe(CENTRAL))
    after = half.merge(state, asked(exchange), [])
    assert after.round == 1
    assert bits(after.groups) == bits(state.groups)
    assert after.params[PRIVACY] == state.params[PRIVACY]


def test_personal_weights_neither_leave_nor_count_in_the_norm() -> None:
    plan = recipe({**CENTRAL, "clip": 1e-3}, personal={"weights": ["*.bias"]})
    players = Players()
    half, state, exchange = begun(plan, players)
    device = device_half(plan)
    made = players.answer(device, exchange, exchange.questions[0])
    assert all(name.endswith(".weight") for name in made.groups["delta"].arrays)
    assert norm_of(made.groups["delta"].arrays) == pytest.approx(1e-3, rel=1e-4)
    after = half.merge(state, asked(exchange), [made])
    assert half.round_metrics(after)["epsilon"] > 0
    assert set(half.weights(after)) == set(players.trainer.model.names)


# -- the cohort -----------------------------------------------------------------------------------


def sampled(**privacy: Any) -> Recipe:
    keys = {"cohort": 2}
    return recipe({**CENTRAL, "population": 4, **privacy}, rounds=40, rounds_too=keys)


def test_a_counted_cohort_is_drawn_secretly_and_not_from_the_seed() -> None:
    players = Players()
    cohorts = []
    for _ in range(30):
        half = make(sampled())
        exchange = players.planned(half, players.start(half))
        cohorts.append(tuple(question.device for question in exchange.questions))
    assert len(set(cohorts)) > 1, "the seed alone says who is asked"
    known = make(recipe(CENTRAL, rounds=40, rounds_too={"cohort": 2}))
    same = {
        tuple(each.device for each in planned.questions)
        for planned in (known.plan(players.start(known), players.roster, 1) for _ in range(9))
        if isinstance(planned, Exchange)
    }
    assert len(same) == 1


class Telling(FedAvg):
    """Shows its answers by device, in a column, and in sum."""

    def view(self, state: State) -> tuple[MethodTable, ...]:
        number = Column(name="number")
        return (
            method_table("by device", [number], [("device-0", [1])], key="device"),
            method_table("in a column", [number, Column(name="device")], [("a", [1, "device-0"])]),
            method_table("in sum", [number], [("all", [state.round])]),
        )


@pytest.mark.parametrize(
    ("privacy", "shown"),
    [({"population": 0}, ["by device", "in a column", "in sum"]), ({"population": 6}, ["in sum"])],
)
def test_a_secret_cohort_has_no_table_that_names_devices(
    privacy: dict[str, Any], shown: list[str]
) -> None:
    plan, state = sampled(**privacy), State(1, {}, {})
    inner = Telling(AveragingSettings(), plan.training, plan.rounds)
    half = PrivateUpdates(inner, plan.privacy, lambda model: model.names)
    assert [table.name for table in half.view(state)] == shown


def test_epsilon_counts_the_cohorts_as_they_were_drawn() -> None:
    players = Players()
    half, state, exchange = begun(sampled(), players)
    given = answers(state, asked(exchange), [0.1, 0.1])
    state = half.merge(state, asked(exchange), given)
    assert state.params[PRIVACY]["releases"] == [[1, 2, 4]]
    fewer = planned_for(half, state, players.roster[:3], 2)
    state = half.merge(state, asked(fewer), answers(state, asked(fewer), [0.1, 0.1]))
    assert state.params[PRIVACY]["releases"] == [[1, 2, 3], [1, 2, 4]]
    wanted = epsilon_of([Releases(1, 1.0, 2, 3), Releases(1, 1.0, 2, 4)], 1e-5)
    assert half.round_metrics(state)["epsilon"] == wanted


def test_a_cohort_that_is_known_is_not_counted_on() -> None:
    plan = recipe(CENTRAL, rounds_too={"cohort": 2})
    assert privacy_plan(plan.privacy, plan.rounds).epsilon == epsilon_of([Releases(2, 1.0)], 1e-5)


def test_over_selected_devices_count_as_asked() -> None:
    plan = recipe({**CENTRAL, "population": 40}, rounds_too={"cohort": 4, "over_selection": 0.5})
    found = privacy_plan(plan.privacy, plan.rounds)
    assert (found.sampled, found.population) == (6, 40)


# -- adaptive clipping ----------------------------------------------------------------------------


@pytest.mark.parametrize(("quantile", "start"), [(0.5, 0.01), (0.8, 30.0)])
def test_the_norm_converges_to_the_quantile_of_the_norms(quantile: float, start: float) -> None:
    privacy = {
        **CENTRAL,
        "noise_multiplier": 0.1,
        "clip": start,
        "adaptive": True,
        "quantile": quantile,
        "clip_rate": 0.5,
    }
    plan, players = recipe(privacy, rounds=100), Players()
    players.parts = [players.parts[0]] * 20
    half, state, exchange = begun(plan, players)
    norms = np.linspace(1.0, 2.0, 20)
    for number in range(1, 100):
        clip = state.params[PRIVACY]["clip"]
        within = [float(norm <= clip) for norm in norms]
        given = [
            replace(each, metrics={"within": bit})
            for each, bit in zip(answers(state, asked(exchange), [0.1] * 20), within, strict=True)
        ]
        state = half.merge(state, replace(asked(exchange), round=number), given)
    assert state.params[PRIVACY]["clip"] == pytest.approx(np.quantile(norms, quantile), abs=0.08)
    assert half.round_metrics(state)["clip"] == state.params[PRIVACY]["clip"]


def test_a_device_says_whether_it_was_within_and_tasks_carry_the_norm() -> None:
    plan = recipe({**CENTRAL, "adaptive": True})
    players = Players()
    half, state, exchange = begun(plan, players)
    assert {question.params["clip"] for question in exchange.questions} == {0.5}
    for clip, within in ((1e-4, 0.0), (1e4, 1.0)):
        question = replace(exchange.questions[0], params={"clip": clip})
        made = players.answer(device_half(plan), exchange, question)
        assert made.metrics == {"within": within}
        assert norm_of(made.groups["delta"].arrays) <= clip * (1 + 1e-6)
    after = half.merge(state, asked(exchange), answers(state, asked(exchange), [0.1] * 4))
    later = players.planned(half, after, 2)
    assert later.questions[0].params["clip"] == after.params[PRIVACY]["clip"] != 0.5


def test_a_lying_device_counts_as_one_at_most() -> None:
    half, state, exchange = begun(recipe({**CENTRAL, "adaptive": True}))
    plain = answers(state, asked(exchange), [0.1] * 4, metrics={"within": 1.0})
    lying = [replace(each, metrics={"within": 1e30}) for each in plain]
    first, second = (half.merge(state, asked(exchange), each) for each in (plain, lying))
    assert bits(first) == bits(second)


def test_the_count_takes_its_part_of_the_noise() -> None:
    """The sum alone has more noise, so that both together cost what the plan says."""
    deviation = {}
    for adaptive in (False, True):
        half, state, exchange = begun(recipe({**CENTRAL, "adaptive": adaptive}))
        nothing = answers(state, asked(exchange), [0.0] * 4)
        changes: list[float] = []
        for number in range(1, 300):
            after = half.merge(state, replace(asked(exchange), round=number), nothing)
            changes += [float(each) for part in moved(state, after).values() for each in part.flat]
        deviation[adaptive] = float(np.std(changes))
    assert deviation[True] / deviation[False] == pytest.approx(1 / math.sqrt(1 - 1 / 4), rel=0.03)


def test_too_little_noise_on_the_count_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        check_privacy(recipe({**CENTRAL, "adaptive": True, "count_noise": 0.4}))
    assert caught.value.code == "privacy.count_noise"


# -- local ----------------------------------------------------------------------------------------


def test_each_device_adds_noise_and_notes_it_in_its_ledger() -> None:
    plan = recipe({**LOCAL, "noise_multiplier": 20.0})
    players = Players()
    _, _, exchange = begun(plan, players)
    device = device_half(plan)
    question = exchange.questions[0]
    made = players.answer(device, exchange, question)
    values = np.concatenate([each.ravel() for each in made.groups["delta"].arrays.values()])
    assert float(values.std()) == pytest.approx(20.0 * 0.5, rel=0.25)
    assert made.metrics == {"releases": 1.0}
    (entry,) = made.ledger
    assert entry == update_release(1, question.samples, 0.5, 20.0, 1e-5)
    assert entry["epsilon"] == epsilon_of([Releases(1, 20.0)], 1e-5)
    assert (entry["kind"], entry["formal"], entry["delta"]) == ("update", "epsilon-delta", 1e-5)
    again = players.answer(device, exchange, question)
    assert again.metrics == {"releases": 2.0}


def test_repeated_rounds_count_for_the_device_that_answered_most() -> None:
    half, state, exchange = begun(recipe(LOCAL))
    given = [
        replace(each, metrics={"releases": count})
        for each, count in zip(
            answers(state, asked(exchange), [0.1] * 4), (1.0, 3.0, 1.0, 2.0), strict=True
        )
    ]
    after = half.merge(state, replace(asked(exchange), index=5), given)
    assert half.round_metrics(after)["epsilon"] == epsilon_of([Releases(3, 1.0)], 1e-5)


def test_a_masked_sum_counts_as_one_more_release_of_each_device() -> None:
    half, state, exchange = begun(recipe(LOCAL))
    for number in (1, 2, 3):
        given = answers(state, asked(exchange), [0.1] * 4)
        state = half.merge(state, replace(asked(exchange), round=number), given)
        assert half.round_metrics(state)["epsilon"] == epsilon_of([Releases(number, 1.0)], 1e-5)


def test_a_device_cannot_claim_more_releases_than_there_were_exchanges() -> None:
    half, state, exchange = begun(recipe(LOCAL))
    given = answers(state, asked(exchange), [0.1] * 4, metrics={"releases": 1e9})
    after = half.merge(state, replace(asked(exchange), index=5), given)
    assert half.round_metrics(after)["epsilon"] == epsilon_of([Releases(6, 1.0)], 1e-5)


@pytest.mark.parametrize(("limit", "allowed"), [(None, 5), (5.0, 3), (0.01, 0)])
def test_the_owner_limits_what_updates_cost_over_all_runs(
    limit: float | None, allowed: int
) -> None:
    plan = recipe({**LOCAL, "noise_multiplier": 3.5})
    policy = replace(ANYTHING, update_epsilon=limit)
    players = Players(policy=policy)
    _, _, exchange = begun(plan, players)
    device, question = device_half(plan), exchange.questions[0]
    ledger: tuple[Any, ...] = ({"kind": "means", "epsilon": None},)
    made = 0
    for _ in range(5):
        view = replace(players.view(question.device), ledger=ledger)
        try:
            device.prepare(players.task(exchange, question), view)
        except Withheld as refusal:
            assert "update_epsilon" in refusal.message
            break
        ledger += (update_release(1, 5, 0.5, 3.5, 1e-5),)
        made += 1
    assert made == allowed
    if limit is not None:
        assert epsilon_of([Releases(made, 3.5)], policy.update_delta) <= limit
        assert epsilon_of([Releases(made + 1, 3.5)], policy.update_delta) > limit


# -- budgets --------------------------------------------------------------------------------------


def test_the_multiplier_follows_from_epsilon() -> None:
    plan = recipe({"mechanism": "central", "epsilon": 4.0}, rounds=7)
    found = privacy_plan(plan.privacy, plan.rounds)
    assert found.epsilon <= 4.0
    assert epsilon_of([Releases(7, found.multiplier * 0.998)], 1e-5) > 4.0
    history = Players().play(half_of(plan))
    assert len(history) == 7
    assert history[-1][0].params[PRIVACY]["epsilon"] == found.epsilon


@pytest.mark.parametrize("mechanism", ["central", "local"])
def test_a_budget_that_cannot_be_met_is_refused_with_what_would_meet_it(mechanism: str) -> None:
    privacy = {"mechanism": mechanism, "epsilon": 3.0, "noise_multiplier": 5.0}
    with pytest.raises(RecipeError) as caught:
        check_privacy(recipe(privacy, rounds=50))
    assert caught.value.code == "privacy.budget"
    hint = caught.value.hint
    least = float(hint.split("at least ")[1].split(",")[0])
    most = int(hint.split("at most ")[1])
    check_privacy(recipe({**privacy, "noise_multiplier": least}, rounds=50))
    check_privacy(recipe(privacy, rounds=most))
    with pytest.raises(RecipeError):
        check_privacy(recipe(privacy, rounds=most + 1))


def test_a_run_stops_before_the_round_that_would_exceed_the_budget() -> None:
    """Fewer devices are there than the plan counts on, so every cohort tells more."""
    plan = sampled(population=1000, epsilon=4.0, noise_multiplier=4.0)
    check_privacy(plan)
    players = Players()
    half = half_of(plan)
    state = players.start(half)
    spent = [0.0]
    with pytest.raises(RecipeError) as caught:
        for number in range(40):
            exchange = players.planned(half, state, number)
            given = answers(state, asked(exchange), [0.1, 0.1])
            state = half.merge(state, asked(exchange), given)
            spent.append(half.round_metrics(state)["epsilon"])
    assert caught.value.code == "privacy.budget"
    assert 0 < spent[-1] <= 4.0


# -- what cannot be covered -----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(built_in().keys() - COVERED))
def test_only_methods_that_average_one_update_are_covered(name: str) -> None:
    with pytest.raises(RecipeError) as caught:
        make(recipe(CENTRAL, name))
    assert caught.value.code == "privacy.algorithm"


def test_mixes_of_samples_and_measures_of_bare_updates_are_refused() -> None:
    for keys in ({"labels": {"supplement": 0.5}}, {"algorithm": {"divergence": True}}):
        with pytest.raises(RecipeError) as caught:
            make(recipe(CENTRAL, **keys))
        assert caught.value.code == "privacy.algorithm"


def test_a_rule_that_compares_updates_is_refused_where_the_coordinator_adds_noise() -> None:
    with pytest.raises(RecipeError, match="compares updates without noise") as caught:
        check_privacy(recipe(CENTRAL, merging={"rule": "median"}))
    assert caught.value.code == "privacy.algorithm"
    check_privacy(recipe(LOCAL, merging={"rule": "median"}))


def batch_norm() -> Any:
    section = ModelSection.model_validate({"name": "resnet20", "norm": "batch"})
    return build(section, (3, 8, 8), 3, 1)


def test_running_statistics_are_refused_unless_they_stay_on_the_devices() -> None:
    model = batch_norm()
    assert model.buffer_names
    with pytest.raises(RecipeError) as caught:
        make(recipe(CENTRAL)).check_model(model)
    assert caught.value.code == "privacy.statistics"
    make(recipe(CENTRAL, personal={"preset": "fedbn"})).check_model(model)


@pytest.mark.parametrize(
    "privacy",
    [
        {"mechanism": "central"},
        {"mechanism": "local", "noise_multiplier": 1.0, "adaptive": True},
        {"mechanism": "local", "noise_multiplier": 1.0, "population": 9},
        {"mechanism": "central", "noise_multiplier": 0.0},
        {"mechanism": "central", "epsilon": 0.0},
    ],
)
def test_a_table_that_says_too_little_or_too_much_is_refused(privacy: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="privacy"):
        recipe(privacy)


class Chatty(FedAvg):
    """A plug-in that inherits from FedAvg, and sends more than it declares."""

    private_updates = True

    def plan(self, state: State, roster: Any, seed: int) -> Exchange | Finished:
        planned = super().plan(state, roster, seed)
        assert isinstance(planned, Exchange)
        roles = {**planned.reply_roles, "labels": planned.reply_roles["delta"]}
        return replace(planned, reply_roles=roles)

    def answer(self, task: Any, device: Any, result: Any) -> Answer:
        made = super().answer(task, device, result)
        return replace(made, groups={**made.groups, "labels": made.groups["delta"]})


def test_a_plug_in_that_sends_more_than_its_update_is_refused_on_both_sides() -> None:
    plan, players = recipe(LOCAL), Players()
    plain, state, exchange = begun(plan, players)
    chatty = Chatty(plain.settings, plan.training, plan.rounds)
    half = PrivateUpdates(chatty, plan.privacy, lambda model: model.names)
    with pytest.raises(RecipeError, match="also hold labels"):
        half.plan(state, players.roster, 1)
    with pytest.raises(RecipeError, match="also hold labels"):
        players.answer(half, exchange, exchange.questions[0])


class Coded(FedAvg):
    """Sends its update with a codec of its own."""

    private_updates = True

    def answer(self, task: Any, device: Any, result: Any) -> Answer:
        made = super().answer(task, device, result)
        return replace(made, groups={"delta": replace(made.groups["delta"], codec="fp32")})


@pytest.mark.parametrize("privacy", [LOCAL, CENTRAL])
def test_an_update_keeps_its_codec(privacy: dict[str, Any]) -> None:
    plan, players = recipe(privacy), Players()
    plain, _, exchange = begun(plan, players)
    coded = Coded(plain.settings, plan.training, plan.rounds)
    half = PrivateUpdates(coded, plan.privacy, lambda model: model.names)
    answer = players.answer(half, exchange, exchange.questions[0])
    assert answer.groups["delta"].codec == "fp32"
