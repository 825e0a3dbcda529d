"""What a device lacks, what is added to its samples, and that its own are not touched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from edgefed.algorithms.bounties.bounty_answers import MIX
from edgefed.algorithms.bounties.bounty_records import BountyRecords
from edgefed.algorithms.bounties.completed_samples import check_size, completed, needs_of
from edgefed.config.recipes.recipe import LabelsSection
from edgefed.data.base.limits import MAX_BYTES
from edgefed.data.base.pixel_range import from_pixels
from edgefed.data.base.types import Preparation
from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Job
from edgefed.natural_noise.shapes import noise_samples
from edgefed.seeds import derive
from edgefed.sharing.policy import Policy
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

COUNTS = st.lists(st.integers(0, 40), min_size=LABELS, max_size=LABELS).filter(any)


def section(**values: object) -> LabelsSection:
    return LabelsSection.model_validate({"noise": "white", **values})


@pytest.mark.parametrize(
    ("values", "needs"),
    [
        ({"supplement": 1}, [(1, 10, 5), (3, 10, 5)]),
        ({"supplement": 0.25}, [(1, 2, 1), (3, 2, 1)]),
        ({"supplement": 10, "mix_share": 1}, [(1, 100, 100), (3, 100, 100)]),
        ({"supplement": 1, "mix_share": 0}, [(1, 10, 0), (3, 10, 0)]),
        ({"supplement": 9, "count": 7, "mix_share": 0.3}, [(1, 7, 2), (3, 7, 2)]),
        ({"supplement": 0.01}, []),
    ],
)
def test_needs_by_hand(values: dict[str, float], needs: list[tuple[int, int, int]]) -> None:
    found = needs_of(images([10, 0, 4, 0]).targets, LABELS, section(**values))
    assert [(each.label, each.count, each.mixes) for each in found] == needs


@pytest.mark.parametrize(
    ("fewer_than", "needs"),
    [
        (1, [(1, 8, 4)]),
        (3, [(1, 8, 4), (2, 6, 3)]),
        (8, [(1, 8, 4), (2, 6, 3), (3, 1, 0)]),
        (1000, [(1, 8, 4), (2, 6, 3), (3, 1, 0)]),
    ],
)
def test_rare_labels_are_filled_up(fewer_than: int, needs: list[tuple[int, int, int]]) -> None:
    """Up to eight of each label, of which the device has 16, 0, 2 and 7 samples."""
    view = LabelPlayers({"device": Device(images([16, 0, 2, 7]))}).view("device")
    settings = section(supplement=0.5, fewer_than=fewer_than)
    found = needs_of(view.train.targets, LABELS, settings)
    assert [(each.label, each.count, each.mixes) for each in found] == needs
    samples = completed(view, settings, kept_mixes([9, 9, 9, 9], 1, 2), 1)
    counts = np.bincount(samples.targets, minlength=LABELS)
    filled = [each.label for each in found]
    assert counts.tolist() == [8 if n in filled else own for n, own in enumerate([16, 0, 2, 7])]
    assert bits(samples.inputs[: len(view.train)]) == bits(view.train.inputs)


@given(COUNTS, st.floats(0, 10), st.floats(0, 1))
def test_only_missing_labels_are_needed(counts: list[int], supplement: float, share: float) -> None:
    labels = np.repeat(np.arange(LABELS), counts)
    needs = needs_of(labels, LABELS, section(supplement=supplement, mix_share=share))
    number = round(supplement * max(counts))
    missing = [label for label, count in enumerate(counts) if not count]
    assert [each.label for each in needs] == (missing if number else [])
    for each in needs:
        assert each.count == number
        assert 0 <= each.mixes <= each.count


def kept_mixes(counts: list[int], seed: int, providers: int) -> dict[str, Array]:
    """Return mixes of each label, from several providers."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(LABELS), counts)
    parts = np.array_split(rng.permutation(labels), providers)
    kept: dict[str, Array] = {}
    for number, part in enumerate(parts):
        kept[f"p{number}/labels"] = part
        kept[f"p{number}/mixes"] = rng.integers(0, 256, (len(part), *IMAGE), np.uint8)
    return kept


@given(COUNTS, COUNTS, st.floats(0, 2), st.floats(0, 1), st.booleans(), st.integers(0, 99))
@hypothesis_settings(deadline=None)
def test_a_supplement_has_the_size_that_was_set(
    counts: list[int], held: list[int], supplement: float, share: float, noise: bool, seed: int
) -> None:
    settings = section(supplement=supplement, mix_share=share, noise="white" if noise else "none")
    players = LabelPlayers({"device": Device(images(counts, seed))})
    view = players.view("device")
    before = bits(view.train)
    kept = kept_mixes(held, seed, 3)
    samples = completed(view, settings, kept, seed)
    assert bits(view.train) == before
    assert bits(samples.inputs[: len(view.train)]) == bits(view.train.inputs)
    assert bits(samples.targets[: len(view.train)]) == bits(view.train.targets)
    needs = {each.label: each for each in needs_of(view.train.targets, LABELS, settings)}
    after = np.bincount(samples.targets, minlength=LABELS)
    for label in range(LABELS):
        if label not in needs:
            assert after[label] == counts[label]
            continue
        need, mixes = needs[label], min(held[label], needs[label].mixes)
        assert after[label] == (need.count if noise else mixes)
        added = samples.inputs[len(view.train) :][samples.targets[len(view.train) :] == label]
        pixels = np.rint(added * 255).astype(np.uint8)
        own = np.concatenate([kept[f"p{n}/mixes"][kept[f"p{n}/labels"] == label] for n in range(3)])
        offered = {each.tobytes() for each in own}
        assert all(each.tobytes() in offered for each in pixels[:mixes])
        if noise:
            drawn = noise_samples(
                derive(seed, "noise", label), need.count - mixes, IMAGE, kind="white"
            )
            assert pixels[mixes:].tobytes() == drawn.tobytes()


def test_a_surplus_is_dropped_at_random_by_the_seed() -> None:
    settings = section(count=4, mix_share=1)
    view = LabelPlayers({"device": Device(only(0))}).view("device")
    kept = kept_mixes([0, 9, 0, 0], 1, 2)
    chosen = [completed(view, settings, kept, seed).inputs[8:12] for seed in (1, 1, 2)]
    assert bits(chosen[0]) == bits(chosen[1]) != bits(chosen[2])
    everything = np.concatenate([kept["p0/mixes"], kept["p1/mixes"]])
    places = [
        next(
            n
            for n, each in enumerate(everything)
            if bits(from_pixels(each[None], view.preparation)[0]) == bits(one)
        )
        for one in chosen[0]
    ]
    assert places == sorted(set(places)), "none is there twice"
    assert places != [0, 1, 2, 3]


def test_what_needs_nothing_is_returned_as_it_is() -> None:
    for settings in (section(), section(supplement=0.01), section(count=5, noise="none")):
        view = LabelPlayers({"device": Device(images([5, 5, 5, 0]))}).view("device")
        assert completed(view, settings, {}, 1) is view.train


def test_mixes_and_noise_are_standardised_like_the_device_s_own_images() -> None:
    preparation = Preparation(mean=(0.25,), std=(0.5,))
    device = Device(only(0), preparation=preparation)
    view = LabelPlayers({"device": device}).view("device")
    kept = kept_mixes([0, 2, 0, 0], 1, 1)
    samples = completed(view, section(count=4), kept, 7)
    mixes = kept["p0/mixes"]
    assert bits(samples.inputs[8:10]) == bits(from_pixels(mixes, preparation))
    noise = noise_samples(derive(7, "noise", 1), 2, IMAGE, kind="white")
    assert bits(samples.inputs[10:12]) == bits(from_pixels(noise, preparation))
    np.testing.assert_allclose(samples.inputs[8:10], (mixes / 255 - 0.25) / 0.5, rtol=1e-6)


def test_completed_samples_have_no_columns() -> None:
    real = replace(only(0), columns={"site": np.arange(8)})
    view = LabelPlayers({"device": Device(real)}).view("device")
    assert completed(view, section(supplement=0.01), {}, 1).columns == real.columns
    assert completed(view, section(count=4), {}, 1).columns == {}


@pytest.mark.parametrize("kind", ["white", "spectrum", "oriented"])
def test_the_generator_of_noise_is_the_recipe_s(kind: str) -> None:
    view = LabelPlayers({"device": Device(only(0))}).view("device")
    asked = []

    def noise(seed: int, count: int, shape: tuple[int, ...], name: object) -> Array:
        asked.append((seed, count, shape, name))
        return np.zeros((count, *shape), np.uint8)

    completed(replace(view, noise=noise), section(count=4, noise=kind), {}, 7)
    assert asked == [(derive(7, "noise", label), 4, IMAGE, kind) for label in (1, 2, 3)]


# -- memory ---------------------------------------------------------------------------------------


def test_supplements_that_no_memory_holds_are_refused_before_they_are_drawn() -> None:
    view = LabelPlayers({"device": Device(only(0))}).view("device")

    def noise(*asked: object) -> Array:
        raise AssertionError("it was drawn")

    large = only(0)
    wide = replace(large, inputs=np.broadcast_to(np.float32(0), (8, 1, 400, 400)))
    refusing = replace(view, noise=noise, train=wide)
    with pytest.raises(DataError, match=r"3,000,000 samples take 1\.7 TiB") as caught:
        completed(refusing, section(count=1_000_000), {}, 1)
    assert caught.value.code == "label.too_large"
    assert "labels.count" in caught.value.hint


def test_the_bound_is_met_exactly() -> None:
    each = int(np.prod(IMAGE)) * 4
    check_size(MAX_BYTES // each, IMAGE)
    with pytest.raises(DataError, match=r"may take 2\.0 GiB"):
        check_size(MAX_BYTES // each + 1, IMAGE)


def test_a_count_that_no_device_can_hold_is_refused_with_the_recipe() -> None:
    half = one_label_each(count=1, supplement=0).half
    half.check_model(model())
    large = LabelPlayers({}, recipe(count=1_000_000)).half
    large.check_model(model())
    with pytest.raises(DataError) as caught:
        large.check_model(model((3, 32, 32)))
    assert caught.value.code == "label.too_large"


def test_a_completed_set_is_made_once_and_anew_when_something_changed() -> None:
    players = one_label_each()
    state = players.to_training()
    job = players.job("device-00", state)
    assert players.job("device-00", players.next_round(state)).samples is job.samples
    group, arrays = next(iter(players.kept("device-00").items()))
    other = {**arrays, "device-01/mixes": 255 - arrays["device-01/mixes"]}
    other["device-01/digests"] = arrays["device-01/digests"] + 1
    players.devices["device-00"].kept = replace(
        players.devices["device-00"].kept, device_state={group: other}
    )
    assert players.job("device-00", state).samples is not job.samples
    fewer = LabelPlayers(players.devices, players.plan, model=model(classes=LABELS + 1))
    fewer.device_half = players.device_half
    exchange = players.planned(state)
    (question,) = (each for each in exchange.questions if each.device == "device-00")
    task = players.task(exchange, question)
    work = players.device_half.prepare(task, fewer.view("device-00"))
    assert isinstance(work, Job)
    assert work.samples is not None
    assert set(work.samples.targets) == set(range(LABELS + 1))


# -- the device's owner ---------------------------------------------------------------------------


def test_a_device_that_tells_no_labels_trains_on_noise_alone() -> None:
    players = one_label_each()
    players.devices["device-00"].policy = Policy(share_labels=False)
    state = players.to_training()
    assert set(players.refused) == {("device-00", "label_need"), ("device-00", "label_offer")}
    assert not players.bounties(state, "device-00")
    assert players.devices["device-00"].kept.ledger == ()
    assert {b.received for b in players.bounties(state) if b.label == 0} == {0}
    samples = players.samples("device-00", state)
    assert np.bincount(samples.targets).tolist() == [8] * LABELS
    assert not players.kept("device-00")
    assert "device-00" not in {each.device for each in BountyRecords.of(state).budgets}


def test_a_device_that_requests_no_mixes_gives_some_and_gets_none() -> None:
    players = one_label_each()
    players.devices["device-00"].policy = Policy(request_mixes=False)
    state = players.to_training()
    mine = players.bounties(state, "device-00")
    assert [(b.mixes, b.received, b.noise, b.status) for b in mine] == [(0, 0, 8, "closed")] * 3
    assert {b.received for b in players.bounties(state) if b.label == 0} == {4}
    assert len(players.samples("device-00", state)) == 8 * LABELS


def test_mixes_from_before_are_used_when_no_more_are_requested() -> None:
    players = one_label_each()
    players.to_training()
    players.devices["device-00"].policy = Policy(request_mixes=False)
    other = LabelPlayers(players.devices, players.plan)
    state = other.to_training()
    assert other.rejected == {}
    mine = other.bounties(state, "device-00")
    assert [(b.mixes, b.received, b.noise, b.status) for b in mine] == [(4, 4, 4, "closed")] * 3
    assert MIX not in other.names()


def test_no_more_mixes_are_wanted_than_a_device_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    each = int(np.prod(IMAGE)) + 8
    monkeypatch.setattr(
        "edgefed.algorithms.bounties.received_mixes.most_mixes.__defaults__", (10 * each,)
    )
    players = one_label_each()
    state = players.to_training()
    assert players.rejected == {}
    mine = players.bounties(state, "device-00")
    assert [(b.mixes, b.received, b.noise) for b in mine] == [(4, 4, 4), (3, 3, 5), (3, 3, 5)]
    assert len(players.samples("device-00", state)) == 8 * LABELS
