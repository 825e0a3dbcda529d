"""How experts begin: apart, from the first updates of planted groups, and again when dead."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.experts.expert_device_half import EXPERTS
from edgefed.algorithms.experts.expert_records import (
    BEGUN,
    PHI,
    STEPS,
    TABLE,
    UNUSED,
    memory_of,
    role,
)
from edgefed.algorithms.experts.expert_start import farthest_first, from_updates, near
from edgefed.algorithms.experts.fedmoe import UPDATE
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.learn.base.mixture_table import device_shares
from edgefed.learn.base.types import Array, Samples, Tensors
from tests.algorithms.moe_play import (
    made_answer,
    merged,
    moe,
    shares_known,
    with_mixtures,
    with_table,
)
from tests.algorithms.play import Players, algorithm, asked, bits
from tests.run_fixture import CLASSES, samples

WEIGHTS: Tensors = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, np.float32)}
PLANTED = np.random.default_rng(1).normal(size=(3, 10)).astype(np.float32)


def update(device: int, group: int, noise: float = 0.05, count: int = 4) -> Answer:
    """Return an update near the one of a planted group."""
    numbers = np.random.default_rng([device, group])
    change = PLANTED[group] + noise * numbers.normal(size=10).astype(np.float32)
    arrays = {"w": change[:6].reshape(2, 3).astype(np.float32), "b": change[6:].astype(np.float32)}
    return Answer(f"device-{device:02d}", count, {"delta": Group(arrays)})


def flat(tensors: Tensors) -> Array:
    return np.concatenate([np.ravel(array) for array in tensors.values()])


def test_experts_begin_with_different_weights_of_the_same_kind() -> None:
    half, players = moe(experts=3), Players()
    state = players.start(half)
    assert bits(state.groups[role(0)]) == bits(players.trainer.model.weights())
    for one, two in permutations(range(3), 2):
        assert bits(state.groups[role(one)]) != bits(state.groups[role(two)])
    for name, array in state.groups[role(2)].items():
        assert sorted(array.ravel()) == sorted(state.groups[role(0)][name].ravel())
    assert not state.groups[TABLE][PHI].any()
    first = state.groups[role(0)]
    assert bits(half.start(first, (), 11)) == bits(state)
    assert bits(half.start(first, (), 12).groups[role(1)]) != bits(state.groups[role(1)])


# -- first updates ------------------------------------------------------------------------------


def test_planted_groups_are_recovered() -> None:
    groups = [0, 0, 1, 2, 1, 0, 2, 2]
    answers = [update(n, group, count=n + 1) for n, group in enumerate(groups)]
    experts = from_updates(WEIGHTS, 3, answers, 1)
    means = []
    for group in range(3):
        own = [a for a, g in zip(answers, groups, strict=True) if g == group]
        total = sum(a.samples for a in own)
        change = sum(a.samples / total * flat(a.groups["delta"].arrays).astype(float) for a in own)
        means.append(flat(WEIGHTS) + change)
    best = min(
        sum(np.abs(flat(experts[k]) - means[g]).max() for k, g in enumerate(order))
        for order in permutations(range(3))
    )
    assert best < 1e-5


@pytest.mark.parametrize("noise", [0.05, 0.0])  # without noise, every choice is a tie
def test_the_order_of_updates_changes_no_bit(noise: float) -> None:
    answers = [update(n, group, noise) for n, group in enumerate([0, 1, 2, 0, 1, 2])]
    first = from_updates(WEIGHTS, 4, answers, 1)
    for order in ([5, 4, 3, 2, 1, 0], [2, 0, 5, 1, 4, 3]):
        assert bits(from_updates(WEIGHTS, 4, [answers[k] for k in order], 1)) == bits(first)


def test_with_fewer_updates_than_experts_the_others_begin_near_them() -> None:
    experts = from_updates(WEIGHTS, 5, [update(0, 0), update(1, 1)], 1)
    assert len(experts) == 5
    for expert, source in ((2, 0), (3, 1), (4, 0)):
        assert bits(experts[expert]) != bits(experts[source])
        assert np.abs(flat(experts[expert]) - flat(experts[source])).max() < 2.0
    assert bits(experts[2]) != bits(experts[4])
    assert bits(near(WEIGHTS, 1, "x")["b"]) == bits(WEIGHTS["b"]), "constant tensors stay"


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_updates_that_are_alike_or_nothing_are_no_error(noise: float) -> None:
    same = [update(0, 0, noise)] + [
        Answer(f"device-{n:02d}", 4, update(0, 0, noise).groups) for n in (1, 2)
    ]
    assert len(from_updates(WEIGHTS, 3, same, 1)) == 3
    still = {name: np.zeros_like(array) for name, array in WEIGHTS.items()}
    none = [Answer(f"device-{n:02d}", 4, {"delta": Group(still)}) for n in range(3)]
    for expert in from_updates(WEIGHTS, 3, none, 1):
        assert bits(expert) == bits(WEIGHTS)


def test_farthest_first_by_hand() -> None:
    likeness = np.array([[1, 0.9, 0.1], [0.9, 1, 0.2], [0.1, 0.2, 1]])
    assert farthest_first(likeness, 2) == [2, 0]
    assert farthest_first(likeness, 9) == [2, 0, 1]


def permuted(players: Players) -> Players:
    """Return four devices, of which two have their labels turned by one."""
    parts = [samples(30, seed) for seed in (1, 2, 3, 4)]
    turned = [Samples(p.inputs, (p.targets + (n > 1)) % CLASSES) for n, p in enumerate(parts)]
    return Players(turned, players.trainer)


def test_a_run_that_starts_from_updates_finds_permuted_labels() -> None:
    half = moe(2, experts=2, start="updates", condition="device", server_learning_rate=0.02)
    players = permuted(Players())
    history = players.play(half)
    first, exchange = history[0]
    assert (exchange.name, exchange.preparatory) == (UPDATE, True)
    assert set(exchange.payloads) == {role(0)}
    assert (first.round, first.params[BEGUN]) == (0, True)
    assert [each.name for _, each in history] == [UPDATE, "fit", "fit"]
    known = shares_known(history[-1][0])
    chosen = [int(np.argmax(known[device])) for device in sorted(known)]
    assert chosen[0] == chosen[1] != chosen[2] == chosen[3]


def test_at_most_so_many_devices_are_asked_for_updates() -> None:
    half, players = moe(experts=2, start="updates", start_devices=2), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    assert (len(exchange.questions), exchange.wanted) == (2, 2)
    again = players.planned(half, state, 99)
    assert again.questions == exchange.questions, "a preparatory exchange has no seed of its own"
    assert half.merge(state, asked(exchange), ()) == state


def test_an_update_weighs_no_more_than_was_announced() -> None:
    half, players = moe(experts=1 + 1, start="updates"), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    answers = players.answers(half, exchange)
    fair = half.merge(state, asked(exchange), answers)
    huge = [Answer(a.device, 2**50, a.groups) for a in answers]
    assert bits(half.merge(state, asked(exchange), huge).groups) == bits(fair.groups)


def test_the_preparatory_exchange_does_not_change_fedavgs_draws() -> None:
    """The first training exchange asks whom FedAvg would ask."""
    half, players = moe(experts=2, start="updates"), Players()
    (_, _), (_, fit), *_ = players.play(half)
    plain = algorithm("fedavg")
    planned = players.planned(plain, players.start(plain), 5)
    assert [q.device for q in fit.questions] == [q.device for q in planned.questions]


# -- dead experts -------------------------------------------------------------------------------


def dead_for(rounds: int, **settings: Any) -> tuple[State, State]:
    """Return the states before and after the last of so many rounds without use of expert 1."""
    half, players = moe(9, experts=2, prune=0.5, **settings), Players()
    state = players.start(half)
    state = with_table(state, np.tile([3.0, -7.0], (CLASSES, 1)))
    before = state
    for _ in range(rounds):
        before = state
        exchange = players.planned(half, state)
        state = merged(half, state, exchange, made_answer(state, "device-00", (1.0, 0.0), 0.1))
    return before, state


def test_a_dead_expert_begins_again_near_the_most_used_one() -> None:
    _, waiting = dead_for(2, reseed_dead=3)
    assert waiting.params[UNUSED] == [0, 2]
    before, after = dead_for(3, reseed_dead=3)
    assert bits(before.groups[role(1)]) == bits(waiting.groups[role(1)])
    for name, array in after.groups[role(1)].items():
        best = after.groups[role(0)][name]
        assert array.dtype == best.dtype
        assert 0 < np.abs(array - best).std() < 0.2 * best.std() or not np.ptp(best)
    assert after.params[STEPS] == [3, 0]
    assert after.params[UNUSED] == [0, 0]
    assert after.groups[memory_of(role(1))] == {}
    table = after.groups[TABLE][PHI]
    assert bits(table[:, 1]) == bits(table[:, 0])
    shares = device_shares(table, np.full(CLASSES, 1 / CLASSES))
    np.testing.assert_allclose(shares, 0.5)


def test_devices_that_prune_are_sent_an_expert_that_began_again() -> None:
    half, players = moe(9, experts=2, prune=0.5), Players()
    for state, sent in zip(dead_for(3, reseed_dead=3), ([0], [0, 1]), strict=True):
        exchange = players.planned(half, state)
        assert exchange.questions[0].params[EXPERTS] == sent


def test_its_optimiser_forgets_what_it_had() -> None:
    half, players = moe(9, experts=2, reseed_dead=1), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    used = merged(half, state, exchange, made_answer(state, "device-00", (0.5, 0.5), 0.1))
    assert used.groups[memory_of(role(1))]
    after = merged(half, used, exchange, made_answer(used, "device-00", (1.0, 0.0), 0.1))
    assert (after.groups[memory_of(role(1))], after.params[STEPS]) == ({}, [2, 0])
    assert after.groups[memory_of(role(0))]


def test_without_the_setting_it_stays_dead() -> None:
    before, after = dead_for(5)
    assert bits(after.groups[role(1)]) == bits(before.groups[role(1)])
    assert UNUSED not in after.params


def test_use_starts_the_count_anew() -> None:
    half, players = moe(9, experts=2, reseed_dead=3), Players()
    state = with_mixtures(players.start(half), {})
    counts = []
    for kept in ((1.0, 0.0), (1.0, 0.0), (0.5, 0.5), (1.0, 0.0)):
        exchange = players.planned(half, state)
        # Rounds go on, or the answer of an earlier one would count as this one's.
        state = merged(half, state, exchange, made_answer(state, "device-00", kept, 0.1))
        counts.append(state.params[UNUSED][1])
    assert counts == [1, 2, 0, 1]
