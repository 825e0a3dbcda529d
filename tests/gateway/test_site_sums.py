"""Sums of sites: the flat merge's bits, what is not summed, when one is made, and refusals."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.coordinator.exchanges.reply_checks import Rejection
from edgefed.coordinator.exchanges.site_sums import check_sum
from edgefed.learn.base.types import Tensors
from edgefed.wire.message_parts import SentRelay
from edgefed.wire.messages import BlobRef, Reply
from edgefed.wire.site_messages import SUM, SumReply
from edgefed.wire.summed_numbers import decode_numbers, encode_numbers
from edgefed.wire.tensors import digest
from tests.gateway.cohorts import DEADLINE, WEIGHTS, Cohort, Site, drawn_delta, same_bits

PAIR = {"cam-1": 30, "cam-2": 12}


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], dict[str, int], int, str]:
    """Announced samples, samples in the replies, the site of each device (0 for none), a seed."""
    names = [f"cam-{number}" for number in range(draw(st.integers(1, 7)))]
    announced = {name: draw(st.integers(1, 300_000)) for name in names}
    samples = {name: draw(st.integers(1, announced[name])) for name in names}
    sites = {name: draw(st.integers(0, 2)) for name in names}
    codec = draw(st.sampled_from(["fp32", "bf16", "int8"]))
    return announced, samples, sites, draw(st.integers(0, 2**32)), codec


@settings(max_examples=20)
@given(cohorts(), st.sampled_from(["examples", "uniform"]), st.sampled_from([1e-4, 1.0, 15.0]))
def test_sums_of_sites_have_the_bits_of_the_flat_merge(
    drawn: tuple[dict[str, int], dict[str, int], dict[str, int], int, str],
    weighting: str,
    scale: float,
) -> None:
    announced, samples, sites, seed, codec = drawn
    with tempfile.TemporaryDirectory() as folder:
        cohort = Cohort(Path(folder), announced, weighting)
        replies = {
            name: cohort.reply(name, drawn_delta(seed + place, scale), samples[name], codec)
            for place, name in enumerate(announced)
        }
        passed = [replies[name] for name, site in sites.items() if not site]
        for number in (1, 2):
            devices = [name for name in announced if sites[name] == number]
            site = Site(cohort, devices)
            sent = [one for name in devices for one in site.take(replies[name])]
            assert len(sent) == bool(devices)
            passed += sent
        flat = cohort.merged([*replies.values()])
        assert same_bits(cohort.merged(passed), flat)
        assert not same_bits(flat, cohort.merged([])) or scale < 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
def test_numbers_keep_their_values_on_the_wire(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    blob = encode_numbers(values)
    assert decode_numbers(blob, len(numbers)).tolist() == numbers
    assert encode_numbers(values.copy()) == blob


def test_a_sum_is_the_weighted_sum_of_the_grid_s_numbers(tmp_path: Path) -> None:
    """Counted by hand: 30 and 12 samples, 2^40 steps to one, a quarter and -1.5."""
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR])
    for device, value in (("cam-1", 0.25), ("cam-2", -1.5)):
        delta = {name: np.full_like(array, value) for name, array in WEIGHTS.items()}
        sent = site.take(cohort.reply(device, delta, codec="fp32"))
    (made,) = sent
    assert isinstance(made, SumReply)
    numbers = decode_numbers(cohort.read(made.blobs[SUM].digest), 16)
    assert set(numbers[:12].tolist()) == {(30 * 2**38) - 12 * 3 * 2**39}
    assert [(one.device, one.samples) for one in made.answers] == [*PAIR.items()]
    assert made.without == ()
    assert site.take(cohort.reply("cam-1", delta)) == [made], "it does not change"


# -- what is not summed -----------------------------------------------------------------------


def bad(cohort: Cohort, kind: str) -> Reply:
    """A reply of cam-1 that is no part of a sum."""
    delta: Tensors = drawn_delta(1)
    if kind == "large":
        delta = {**delta, "layer.weight": np.full((3, 4), 63.5, np.float32)}
    if kind == "count":
        delta = {**delta, "norm.num_batches_tracked": np.array([2**26], np.int64)}
    if kind == "shape":
        delta = {**delta, "layer.weight": np.zeros((4, 3), np.float32)}
    reply = cohort.reply("cam-1", delta, codec="fp32")
    changes: dict[str, dict[str, object]] = {
        "failed": {"status": "failed"},
        "many": {"samples": 31},
        "none": {"samples": 0},
        "nonce": {"nonce": "9" * 16},
        "bases": {"bases": {"weights": "0" * 64}},
        "metric": {"metrics": {"loss": float("inf")}},
        "role": {"blobs": {**reply.blobs, "other": reply.blobs["delta"]}},
        "lost": {"blobs": {"delta": BlobRef(digest="1" * 64, size=5)}},
        "relay": {"relays": {"cam-2": SentRelay(digest="1" * 64, size=5)}},
    }
    if kind == "relay":
        may_send = {"receivers": ("cam-2",), "max_relay_bytes": 9}
        cohort.tasks["cam-1"] = cohort.tasks["cam-1"].model_copy(update=may_send)
    return reply.model_copy(update=changes.get(kind, {}))


@pytest.mark.parametrize(
    "kind",
    (
        "large",
        "count",
        "shape",
        "failed",
        "many",
        "none",
        "nonce",
        "bases",
        "metric",
        "role",
        "lost",
        "relay",
    ),
)
def test_what_the_coordinator_may_refuse_is_passed_on_singly(tmp_path: Path, kind: str) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site, reply = Site(cohort, [*PAIR]), bad(cohort, kind)
    assert site.take(reply) == [reply]
    (made,) = site.take(cohort.reply("cam-2", drawn_delta(2)))
    assert isinstance(made, SumReply)
    assert made.devices == ["cam-2"]
    assert made.without == ()


def test_replies_that_take_fewer_bytes_than_their_sum_are_passed_on_singly(tmp_path: Path) -> None:
    """The sum has 16 numbers, of 5 bytes each."""
    cohort = Cohort(tmp_path, PAIR)
    reply = cohort.reply("cam-1", drawn_delta(1))
    ref = reply.blobs["delta"].model_copy(update={"size": 40})
    reply = reply.model_copy(update={"blobs": {"delta": ref}})
    assert Site(cohort, [*PAIR], always=False).take(reply) == [reply]
    assert Site(cohort, [*PAIR, "cam-3"], always=False).take(reply) == []


def test_replies_from_other_bases_than_the_first_are_passed_on_singly(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR])
    assert site.take(cohort.reply("cam-1", drawn_delta(1))) == []
    own = cohort.tasks["cam-2"]
    more = {**own.blobs, "own": BlobRef(digest="1" * 64, size=5)}
    cohort.tasks["cam-2"] = own.model_copy(update={"blobs": more})
    reply = cohort.reply("cam-2", drawn_delta(2))
    reply = reply.model_copy(update={"bases": {**reply.bases, "own": "1" * 64}})
    single, made = site.take(reply)
    assert single == reply
    assert isinstance(made, SumReply)


def test_without_a_request_nothing_is_summed(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site, reply = Site(cohort, [*PAIR], exchange="r-1-9"), cohort.reply("cam-1", drawn_delta(1))
    assert site.take(reply) == [reply]


# -- when a sum is made -----------------------------------------------------------------------


def test_a_sum_waits_for_lost_devices_as_the_recipe_says(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, {**PAIR, "cam-3": 5})
    site = Site(cohort, ["cam-1", "cam-2", "cam-3"], lost_grace=20.0)
    site.lost["cam-2"] = 7.0
    assert site.take(cohort.reply("cam-1", drawn_delta(1)), 30.0) == [], "one is at work"
    site.lost["cam-3"] = 12.0
    assert site.sums.complete(31.9) == []
    (made,) = site.sums.complete(32.0)
    assert isinstance(made, SumReply)
    assert made.without == ("cam-2", "cam-3")
    assert site.take(cohort.reply("cam-2", drawn_delta(2)), 33.0) == [], "it is late"


def test_a_sum_leaves_a_tenth_of_the_deadline_for_its_way(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR], lost_grace=None)
    site.lost["cam-2"] = 0.0
    assert site.take(cohort.reply("cam-1", drawn_delta(1)), 0.9 * DEADLINE - 1) == []
    site.sums.request(cohort.request([*PAIR], seconds=DEADLINE / 2), DEADLINE / 2 + 5)
    assert site.sums.complete(DEADLINE - 1) == []
    (made,) = site.sums.complete(DEADLINE)
    assert isinstance(made, SumReply)
    assert made.without == ("cam-2",)


def test_the_last_request_names_the_devices(tmp_path: Path) -> None:
    """Until a device has come, its site is not known, so that each waits for it."""
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR])
    assert site.take(cohort.reply("cam-1", drawn_delta(1))) == []
    site.sums.request(cohort.request(["cam-1"]), 1.0)
    assert len(site.sums.complete(1.0)) == 1


def test_a_device_that_failed_and_is_asked_again_is_waited_for(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site, failed = Site(cohort, [*PAIR]), bad(cohort, "failed")
    assert site.take(failed) == [failed]
    site.sums.forget("cam-1", cohort.opened.exchange, asked=True)
    assert site.take(cohort.reply("cam-2", drawn_delta(2))) == []
    (made,) = site.take(cohort.reply("cam-1", drawn_delta(1)))
    assert isinstance(made, SumReply)
    assert made.devices == [*PAIR]


def test_a_device_that_has_moved_to_another_site_is_not_summed_here(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR])
    site.take(cohort.reply("cam-1", drawn_delta(1)))
    site.sums.request(cohort.request(["cam-2"]), 1.0)
    (made,) = site.take(cohort.reply("cam-2", drawn_delta(2)))
    assert isinstance(made, SumReply)
    assert made.devices == ["cam-2"]
    site.sums.request(cohort.request([]), 2.0)
    assert site.take(cohort.reply("cam-2", drawn_delta(2))) == [made], "it does not change"


def test_a_device_that_is_not_asked_any_more_is_not_summed(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site = Site(cohort, [*PAIR])
    site.take(cohort.reply("cam-1", drawn_delta(1)))
    site.sums.forget("cam-1", cohort.opened.exchange)
    assert site.take(cohort.reply("cam-2", drawn_delta(2))) == [], "cam-1 may be asked again"
    site.sums.request(cohort.request(["cam-2"]), 1.0)
    (made,) = site.take(cohort.reply("cam-2", drawn_delta(2)))
    assert isinstance(made, SumReply)
    assert made.devices == ["cam-2"]
    site.sums.close(made.run, made.index)
    assert cohort.cache.get(made.blobs[SUM].digest) is None
    reply = cohort.reply("cam-1", drawn_delta(1))
    assert site.take(reply) == [reply], "of an exchange that is over"


def test_replies_whose_sum_cannot_be_made_are_passed_on(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    site, first = Site(cohort, [*PAIR]), cohort.reply("cam-1", drawn_delta(1))
    site.take(first)
    cohort.cache.discard(first.blobs["delta"].digest)
    second = cohort.reply("cam-2", drawn_delta(2))
    assert site.take(second) == [first, second]


# -- what the coordinator refuses -------------------------------------------------------------


def made_sum(cohort: Cohort) -> SumReply:
    site = Site(cohort, [*PAIR])
    site.take(cohort.reply("cam-1", drawn_delta(1)))
    (made,) = site.take(cohort.reply("cam-2", drawn_delta(2)))
    assert isinstance(made, SumReply)
    return made


def with_numbers(cohort: Cohort, made: SumReply, change: Callable[[np.ndarray], None]) -> SumReply:  # type: ignore[type-arg]
    numbers = decode_numbers(cohort.read(made.blobs[SUM].digest), 16)
    change(numbers)
    blob = encode_numbers(numbers)
    cohort.cache.put(blob)
    ref = BlobRef(digest=digest(blob), size=len(blob))
    return made.model_copy(update={"blobs": {SUM: ref}})


@pytest.mark.parametrize("sign", (1, -1))
@pytest.mark.parametrize(("place", "bound"), [(3, 42 * 63 * 2**40), (12, 42 * 2**26)])
def test_a_sum_beyond_the_weight_times_the_bound_is_refused(
    tmp_path: Path, place: int, bound: int, sign: int
) -> None:
    cohort = Cohort(tmp_path, PAIR)
    made = made_sum(cohort)

    def put(value: int) -> Callable[[np.ndarray], None]:  # type: ignore[type-arg]
        return lambda numbers: numbers.__setitem__(place, sign * value)

    assert cohort.answers(with_numbers(cohort, made, put(bound)))
    with pytest.raises(Rejection, match="beyond those of updates that weigh 42"):
        cohort.answers(with_numbers(cohort, made, put(bound + 1)))


def test_samples_beyond_those_announced_are_refused(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    made = made_sum(cohort)
    first = made.answers[0].model_copy(update={"samples": 31})
    lie = made.model_copy(update={"answers": (first, *made.answers[1:])})
    with pytest.raises(Rejection, match="cam-1 counts 31 samples, and it announced 30"):
        cohort.answers(lie)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "failed"}, "something else than a sum"),
        ({"blobs": {"delta": BlobRef(digest="1" * 64, size=5)}}, "something else than a sum"),
        ({"blobs": {SUM: BlobRef(digest="1" * 64, size=2**40 // 512)}}, "larger than any"),
        ({"bases": {"weights": "0" * 64}}, "other weights than the task"),
    ],
)
def test_what_is_no_sum_is_refused(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    cohort = Cohort(tmp_path, PAIR)
    with pytest.raises(Rejection, match=reason):
        cohort.answers(made_sum(cohort).model_copy(update=changes))


def test_what_was_found_before_or_by_the_algorithm_refuses_a_sum(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    delivered = cohort.delivered(made_sum(cohort))
    with pytest.raises(Rejection, match="found before"):
        check_sum(replace(delivered, problem="found before"), cohort.opened, lambda answer: "")
    with pytest.raises(Rejection, match="cam-2 has its own reason"):
        check_sum(
            delivered,
            cohort.opened,
            lambda answer: "cam-2 has its own reason" if answer.device == "cam-2" else "",
        )
    with pytest.raises(Rejection, match=r"checks\.announced_factor"):
        check_sum(delivered, cohort.opened, lambda answer: "", 0.5)


def test_a_sum_with_a_forged_share_is_refused(tmp_path: Path) -> None:
    cohort = Cohort(tmp_path, PAIR)
    made = made_sum(cohort)
    first = made.answers[0].model_copy(update={"nonce": "9" * 16})
    with pytest.raises(Rejection, match="another task of this exchange"):
        cohort.answers(made.model_copy(update={"answers": (first, *made.answers[1:])}))
    blob = b"no numbers"
    cohort.cache.put(blob)
    ref = BlobRef(digest=digest(blob), size=len(blob))
    with pytest.raises(Rejection, match=r"^sum: "):
        cohort.answers(made.model_copy(update={"blobs": {SUM: ref}}))
