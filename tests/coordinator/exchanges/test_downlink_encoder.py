"""The downlink: all devices obtain the same bits, whatever they missed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgefed.algorithms.interface.exchange import Payload
from edgefed.coordinator.exchanges.downlink_encoder import CHAIN, DownlinkEncoder
from edgefed.learn.base.types import Array, Tensors
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest, pack, unpack
from tests.coordinator.receiver import Receiver

ROUNDS = 9
CODES = ("fp32", "bf16", "int8")
LOSSY = ("bf16", "int8")


def course() -> list[Tensors]:
    """Return a model's weights round by round: noise that settles, and a count."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((40, 50)).astype(np.float32)
    states: list[Tensors] = []
    for number in range(ROUNDS):
        states.append({"w": weights, "seen": np.array(number * 7, np.int64)})
        step = rng.standard_normal(weights.shape) * 0.1 / (number + 1)
        weights = (weights + step).astype(np.float32)
    return states


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(tmp_path / "blobs", 1 << 30)


def cache_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "blobs").iterdir()}


def sent(code: str, cache: BlobCache) -> list[BlobRef]:
    downlink = DownlinkEncoder(code, cache)
    return [downlink.send("weights", Payload(arrays), seed) for seed, arrays in enumerate(course())]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("missed", [0, 1, 2, 3, CHAIN, CHAIN + 1, 7])
def test_who_misses_rounds_comes_to_the_same_bits(code: str, missed: int, cache: BlobCache) -> None:
    downlink = DownlinkEncoder(code, cache)
    steady, sleepy = Receiver(cache, course()[0]), Receiver(cache, course()[0])
    for number, arrays in enumerate(course()):
        ref = downlink.send("weights", Payload(arrays), number)
        followed = steady.receive(ref)
        assert digest(followed) == ref.digest
        if number == 0 or number > missed:
            assert sleepy.receive(ref) == followed


@pytest.mark.parametrize("code", CODES)
def test_who_joins_late_comes_to_the_same_bits(code: str, cache: BlobCache) -> None:
    for ref in sent(code, cache)[-2:]:
        assert digest(Receiver(cache, course()[0]).receive(ref)) == ref.digest


def test_who_missed_few_rounds_catches_up_by_differences(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("int8", cache)
    refs = [downlink.send("weights", Payload(arrays), k) for k, arrays in enumerate(course())]
    for missed in range(CHAIN + 2):
        # What a receiver holds is what the reference of that round named.
        held = {refs[5 - missed - 1].digest} if missed < 5 else set()
        assert len(refs[5].patches) == CHAIN
        bases = [patch.base for patch in refs[5].patches]
        assert bool(held & set(bases)) == (missed < CHAIN)


@pytest.mark.parametrize(("code", "share"), [("bf16", 0.51), ("int8", 0.27)])
def test_following_costs_only_the_differences(code: str, share: float, cache: BlobCache) -> None:
    receiver = Receiver(cache, course()[0])
    for ref in sent(code, cache):
        receiver.receive(ref)
    assert receiver.patched == ROUNDS
    whole = len(pack(course()[0])) * ROUNDS
    assert 0.1 * whole < receiver.fetched < share * whole


def test_without_a_code_the_weights_go_whole(cache: BlobCache) -> None:
    receiver = Receiver(cache, course()[0])
    for ref, arrays in zip(sent("fp32", cache), course(), strict=True):
        assert receiver.receive(ref) == pack(arrays)
    assert receiver.fetched == len(pack(course()[0])) * ROUNDS
    assert receiver.patched == 0


def test_what_must_not_lose_anything_goes_whole(cache: BlobCache) -> None:
    ref = DownlinkEncoder("int8", cache).send("mask", Payload(course()[0], codec="fp32"), 1)
    assert cache.get(ref.digest) == pack(course()[0])
    assert ref.patches == ()


@pytest.mark.parametrize("code", CODES)
def test_what_has_not_changed_costs_nothing(code: str, cache: BlobCache) -> None:
    downlink = DownlinkEncoder(code, cache)
    receiver = Receiver(cache, course()[0])
    ref = downlink.send("weights", Payload(course()[0]), 1)
    receiver.receive(ref)
    fetched, stored = receiver.fetched, cache.total
    assert downlink.send("weights", Payload(course()[0]), 2) == ref
    receiver.receive(ref)
    assert (receiver.fetched, cache.total) == (fetched, stored)


@pytest.mark.parametrize("code", LOSSY)
def test_what_the_code_drops_is_made_up_for(code: str, cache: BlobCache) -> None:
    """The mirror is off by the last code's error only: errors do not add up."""
    before: Array = np.zeros((40, 50), np.float32)
    for ref, arrays in zip(sent(code, cache), course(), strict=True):
        data = cache.get(ref.digest)
        assert data is not None
        mirror = unpack(data, None)
        aim = np.abs(arrays["w"] - before)
        bound = aim / 2**8 if code == "bf16" else np.full_like(aim, aim.max() / 127)
        assert (np.abs(arrays["w"] - mirror["w"]) <= bound * 1.01 + 1e-6).all()
        assert mirror["seen"] == arrays["seen"]
        before = mirror["w"]


@pytest.mark.parametrize("code", CODES)
def test_a_restart_goes_on_identically(code: str, cache: BlobCache) -> None:
    straight = sent(code, cache)
    downlink = DownlinkEncoder(code, cache)
    for number, arrays in enumerate(course()):
        downlink = DownlinkEncoder(code, cache, json.loads(json.dumps(downlink.to_json())))
        assert downlink.send("weights", Payload(arrays), number) == straight[number]


def test_names_are_kept_apart(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("int8", cache)
    one = downlink.send("one", Payload(course()[0]), 1)
    two = downlink.send("two", Payload(course()[1]), 1)
    again = downlink.send("one", Payload(course()[2]), 2)
    assert two.patches[0].base is None
    assert again.patches[0].base == one.digest


def test_another_shape_begins_anew(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("int8", cache)
    downlink.send("weights", Payload(course()[0]), 1)
    other: Tensors = {"w": np.ones((3, 3), np.float32)}
    ref = downlink.send("weights", Payload(other), 2)
    assert [patch.base for patch in ref.patches] == [None]


def test_blobs_that_somebody_deleted_are_made_again(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("int8", cache)
    downlink.send("weights", Payload(course()[0]), 1)
    cache.clear()
    ref = downlink.send("weights", Payload(course()[0]), 2)
    assert digest(Receiver(cache, course()[0]).receive(ref)) == ref.digest


def test_what_may_still_be_asked_for_is_never_evicted(tmp_path: Path) -> None:
    small = BlobCache(tmp_path / "small", 1)
    downlink = DownlinkEncoder("bf16", small)
    for number, arrays in enumerate(course()):
        ref = downlink.send("weights", Payload(arrays), number)
    names = {ref.digest, *(patch.blob for patch in ref.patches)}
    assert all(small.has(name) for name in names)
    assert len(list((tmp_path / "small").iterdir())) == len(names) == CHAIN + 1
    downlink.release()
    small.put(b"something else")
    assert not any(small.has(name) for name in names)


@pytest.mark.parametrize("code", CODES)
def test_what_nobody_needs_any_more_is_deleted_with_the_commit(
    code: str, cache: BlobCache, tmp_path: Path
) -> None:
    downlink = DownlinkEncoder(code, cache)
    for number, arrays in enumerate(course()):
        before = set(cache_files(tmp_path))
        ref = downlink.send("weights", Payload(arrays), number)
        assert before <= cache_files(tmp_path)  # a restart would begin with them
        downlink.committed()
        assert cache_files(tmp_path) == {ref.digest, *(patch.blob for patch in ref.patches)}


@pytest.mark.parametrize("code", CODES)
def test_what_open_questions_name_outlives_the_commit(
    code: str, cache: BlobCache, tmp_path: Path
) -> None:
    earlier = DownlinkEncoder(code, cache)
    first = earlier.send("weights", Payload(course()[0]), 0)
    earlier.release()
    downlink, refs = DownlinkEncoder(code, cache, chain=2, held=[first]), list[BlobRef]()
    for number, arrays in enumerate(course()):
        refs.append(downlink.send("weights", Payload(arrays), number))
        downlink.committed()
    assert refs[0] == first
    assert max(len(ref.patches) for ref in refs) == (0 if code == "fp32" else 2)
    assert {first.digest, refs[-1].digest} <= cache_files(tmp_path)
    assert refs[1].digest not in cache_files(tmp_path)
    downlink.hold([])
    downlink.committed()
    assert first.digest not in cache_files(tmp_path)


def test_what_is_sent_again_outlives_the_commit(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("fp32", cache)
    first = downlink.send("weights", Payload(course()[0]), 1)
    downlink.send("weights", Payload(course()[1]), 2)
    again = downlink.send("weights", Payload(course()[0]), 3)
    downlink.committed()
    assert again.digest == first.digest
    assert cache.has(first.digest)


@pytest.mark.parametrize("code", CODES)
def test_a_name_that_is_retired_is_unpinned_and_begins_anew(code: str, cache: BlobCache) -> None:
    downlink = DownlinkEncoder(code, cache)
    kept = downlink.send("weights", Payload(course()[0]), 1)
    gone = downlink.send("mask", Payload(course()[1]), 2)
    downlink.retire({"mask", "never sent"})
    cache.shed()
    assert cache.has(kept.digest)
    assert not any(cache.has(each) for each in (gone.digest, *(p.blob for p in gone.patches)))
    assert downlink.to_json().keys() == {"weights"}
    assert downlink.losses() == []
    again = downlink.send("mask", Payload(course()[1]), 2)
    assert again == gone
    assert cache.has(again.digest)
