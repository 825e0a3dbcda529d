"""The stack of averaged data: its contents, its size, and how devices draw from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.averaged_data.mean_exchange import AVERAGED, MEAN
from edgefed.algorithms.averaged_data.mean_records import OWN, SHARED, holders
from edgefed.algorithms.averaging.fedavg import FedAvg
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.files.samples import Samples
from edgefed.learn.objectives.averaged_entries import KEPT
from tests.algorithms.mean_play import DEVICES, after_sharing, half_of, stacked
from tests.algorithms.play import SIZES, Players, asked
from tests.run_fixture import samples


def test_the_stack_holds_the_mean_of_each_device() -> None:
    half, players = half_of(packing="fp32"), Players()
    entries = stacked(after_sharing(half, players))
    means = np.stack([part.inputs.mean(axis=0) for part in players.parts])
    order = np.argsort(entries.inputs[:, 0])
    np.testing.assert_allclose(
        entries.inputs[order], means[np.argsort(means[:, 0])], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(entries.targets.sum(axis=1), 1, atol=1e-6)


def test_values_of_one_device_do_not_make_those_of_others_coarse() -> None:
    parts = [samples(9, 1), samples(9, 2)]
    far = Samples(parts[1].inputs * np.float32(1e5), parts[1].targets)
    entries = stacked(after_sharing(half_of(), Players([parts[0], far])))
    mean = parts[0].inputs.mean(axis=0)
    assert min(np.abs(found - mean).max() for found in entries.inputs) < 0.01 * np.ptp(mean)


def test_the_state_keeps_averages_as_small_as_they_came() -> None:
    state = after_sharing(half_of(), Players())
    kinds = {name.split("/")[1]: array.dtype for name, array in state.groups[SHARED].items()}
    assert kinds["inputs"] == np.uint8
    assert holders(state.groups[SHARED]) == set(DEVICES)


def test_the_order_of_the_stack_names_no_device() -> None:
    half = half_of(group_size=2, exclude_own=True)
    players, orders = Players(), list[list[int]]()
    weights = players.trainer.model.weights()
    for seed in range(8):
        state = half.start(weights, players.roster, seed)
        exchange = players.planned(half, state)
        state = half.merge(state, asked(exchange), players.answers(half, exchange))
        owners = {
            row: number
            for number, device in enumerate(DEVICES)
            for start, stop in state.params[OWN][device]
            for row in range(start, stop)
        }
        orders.append([owners[row] for row in sorted(owners)])
    assert not any(order == sorted(order) for order in orders)
    assert len({tuple(order) for order in orders}) > 4


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
    job = players.job(half, exchange, question)
    np.testing.assert_allclose(
        job.extra["inputs"][0], players.parts[0].inputs.mean(axis=0), rtol=1e-5
    )


def test_a_device_may_leave_its_own_rows_out() -> None:
    half, players = half_of(exclude_own=True, group_size=2, packing="fp32"), Players()
    state = after_sharing(half, players)
    exchange = players.planned(half, state)
    means = half.prepare(
        replace(players.task(exchange, exchange.questions[1]), question=MEAN),
        players.view(DEVICES[1]),
    )
    assert isinstance(means, Answer)
    own = {row.tobytes() for row in means.groups["means"].arrays["inputs"]}
    job = players.job(half, exchange, exchange.questions[1])
    mixed = {row.tobytes() for row in job.extra["inputs"][job.extra[KEPT]]}
    everything = {row.tobytes() for row in stacked(state).inputs}
    assert mixed == everything - own
    assert own <= everything


def test_raw_samples_are_stacked_device_by_device() -> None:
    """Then a device's own rows are one run, which is short to send."""
    half, players = half_of("globalmix"), Players()
    state = after_sharing(half, players)
    assert state.params[OWN] == dict(
        zip(DEVICES, ([[0, 5]], [[5, 14]], [[14, 20]], [[20, 24]]), strict=True)
    )


def test_a_device_that_shared_nothing_leaves_nothing_out() -> None:
    half, players = half_of(exclude_own=True), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    state = half.merge(state, asked(exchange), players.answers(half, exchange)[1:])
    training = players.planned(half, state)
    assert training.questions[0].params[OWN] == []
    job = players.job(half, training, training.questions[0])
    assert job.extra[KEPT].tolist() == [True] * 3


@pytest.mark.parametrize("exclude_own", [False, True])
def test_the_questions_of_the_training_keep_what_they_say(exclude_own: bool) -> None:
    half, players = half_of(exclude_own=exclude_own), Players()
    state = after_sharing(half, players)
    training = FedAvg(half.settings, half.training, half.planned_rounds).plan(
        state, players.roster, 1
    )
    assert isinstance(training, Exchange)
    told = replace(
        training, questions=tuple(replace(each, params={"a": 1}) for each in training.questions)
    )
    added = half.parts()[0].add_to_training(told, state)
    for question in added.questions:
        assert question.params.keys() == ({"a", OWN} if exclude_own else {"a"})
        assert question.blobs.keys() == {"weights", AVERAGED}


def test_noise_in_the_place_of_averages_is_of_the_run_s_seed() -> None:
    half, players = half_of(packing="fp32", entries="random"), Players()
    state = players.start(half)
    exchange = players.planned(half, state)
    answers = players.answers(half, exchange)
    other = half.start(players.trainer.model.weights(), players.roster, 12)
    one, two = (stacked(half.merge(each, asked(exchange), answers)) for each in (state, other))
    assert not np.isin(one.inputs, two.inputs).any()


def test_leaving_rows_out_copies_no_stack_and_keeps_clients_alike() -> None:
    """So that a stack of clients holds what all are sent once, and its clients' extras fit."""
    half, players = half_of(exclude_own=True, group_size=2), Players()
    exchange = players.planned(half, after_sharing(half, players))
    given = exchange.payloads[AVERAGED].arrays
    shapes = set()
    for question in exchange.questions:
        job = players.job(half, exchange, question)
        assert all(job.extra[name] is array for name, array in given.items())
        shapes.add(tuple((name, job.extra[name].shape) for name in sorted(job.extra)))
    assert len(shapes) == 1


def test_a_device_whose_averages_are_all_there_are_trains_without() -> None:
    half, players = half_of(exclude_own=True), Players([samples(5, 1)])
    exchange = players.planned(half, after_sharing(half, players))
    job = players.job(half, exchange, exchange.questions[0])
    assert not job.extra


def test_globalmix_mixes_with_the_raw_samples_of_others() -> None:
    half, players = half_of("globalmix", packing="fp32"), Players()
    exchange = players.planned(half, after_sharing(half, players))
    job = players.job(half, exchange, exchange.questions[2])
    others = np.concatenate([part.inputs for k, part in enumerate(players.parts) if k != 2])
    mixed = job.extra["inputs"][job.extra[KEPT]]
    assert sorted(map(bytes, mixed)) == sorted(map(bytes, others))
