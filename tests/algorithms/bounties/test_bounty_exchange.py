"""The life of label bounties: who is asked, what they come to, and what failures leave of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.bounties.bounty_exchange import MAX_DELIVERED
from edgefed.algorithms.bounties.bounty_records import (
    MAX_BOUNTIES,
    MAX_REQUESTERS,
    MAX_TRIES,
    PATIENCE,
    BountyRecords,
)
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.sharing.bounty_report import Bounty
from edgefed.sharing.policy import Policy
from edgefed.wire import limits
from tests.algorithms.bounty_play import (
    LABELS,
    PREPARED,
    Device,
    LabelPlayers,
    images,
    one_label_each,
    only,
    recipe,
    records,
)
from tests.algorithms.play import bits

FIRST, SECOND, THIRD, FOURTH = (f"device-{n:02d}" for n in range(LABELS))


def asked(players: LabelPlayers, name: str) -> list[list[str]]:
    """Return who was asked in each exchange of a name."""
    return [devices for exchange, devices, _ in players.log if exchange == name]


def told(players: LabelPlayers, state: State, device: str) -> list[tuple[int, int, int, str]]:
    """Return label, mixes received, noise and status of a device's bounties."""
    return [(b.label, b.received, b.noise, b.status) for b in players.bounties(state, device)]


def test_devices_of_one_label_each_get_the_others() -> None:
    players = one_label_each()
    state = players.to_training()
    assert players.names() == list(PREPARED)
    for device, label in zip(players.devices, range(LABELS), strict=True):
        others = [each for each in range(LABELS) if each != label]
        assert told(players, state, device) == [(each, 4, 4, "closed") for each in others]
        counts = np.bincount(players.samples(device, state).targets, minlength=LABELS)
        assert counts.tolist() == [8] * LABELS
    assert players.rejected == players.refused == {}
    assert state.round == 0


def test_rare_labels_are_asked_for_and_given_too() -> None:
    """Each device is short of the other one's label, of which it has two samples of eight."""
    parts = {FIRST: Device(images([8, 2, 8, 8])), SECOND: Device(images([2, 8, 8, 8]))}
    players = LabelPlayers(parts, recipe(fewer_than=3))
    state = players.to_training()
    assert told(players, state, FIRST) == [(1, 3, 3, "closed")]
    assert told(players, state, SECOND) == [(0, 3, 3, "closed")]
    for device in parts:
        counts = np.bincount(players.samples(device, state).targets, minlength=LABELS)
        assert counts.tolist() == [8] * LABELS
    unasked = LabelPlayers(parts, recipe())
    assert unasked.bounties(unasked.to_training(), FIRST) == []


def test_all_four_exchanges_are_preparatory_and_need_nobody() -> None:
    players = one_label_each()
    state, exchange = players.to_exchange("label_need")
    for name in PREPARED:
        assert (exchange.name, exchange.preparatory, exchange.quorum) == (name, True, 0)
        assert (exchange.wanted, exchange.deadline) == (len(exchange.questions), 60.0)
        state = players.step(state, exchange)
        exchange = players.planned(state)
    assert (exchange.name, exchange.preparatory) == ("fit", False)


def test_offers_are_taken_in_equal_parts() -> None:
    devices = {
        "asks": Device(images([0, 10, 0, 0])),
        "gives-1": Device(images([1, 5, 5, 5])),
        "gives-2": Device(images([9, 5, 5, 5])),
        "gives-3": Device(images([9, 5, 5, 5]), Policy(mix_limit=1)),
    }
    players = LabelPlayers(devices, recipe())
    state, _ = players.to_exchange("label_mix")
    shares = [(each.provider, each.label, each.mixes) for each in records(state).allocations]
    assert shares == [
        ("gives-1", 0, 2),
        ("gives-2", 0, 2),
        ("gives-3", 0, 1),
        ("gives-1", 2, 3),
        ("gives-2", 2, 2),
        ("gives-1", 3, 3),
        ("gives-2", 3, 2),
    ]
    assert [b.offered for b in players.bounties(state)] == [11, 10, 10]


@pytest.mark.parametrize("random", [1, 2])
def test_the_order_of_answers_changes_nothing(random: int) -> None:
    results = []
    for backwards in (False, True):
        players = one_label_each(6)
        players.backwards, players.random = backwards, random
        state = players.to_training()
        trained = [bits(players.samples(device, state)) for device in players.devices]
        results.append((bits(state), trained))
    assert results[0] == results[1]


def test_a_single_device_trains_on_noise() -> None:
    players = LabelPlayers({FIRST: Device(only(0))})
    state = players.to_training()
    assert players.names() == ["label_need", "label_offer"]
    assert told(players, state, FIRST) == [(each, 0, 8, "closed") for each in (1, 2, 3)]
    assert np.bincount(players.samples(FIRST, state).targets).tolist() == [8] * LABELS


def test_without_noise_what_is_missing_stays_open() -> None:
    players = one_label_each(noise="none", mix_share=0.75)
    players.devices[SECOND].policy = Policy(share_mixes=False)
    state = players.to_training()
    assert told(players, state, FIRST) == [
        (1, 0, 0, "closed"),
        (2, 6, 0, "closed"),
        (3, 6, 0, "closed"),
    ]
    assert np.bincount(players.samples(FIRST, state).targets).tolist() == [8, 0, 6, 6]


def test_a_device_that_joins_later_is_asked_and_reopens_what_is_missing() -> None:
    players = one_label_each()
    players.devices[FOURTH].online = False
    state = players.to_training()
    assert told(players, state, FIRST) == [
        (1, 4, 4, "closed"),
        (2, 4, 4, "closed"),
        (3, 0, 8, "closed"),
    ]
    state = players.next_round(state)
    players.devices[FOURTH].online = True
    state = players.to_training(state)
    assert asked(players, "label_need") == [[FIRST, SECOND, THIRD], [FOURTH]]
    for device in (FIRST, SECOND, THIRD):
        assert {each[1:] for each in told(players, state, device)} == {(4, 4, "closed")}
    assert {each[1:] for each in told(players, state, FOURTH)} == {(4, 4, "closed")}
    second_offer = asked(players, "label_offer")[1]
    assert second_offer == list(players.devices)


def test_only_what_is_missing_is_asked_for_again() -> None:
    players = one_label_each()
    players.devices[FOURTH].online = False
    state = players.next_round(players.to_training())
    players.devices[FOURTH].online = True
    state, exchange = players.to_exchange("label_offer", state)
    by_device = {each.device: each.params["bounties"] for each in exchange.questions}
    missing = [[FIRST, 3, 4], [SECOND, 3, 4], [THIRD, 3, 4]]
    assert by_device[FOURTH] == missing
    assert by_device[FIRST] == [*missing[1:], *([FOURTH, label, 4] for label in range(3))]


def test_changed_data_are_asked_about_once_a_round() -> None:
    players = one_label_each()
    state = players.to_training()
    before = len(players.log)
    players.devices[FIRST].data = "second"
    assert players.to_training(state) is state  # it was asked in this round
    state = players.next_round(state)
    players.devices[FIRST].train = images([8, 2, 0, 0])
    state = players.to_training(state)
    assert players.names()[before:] == ["label_need"]
    assert asked(players, "label_need")[-1] == [FIRST]
    assert told(players, state, FIRST) == [(2, 4, 4, "closed"), (3, 4, 4, "closed")]
    assert np.bincount(players.samples(FIRST, state).targets).tolist() == [8, 2, 8, 8]


def test_a_silent_device_is_asked_again_after_some_rounds() -> None:
    players = one_label_each()
    players.deaf = {"label_need": {SECOND}}
    state = players.to_training()
    assert not players.bounties(state, SECOND)
    players.deaf = {}
    for _ in range(PATIENCE):
        assert len(asked(players, "label_need")) == 1
        state = players.to_training(players.next_round(state))
    assert asked(players, "label_need")[1:] == [[SECOND]]
    assert len(players.bounties(state, SECOND)) == 3


def test_a_requester_that_is_offline_gets_its_mixes_later() -> None:
    players = one_label_each()
    state, _ = players.to_exchange("label_fill")
    players.devices[FIRST].online = False
    state = players.to_training(state)
    assert {each[3] for each in told(players, state, FIRST)} == {"open"}
    assert [each.tries for each in records(state).sent] == [0, 0, 0]
    players.devices[FIRST].online = True
    state = players.to_training(state)
    assert {each[1:] for each in told(players, state, FIRST)} == {(4, 4, "closed")}
    assert records(state).sent == ()


def test_a_requester_that_does_not_answer_is_tried_once_a_round() -> None:
    players = one_label_each()
    players.deaf = {"label_fill": {FIRST}}
    state = players.start()
    for number in range(1, MAX_TRIES + 1):
        state = players.to_training(state)
        assert len(asked(players, "label_fill")) == number
        assert {each[3] for each in told(players, state, FIRST)} == (
            {"open"} if number < MAX_TRIES else {"closed"}
        )
        state = players.next_round(state)
    assert told(players, state, FIRST) == [(each, 0, 8, "closed") for each in (1, 2, 3)]
    assert records(state).sent == ()
    state = players.to_training(state)
    assert len(asked(players, "label_fill")) == MAX_TRIES


def test_what_is_given_up_is_deleted_by_the_next_exchange() -> None:
    players = one_label_each()
    players.deaf = {"label_fill": {FIRST}}
    state, exchange = players.to_exchange("label_fill")
    waiting = [each.relay for each in records(state).sent if each.relay.receiver == FIRST]
    for _ in range(MAX_TRIES):
        state = players.next_round(players.to_training(state))
    exchange = players.planned(state)
    assert len(waiting) == 3
    assert (exchange.name, exchange.discarded) == ("fit", tuple(waiting))
    players.devices["joins"] = Device(images([1, 1, 1, 1]))
    exchange = players.planned(state)
    assert (exchange.name, exchange.discarded) == ("label_need", tuple(waiting))
    state = players.step(state, exchange)
    assert players.planned(state).discarded == ()


def test_a_provider_that_dies_after_its_offer_leaves_noise() -> None:
    players = one_label_each()
    players.deaf = {"label_mix": {SECOND}}
    state = players.to_training()
    assert told(players, state, FIRST) == [
        (1, 0, 8, "closed"),
        (2, 4, 4, "closed"),
        (3, 4, 4, "closed"),
    ]
    assert records(state).allocations == ()


def test_providers_that_are_all_gone_leave_an_exchange_without_questions() -> None:
    players = one_label_each()
    state, _ = players.to_exchange("label_mix")
    players.devices["other"] = Device(images([1, 1, 1, 1]))
    for name in (FIRST, SECOND, THIRD, FOURTH):
        players.devices[name].online = False
    exchange = players.planned(state)
    assert (exchange.name, exchange.questions, exchange.wanted) == ("label_mix", (), 0)
    state = players.step(state, exchange)
    assert {each.status for each in players.bounties(state)} == {"closed"}
    assert players.planned(state).name == "label_need"


def test_a_part_of_the_providers_is_as_good_as_it_gets() -> None:
    devices = {"asks": Device(only(0)), "dies": Device(only(1)), "gives": Device(only(1))}
    players = LabelPlayers(devices, recipe(), deaf={"label_mix": {"dies"}})
    state = players.to_training()
    assert told(players, state, "asks")[0] == (1, 2, 6, "closed")
    assert np.bincount(players.samples("asks", state).targets).tolist() == [8] * LABELS


# -- limits -------------------------------------------------------------------------------------


def test_many_requesters_are_served_in_batches() -> None:
    number = MAX_REQUESTERS + 3
    devices = {f"asks-{n:03d}": Device(only(0, 2)) for n in range(number)}
    devices["gives"] = Device(images([2, 40, 0, 0]))
    players = LabelPlayers(devices, recipe())
    state = players.to_training()
    assert [b.received for b in players.bounties(state) if b.label == 1] == [1] * number
    offers = [devices for name, devices, _ in players.log if name == "label_offer"]
    assert len(offers) == 2
    mixes = [entry for entry in devices["gives"].kept.ledger if entry["kind"] == "mixes"]
    assert sorted(entry["receiver"] for entry in mixes) == sorted(set(devices) - {"gives"})
    assert {tuple(entry["counts"].items()) for entry in mixes} == {(("1", 1),)}


def test_no_batch_has_more_bounties_than_a_task_tells() -> None:
    online = {f"d-{device:02d}" for device in range(40)}
    many = tuple(Bounty(each, label, 2, 1) for each in sorted(online) for label in range(60))
    known = BountyRecords(1, bounties=many)
    batch = known.to_publish(online)
    assert len(batch) == MAX_BOUNTIES
    assert batch == many[:MAX_BOUNTIES]
    assert known.to_publish(online - {"d-00"})[0].device == "d-01"


def test_more_providers_than_a_task_delivers_blobs_of() -> None:
    providers = MAX_DELIVERED + 5
    assert MAX_DELIVERED <= limits.MAX_RELAYS
    devices = {f"gives-{n:03d}": Device(images([1, 4, 1, 1])) for n in range(providers)}
    devices["asks"] = Device(images([0, 200, 2, 2]))
    players = LabelPlayers(devices, recipe())
    state, exchange = players.to_exchange("label_fill")
    (question,) = exchange.questions
    assert len(question.relays) == len(question.params["sent"]) == MAX_DELIVERED
    state = players.step(state, exchange)
    assert players.bounty(state, "asks", 0).status == "open"
    state = players.to_training(state)
    assert players.names().count("label_fill") == 2
    closed = players.bounty(state, "asks", 0)
    assert (closed.received, closed.noise, closed.status) == (100, 100, "closed")
    assert np.bincount(players.samples("asks", state).targets).tolist() == [200, 200, 2, 2]


def test_a_silent_requester_with_many_blobs_is_asked_once_a_round() -> None:
    devices = {f"gives-{n:03d}": Device(images([1, 4, 1, 1])) for n in range(MAX_DELIVERED + 5)}
    devices["asks"] = Device(images([0, 200, 2, 2]))
    players = LabelPlayers(devices, recipe(), deaf={"label_fill": {"asks"}})
    state = players.to_training()
    assert players.names().count("label_fill") == 1
    assert {each.tries for each in records(state).sent} == {1}


# -- orders ---------------------------------------------------------------------------------------


def test_orders_are_carried_out_once_and_in_their_order() -> None:
    players = one_label_each()
    state = players.to_training()
    cancelled = players.ordered(state, 2, "cancel")
    assert cancelled == players.ordered(state, 2, "cancel")
    assert bits(players.ordered(cancelled, 1, "open")) == bits(cancelled)
    assert records(cancelled).orders == 2
    assert {each.status for each in players.bounties(cancelled)} == {"closed"}, "all is there"


@pytest.mark.parametrize("name", PREPARED[1:])
def test_a_cancelled_bounty_is_filled_with_noise_at_any_step(name: str) -> None:
    players = one_label_each()
    state, _ = players.to_exchange(name)
    state = players.ordered(state, 1, "cancel", FIRST, 2)
    assert players.bounty(state, FIRST, 2).status == "cancelled"
    state = players.to_training(state)
    got = 4 if name == "label_fill" else 0  # they were on their way
    ends = [(1, 4, 4, "closed"), (2, got, 8 - got, "cancelled"), (3, 4, 4, "closed")]
    assert told(players, state, FIRST) == ends
    assert np.bincount(players.samples(FIRST, state).targets).tolist() == [8] * LABELS
    kept = {n for group in players.kept(FIRST).values() for n in group}
    assert (f"{THIRD}/mixes" in kept) == (name == "label_fill")


@pytest.mark.parametrize("action", ["cancel", "open"])
@pytest.mark.parametrize("name", PREPARED)
def test_an_order_while_answers_come_in_does_no_harm(name: str, action: str) -> None:
    players = one_label_each()

    def halfway(exchange: Exchange, state: State) -> State:
        return players.ordered(state, 1, action, FIRST) if exchange.name == name else state

    players.halfway = halfway
    state = players.to_training()
    for device in players.devices:
        assert len(players.samples(device, state)) == 8 * LABELS
        for each in players.bounties(state, device):
            assert each.received + each.noise == each.count
            kept = [
                int(np.count_nonzero(group[f"{other}/labels"] == each.label))
                for group in players.kept(device).values()
                for other in players.devices
                if f"{other}/labels" in group
            ]
            assert sum(kept) == each.received
            hit = device == FIRST and action == "cancel" and name in PREPARED[1:]
            assert each.status == ("cancelled" if hit else "closed")


def test_a_bounty_that_was_opened_while_others_were_offered_is_published_next() -> None:
    players = one_label_each()
    players.devices[SECOND].policy = Policy(share_mixes=False)
    state = players.to_training()
    players.devices[SECOND].policy = Policy()
    state = players.next_round(state)
    players.devices["joins"] = Device(only(0))
    state, _ = players.to_exchange("label_offer", state)
    state = players.ordered(state, 1, "cancel", FIRST)

    def halfway(exchange: Exchange, state: State) -> State:
        return players.ordered(state, 2, "open", FIRST) if exchange.name == "label_offer" else state

    players.halfway = halfway
    state = players.to_training(state)
    assert told(players, state, FIRST)[0] == (1, 4, 4, "closed")


def test_an_order_to_open_asks_again_for_what_is_missing() -> None:
    players = one_label_each()
    players.devices[SECOND].policy = Policy(share_mixes=False)
    state = players.to_training()
    done = len(players.log)
    players.devices[SECOND].policy = Policy()
    state = players.to_training(players.ordered(state, 1, "open", "", 1))
    assert players.names()[done:] == ["label_offer", "label_mix", "label_fill"]
    assert [d for name, d, _ in players.log[done:] if name == "label_mix"] == [[SECOND]]
    assert {(b.received, b.noise) for b in players.bounties(state)} == {(4, 4)}
    state = players.ordered(state, 2, "open")
    assert {b.status for b in players.bounties(state)} == {"closed"}, "nothing is missing"


def test_a_cancelled_bounty_stays_so_when_its_device_states_its_needs_again() -> None:
    players = one_label_each()
    state, _ = players.to_exchange("label_offer")
    state = players.to_training(players.ordered(state, 1, "cancel", FIRST, 1))
    players.devices[FIRST].data = "second"
    state = players.to_training(players.next_round(state))
    assert players.bounty(state, FIRST, 1).status == "cancelled"
    assert players.bounty(state, FIRST, 1).noise == 8


def test_a_cancelled_bounty_is_not_reopened_for_devices_that_join() -> None:
    players = one_label_each()
    players.devices[FOURTH].online = False
    state = players.to_training()
    state = players.next_round(players.ordered(state, 1, "cancel", FIRST))
    whole = [(1, 4, 4, "closed"), (2, 4, 4, "closed")]
    assert told(players, state, FIRST) == [*whole, (3, 0, 8, "cancelled")]
    players.devices[FOURTH].online = True
    state = players.to_training(state)
    assert told(players, state, FIRST) == [*whole, (3, 0, 8, "cancelled")]
    assert players.bounty(state, SECOND, 3).received == 4
    state = players.to_training(players.ordered(state, 2, "open", FIRST))
    assert told(players, state, FIRST) == [*whole, (3, 4, 4, "closed")]


def test_the_operator_is_told_what_bounties_come_to() -> None:
    players = one_label_each()
    players.devices[SECOND].policy = Policy(share_mixes=False)
    state = players.start()
    lines = []
    for _ in PREPARED:
        exchange, before = players.planned(state), state
        state = players.step(state, exchange)
        remarks = players.half.remarks(before, exchange, state)
        lines.append([(remark.text, remark.warning) for remark in remarks])
    assert lines == [
        [("4 devices lack labels: 12 bounties open", False)],
        [
            (
                "3 label bounties closed: 0 of 12 mixes are there, natural noise fills 24",
                True,
            )
        ],
        [],
        [("9 label bounties closed: 36 of 36 mixes are there, natural noise fills 36", False)],
    ]


# -- across runs ----------------------------------------------------------------------------------


def again(players: LabelPlayers, **plan: Any) -> LabelPlayers:
    """Return the same devices in another run."""
    return LabelPlayers(players.devices, recipe(**plan), random=9)


def test_mixes_are_kept_across_runs_and_not_asked_for_again() -> None:
    players = one_label_each()
    state = players.to_training()
    other = again(players)
    later = other.to_training()
    assert other.names() == ["label_need"]
    assert [b.received for b in other.bounties(later)] == [4] * 12
    assert bits(other.samples(FIRST, later)) == bits(players.samples(FIRST, state))


@pytest.mark.parametrize("changed", [{"width": 2}, {"noise_scale": 0.5}, {"low": 0.6}])
def test_other_settings_of_mixes_begin_anew(changed: dict[str, Any]) -> None:
    players = one_label_each()
    players.to_training()
    other = again(players, **changed)
    other.to_training()
    assert other.names() == list(PREPARED)
    assert len(players.kept(FIRST)) == 2


def test_a_larger_supplement_asks_for_the_difference() -> None:
    players = one_label_each(supplement=0.5)
    players.to_training()
    other = again(players)
    _, exchange = other.to_exchange("label_offer")
    asks: Sequence[Sequence[object]] = exchange.questions[0].params["bounties"]
    assert {row[2] for row in asks} == {2}
    state = other.to_training()
    assert len(other.samples(FIRST, state)) == 8 * LABELS


def test_a_smaller_supplement_leaves_out_some_by_the_seed() -> None:
    players = one_label_each()
    players.to_training()
    other = again(players, supplement=0.5, noise="none")
    state = other.to_training()
    assert other.names() == ["label_need"]
    trained = other.samples(FIRST, state)
    assert np.bincount(trained.targets).tolist() == [8, 2, 2, 2]
    same = again(players, supplement=0.5, noise="none")
    assert bits(same.samples(FIRST, same.to_training())) == bits(trained)
    plan = again(players, supplement=0.5, noise="none").plan.model_copy(update={"seed": 4})
    third = LabelPlayers(players.devices, plan)
    start = third.half.start(third.model.weights(), third.roster, 12)
    assert bits(third.samples(FIRST, third.to_training(start))) != bits(trained)
