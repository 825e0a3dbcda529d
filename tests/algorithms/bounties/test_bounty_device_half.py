"""A device's half of label bounties: what it offers and gives, what it notes, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.bounties.bounty_answers import OFFERS, RECEIVED, UNLIMITED, rows_of
from edgefed.algorithms.bounties.bounty_device_half import MOST_GIVEN_BYTES
from edgefed.algorithms.bounties.bounty_records import BountyRecords
from edgefed.algorithms.bounties.received_mixes import (
    MOST_BYTES,
    added,
    blob_size,
    held,
    most_mixes,
    pack_mixes,
    replaced,
    unpack_mixes,
)
from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.device_side import DeviceTask
from edgefed.data.base.types import Preparation
from edgefed.errors import DataError, WireError
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.label_mixes import MixSettings
from edgefed.sharing.mix_accounting import composed, mix_epsilon
from edgefed.sharing.policy import Policy, Withheld
from edgefed.sharing.releases import spent
from edgefed.wire.limits import MAX_RELAY_BYTES
from edgefed.wire.tensors import pack
from edgefed.worker.outcomes import (
    MAX_ENTRIES,
    MAX_STATE_BYTES,
    PersistentState,
    checked_changes,
)
from tests.algorithms.bounty_play import (
    IMAGE,
    LABELS,
    Device,
    LabelPlayers,
    images,
    model,
    one_label_each,
    only,
    recipe,
)
from tests.algorithms.play import bits

TOKEN = "0123456789abcdef"
WIDE: dict[str, Any] = {"width": 1, "noise_scale": 0.5}


def task(
    question: str, relays: dict[str, tuple[bytes, ...]] | None = None, **params: Any
) -> DeviceTask:
    return DeviceTask(question, 2, "me", 5, {}, params, relays=relays or {})


def players(mine: Device, **plan: Any) -> LabelPlayers:
    return LabelPlayers({"me": mine}, recipe(**plan))


def offered(mine: Device, rows: Sequence[Sequence[Any]], **plan: Any) -> list[tuple[int, ...]]:
    """Return the device's offers for bounties."""
    here = players(mine, **plan)
    answer = here.device_half.prepare(task("label_offer", bounties=rows), here.view("me"))
    assert isinstance(answer, Answer)
    return rows_of(answer, OFFERS)


def made(mine: Device, rows: Sequence[Sequence[Any]], index: int = 0, **plan: Any) -> Answer:
    """Return the device's mixes for devices; what it keeps is changed."""
    here = players(mine, **plan)
    given = task("label_mix", mixes=rows, token=TOKEN)
    answer = here.device_half.prepare(given, here.view("me", index))
    assert isinstance(answer, Answer)
    ledger = checked_changes(mine.kept, answer)
    mine.kept = mine.kept.after(answer.device_state, ledger)
    return answer


def content(blob: bytes, **counts: int) -> tuple[Array, Array]:
    return unpack_mixes(blob, IMAGE, TOKEN, {int(k[1:]): n for k, n in counts.items()})


# -- offers ---------------------------------------------------------------------------------------


def test_a_device_offers_what_it_has() -> None:
    rows = [["a", 0, 3], ["a", 1, 50], ["b", 2, 7], ["b", 3, 1]]
    assert offered(Device(images([5, 1, 0, 2])), rows) == [(0, 3), (1, 50), (3, 1)]


@pytest.mark.parametrize(
    ("counts", "plan", "given"),
    [
        ([3, 0, 0, 0], {"width": 4}, 0),
        ([4, 0, 0, 0], {"width": 4}, 5),
        ([4, 0, 0, 0], {"others": "other_classes"}, 0),
    ],
)
def test_a_mix_needs_enough_samples(counts: list[int], plan: dict[str, Any], given: int) -> None:
    expected = [(0, given)] if given else []
    assert offered(Device(images(counts)), [["a", 0, 5]], **plan) == expected


@pytest.mark.parametrize("label", [-1, LABELS, 10**6])
def test_a_label_that_does_not_exist_is_not_offered(label: int) -> None:
    assert offered(Device(images([5, 5, 5, 5])), [["a", label, 5], ["a", 1, 5]]) == [(1, 5)]


def test_only_devices_that_the_owner_named_get_mixes() -> None:
    policy = Policy(mix_receivers=("b",))
    mine = Device(images([9, 0, 0, 0]), policy)
    rows = [["a", 0, 3], ["b", 0, 4], ["c", 0, 5]]
    assert offered(mine, rows) == [(1, 4)]
    assert set(made(mine, rows).relays) == {"b"}
    assert offered(Device(images([9, 0, 0, 0]), Policy(mix_receivers=())), rows) == []


def test_an_owner_that_tells_no_labels_is_not_asked_further() -> None:
    for question in ("label_need", "label_offer", "label_mix"):
        here = players(Device(only(0), Policy(share_labels=False)))
        given = task(question, bounties=[["a", 0, 5]], mixes=[["a", 0, 5]], token=TOKEN)
        with pytest.raises(Withheld, match="which labels it has"):
            here.device_half.prepare(given, here.view("me"))


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"width": 3}, "a mix is of 3 samples, and its policy requires 4"),
        ({"noise_scale": 0.1}, "the scale 0.1, and its policy requires 0.2"),
        ({"high": 0.9}, "may weigh 0.9 in a mix, and its policy allows 0.75"),
        ({}, ""),
    ],
)
def test_a_recipe_cannot_ask_for_mixes_that_hide_less_than_the_owner_wants(
    plan: dict[str, Any], reason: str
) -> None:
    policy = Policy(least_mix_width=4, least_mix_noise=0.2, most_mix_weight=0.75)
    mine, rows = Device(images([9, 0, 0, 0]), policy), [["a", 0, 3]]
    plan = {"noise_scale": 0.2, **plan}
    if not reason:
        assert offered(mine, rows, **plan) == [(0, 3)]
        return
    for ask in (offered, made):
        with pytest.raises(Withheld, match=reason):
            ask(mine, rows, **plan)


def test_samples_without_pixels_are_not_offered() -> None:
    far = images([9, 0, 0, 0])
    mine = Device(replace(far, inputs=far.inputs * 3))
    with pytest.raises(DataError) as caught:
        offered(mine, [["a", 0, 5]])
    assert caught.value.code == "mix.pixels"


def test_the_budget_is_divided_equally_and_never_exceeded() -> None:
    mine = Device(images([9, 9, 0, 0]), Policy(mix_limit=7))
    rows = [["a", 0, 5], ["b", 0, 5], ["a", 1, 1], ["b", 2, 9]]
    assert offered(mine, rows) == [(0, 3), (1, 3), (2, 1)]
    answer = made(mine, rows)
    assert answer.metrics["mixes"] == 7
    assert spent(mine.kept.ledger).mixes == 7
    assert offered(mine, rows) == []
    assert made(mine, rows).relays == {}
    assert spent(mine.kept.ledger).mixes == 7


def test_an_epsilon_buys_so_many_mixes() -> None:
    settings = MixSettings(width=1, noise_scale=0.5)
    pixels = int(np.prod(IMAGE))
    each = mix_epsilon(settings, pixels, 9, 0)
    assert each is not None
    mine = Device(images([9, 0, 0, 0]), Policy(mix_epsilon=4.5 * each))
    assert offered(mine, [["a", 0, 9]], **WIDE) == [(0, 4)]
    made(mine, [["a", 0, 3]], **WIDE)
    assert spent(mine.kept.ledger).epsilon == pytest.approx(3 * each)
    assert offered(mine, [["a", 0, 9]], **WIDE) == [(0, 1)]


def test_an_epsilon_buys_nothing_where_none_bounds_a_mix() -> None:
    mine = Device(images([9, 0, 0, 0]), Policy(mix_epsilon=1e9))
    assert offered(mine, [["a", 0, 9]], noise_scale=0.0) == []
    mine.pool = images([9, 9, 9, 9]).inputs
    assert offered(mine, [["a", 0, 9]], others="global") == []
    mine.policy = Policy()
    assert offered(mine, [["a", 0, 9]], others="global") == [(0, 9)]


def test_the_offer_tells_what_is_left_of_the_budget() -> None:
    here = one_label_each(**WIDE)
    each = mix_epsilon(MixSettings(width=1, noise_scale=0.5), 16.0, 8, 0)
    assert each is not None
    here.devices["device-00"].policy = Policy(mix_limit=100, mix_epsilon=1e31)
    state = here.next_round(here.to_training())
    here.devices["joins"] = Device(only(1))
    state = here.to_training(state)
    first, second = BountyRecords.of(state).budgets[:2]
    assert (first.device, first.released, first.mixes_left) == ("device-00", 16, 84), (
        "after its mixes"
    )
    assert first.epsilon == pytest.approx(16 * each)
    assert first.epsilon_left == 1e30
    assert (second.mixes_left, second.epsilon_left) == (None, None)
    assert here.metrics["device-01", "label_offer"]["mixes_left"] == UNLIMITED


def test_no_task_makes_more_mixes_than_memory_holds() -> None:
    wanted = 2 * 10**7
    ((_, share),) = offered(Device(only(0)), [["a", 0, wanted]])
    assert share == most_mixes(IMAGE, MOST_GIVEN_BYTES) < wanted
    largest = max(most_mixes(IMAGE), most_mixes(IMAGE, MOST_GIVEN_BYTES))
    assert blob_size(largest, IMAGE, TOKEN) < min(MAX_STATE_BYTES, MAX_RELAY_BYTES)


# -- mixes ----------------------------------------------------------------------------------------


def test_mixes_of_a_blob_are_of_the_labels_that_were_asked_for() -> None:
    mine = Device(images([5, 5, 5, 0]))
    answer = made(mine, [["b", 1, 2], ["a", 0, 3], ["a", 2, 1], ["a", 3, 9]])
    assert set(answer.relays) == {"a", "b"}
    mixes, labels = content(answer.relays["a"], l0=3, l2=1)
    assert labels.tolist() == [0, 0, 0, 2]
    assert mixes.shape == (4, *IMAGE)
    assert mixes.dtype == np.uint8
    assert content(answer.relays["b"], l1=2)[1].tolist() == [1, 1]
    assert answer.groups == {}
    assert len(answer.relays["a"]) <= blob_size(4, IMAGE, TOKEN)


def test_what_is_mixed_are_pixels_and_not_standardised_inputs() -> None:
    preparation = Preparation(mean=(0.25,), std=(0.5,))
    plain = images([6, 0, 0, 0])
    mine = Device(replace(plain, inputs=(plain.inputs - 0.25) / 0.5), preparation=preparation)
    answer = made(mine, [["a", 0, 20]], width=1, noise_scale=0.0)
    mixes, _ = content(answer.relays["a"], l0=20)
    own = np.rint(plain.inputs * 255).astype(np.uint8)
    assert {each.tobytes() for each in mixes} == {each.tobytes() for each in own}


def test_others_are_of_the_pool_where_the_recipe_says_so() -> None:
    black = np.zeros((5, *IMAGE), np.float32)
    white = replace(only(0, 1), inputs=np.ones((1, *IMAGE), np.float32))
    mine = Device(white, pool=black)
    answer = made(mine, [["a", 0, 30]], others="global", noise_scale=0.0, low=0.5, high=0.6)
    mixes, _ = content(answer.relays["a"], l0=30)
    assert 127 <= mixes.min() <= mixes.max() <= 153


def test_every_release_is_noted() -> None:
    here = one_label_each(5)
    here.to_training()
    kinds = [entry["kind"] for entry in here.devices["device-00"].kept.ledger]
    assert kinds == ["labels", "labels", *["mixes"] * 3]
    told = here.devices["device-00"].kept.ledger[2]
    assert (told["receiver"], told["counts"], told["records"]) == ("device-01", {"0": 2}, 8)
    settings = MixSettings()
    assert told["epsilon"] == mix_epsilon(settings, 16.0, 8, 0, 2)
    nothing = Device(images([0, 8, 0, 0]))
    assert offered(nothing, [["a", 0, 1]]) == []


def test_entries_of_many_labels_are_small_enough() -> None:
    classes = 900
    mine = Device(images([1] * classes))
    rows = [[f"receiver-{n % 60:02d}" + 40 * "x", n, 3] for n in range(classes)]
    rows += [["everything", n, 2] for n in range(classes)]
    here = LabelPlayers({"me": mine}, recipe(), model=model(classes=classes))
    answer = here.device_half.prepare(task("label_mix", mixes=rows, token=TOKEN), here.view("me"))
    assert isinstance(answer, Answer)
    entries = checked_changes(PersistentState(), answer)
    assert len(entries) <= MAX_ENTRIES
    assert spent(entries).mixes == 5 * classes
    one = mix_epsilon(MixSettings(), 16.0, 1, classes - 1)
    assert composed(each["epsilon"] for each in entries) == pytest.approx(5 * classes * (one or 0))


# -- privacy --------------------------------------------------------------------------------------


def ingredients(here: LabelPlayers) -> bytes:
    here.to_training()
    return bytes(bits(sorted(here.kept("device-00").items())).__repr__().encode())


def test_the_seed_does_not_determine_what_is_mixed() -> None:
    """With σ = 0, a mix tells which samples were chosen and how they were weighed."""
    drawn = []
    for random in (None, None, 4, 4, 5):
        here = one_label_each(noise_scale=0.0)
        here.random = random
        drawn.append(ingredients(here))
    assert len(set(drawn[:2])) == 2
    assert drawn[2] == drawn[3] != drawn[4]


def test_the_chosen_samples_differ_too() -> None:
    chosen = []
    for _ in range(2):
        here = players(Device(images([200, 0, 0, 0])), width=1, noise_scale=0.0)
        here.random = None
        given = task("label_mix", mixes=[["a", 0, 9]], token=TOKEN)
        answer = here.device_half.prepare(given, here.view("me"))
        assert isinstance(answer, Answer)
        chosen.append(bits(content(answer.relays["a"], l0=9)[0]))
    assert chosen[0] != chosen[1]


# -- received -------------------------------------------------------------------------------------


def blob(labels: Sequence[int], token: str = TOKEN, value: int = 7) -> bytes:
    mixes = np.full((len(labels), *IMAGE), value, np.uint8)
    return pack_mixes(mixes, np.array(labels, np.int64), token)


def taken(
    mine: Device, relays: dict[str, tuple[bytes, ...]], rows: Sequence[Sequence[Any]]
) -> Answer:
    here = players(mine)
    answer = here.device_half.prepare(task("label_fill", relays, sent=rows), here.view("me"))
    assert isinstance(answer, Answer)
    mine.kept = mine.kept.after(answer.device_state, checked_changes(mine.kept, answer))
    return answer


FORGED: dict[str, bytes] = {
    "nothing": b"",
    "no blob": b"x" * 40,
    "another token": blob([1], "0" * 16),
    "another label": blob([2]),
    "one too many": blob([1, 1, 1]),
    "no label": blob([]),
    "a negative label": blob([-1]),
    "an own label": blob([0]),
    "more arrays": pack({"mixes": np.zeros((1, *IMAGE), np.uint8)}),
    "another shape": pack_mixes(np.zeros((1, 1, 4, 5), np.uint8), np.ones(1, np.int64), TOKEN),
    "another number": pack_mixes(np.zeros((2, *IMAGE), np.uint8), np.ones(1, np.int64), TOKEN),
    "another kind": pack_mixes(np.zeros((1, *IMAGE), np.float32), np.ones(1, np.int64), TOKEN),
    "labels as fractions": pack_mixes(np.zeros((1, *IMAGE), np.uint8), np.ones(1), TOKEN),
    "cut off": blob([1])[:-1],
    "extended": blob([1]) + b"x",
}


@pytest.mark.parametrize("name", FORGED)
def test_what_was_not_asked_for_is_left_out_and_counted(name: str) -> None:
    mine = Device(only(0))
    rows = [["a", TOKEN, [[1, 2]]], ["b", TOKEN, [[1, 1], [2, 1]]]]
    answer = taken(mine, {"a": (FORGED[name],), "b": (blob([1, 2]),)}, rows)
    assert answer.metrics["refused"] == 1
    assert rows_of(answer, RECEIVED) == [(1, 1), (2, 1)]
    (kept,) = mine.kept.device_state.values()
    assert set(kept) == {"b/digests", "b/labels", "b/mixes"}


def test_a_blob_that_is_gone_is_counted() -> None:
    answer = taken(Device(only(0)), {}, [["a", TOKEN, [[1, 2]]]])
    assert answer.metrics["refused"] == 1
    assert rows_of(answer, RECEIVED) == []
    assert answer.device_state == {}


def test_mixes_that_come_again_are_taken_once() -> None:
    """The receipt of the first time was lost; or somebody replays a blob."""
    mine, rows = Device(only(0)), [["a", TOKEN, [[1, 2]]]]
    once = taken(mine, {"a": (blob([1, 1]),)}, rows)
    twice = taken(mine, {"a": (blob([1, 1]),)}, rows)
    both = taken(mine, {"a": (blob([1, 1]), blob([1, 1]))}, rows)
    assert [rows_of(each, RECEIVED) for each in (once, twice, both)] == [[(1, 2)]] * 3
    assert [each.metrics["refused"] for each in (once, twice, both)] == [0, 0, 0]
    other = taken(mine, {"a": (blob([1, 1], value=8),)}, rows)
    assert rows_of(other, RECEIVED) == [(1, 4)]


def test_a_receipt_that_was_lost_changes_nothing() -> None:
    here = one_label_each()
    lost: list[Answer] = []

    def lose(exchange: Any, answer: Answer) -> Answer | None:
        first = exchange.name == "label_fill" and answer.device == "device-00" and not lost
        if first:
            lost.append(answer)
        return None if first else answer

    here.tamper = lose
    state = here.to_training()
    assert {b.received for b in here.bounties(state, "device-00")} == {0}
    state = here.to_training(here.next_round(state))
    assert {(b.received, b.status) for b in here.bounties(state, "device-00")} == {(4, "closed")}
    undisturbed = one_label_each()
    expected = undisturbed.samples("device-00", undisturbed.to_training())
    assert bits(here.samples("device-00", state)) == bits(expected)


def test_mixes_of_two_batches_of_one_device_are_told_apart() -> None:
    mine, other = Device(only(0)), "f" * 16
    blobs = (blob([1], other, 1), blob([2], TOKEN, 2))
    rows = [["a", TOKEN, [[2, 1]]], ["a", other, [[1, 1]]]]
    assert rows_of(taken(mine, {"a": blobs}, rows), RECEIVED) == [(1, 1), (2, 1)]


def test_a_label_that_the_device_got_meanwhile_is_dropped() -> None:
    mine = Device(images([8, 3, 0, 0]))
    answer = taken(mine, {"a": (blob([1, 2]),)}, [["a", TOKEN, [[1, 1], [2, 1]]]])
    assert answer.metrics["refused"] == 0
    assert rows_of(answer, RECEIVED) == [(2, 1)]


def test_later_mixes_come_after_earlier_ones() -> None:
    kept: Tensors = {}
    for number, name in enumerate(("b", "a", "b")):
        mixes, labels = np.full((1, 2), number, np.uint8), np.array([number], np.int64)
        kept = added(kept, name, bytes([number]), mixes, labels)
    assert {name: each.tolist() for name, each in kept.items() if "digests" not in name} == {
        "a/labels": [1],
        "a/mixes": [[1, 1]],
        "b/labels": [0, 2],
        "b/mixes": [[0, 0], [2, 2]],
    }
    assert list(kept) == sorted(kept)
    assert held(kept, 4).tolist() == [1, 1, 1, 0]


def test_mixes_for_other_settings_make_room() -> None:
    large: Tensors = {"a/mixes": np.zeros((MOST_BYTES // 2 + 1, 1), np.uint8)}
    groups: dict[str, Tensors] = {"mixes-1": large, "mixes-2": large, "other": large}
    small: Tensors = {"a/mixes": np.zeros((1, 1), np.uint8)}
    assert replaced(groups, "mixes-3", small) == {"mixes-3": small, "mixes-2": {}}
    assert replaced(groups, "mixes-1", large) == {"mixes-1": large, "mixes-2": {}}
    assert replaced({"mixes-1": large}, "mixes-2", small) == {"mixes-2": small}
    assert replaced({}, "mixes-2", {}) == {}


def test_a_refusal_names_its_reason() -> None:
    with pytest.raises(WireError, match="2 mixes of label 1, which were not asked for") as caught:
        content(blob([1, 1]), l1=1)
    assert caught.value.code == "mix.forged"
