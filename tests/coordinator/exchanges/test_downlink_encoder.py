"""The downlink: all devices obtain the same bits, whatever they missed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.algorithms.interface.exchange import Payload
from edgefed.coordinator.exchanges import downlink_encoder
from edgefed.coordinator.exchanges.downlink_encoder import CHAIN, DownlinkEncoder
from edgefed.learn.base.types import Array, Tensors
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import BlobRef
from edgefed.wire.tensors import digest, pack, unpack
from tests.coordinator.receiver import Receiver

ROUNDS = 9
CODES = ("fp32", "bf16", "int8", "topk")
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


# -- devices that miss many rounds ---------------------------------------------------------------


def ask(
    downlink: DownlinkEncoder, number: int, devices: dict[str, Receiver]
) -> tuple[BlobRef, dict[str, bytes]]:
    """Send round ``number`` to devices; return the reference for all, and what they obtain."""
    ref = downlink.send("weights", Payload(course()[number]), number, tuple(devices))
    refs = {name: downlink.for_device(ref, "weights", name) for name in devices}
    downlink.asked("weights", devices)
    return ref, {name: devices[name].receive(refs[name]) for name in devices}


@settings(max_examples=25, deadline=None)
@given(
    code=st.sampled_from(CODES),
    chain=st.integers(1, 5),
    rounds=st.lists(st.sets(st.integers(0, 3), min_size=1), min_size=ROUNDS, max_size=ROUNDS),
    restart=st.integers(0, ROUNDS),
    lost=st.integers(0, ROUNDS),
)
def test_every_route_leads_to_the_same_bits(
    code: str,
    chain: int,
    rounds: list[set[int]],
    restart: int,
    lost: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Devices that are asked in any rounds, and one that loses what it holds."""
    cache = BlobCache(tmp_path_factory.mktemp("blobs"), 1 << 30)
    downlink = DownlinkEncoder(code, cache, chain=chain)
    devices = {f"device-{number}": Receiver(cache, course()[0]) for number in range(4)}
    for number, asked in enumerate(rounds):
        if number == restart:
            stored = json.loads(json.dumps(downlink.to_json()))
            downlink = DownlinkEncoder(code, cache, stored, chain=chain)
        if number == lost:
            devices["device-0"] = Receiver(cache, course()[0])
        fetched = {name: device.fetched for name, device in devices.items()}
        ref, made = ask(downlink, number, {f"device-{k}": devices[f"device-{k}"] for k in asked})
        downlink.committed()
        for name, data in made.items():
            assert digest(data) == ref.digest
            assert devices[name].fetched - fetched[name] <= ref.size


@pytest.mark.parametrize(("code", "most"), [("fp32", 0.9), ("bf16", 0.9), ("topk", 0.5)])
def test_who_misses_many_rounds_fetches_a_merged_difference(
    code: str, most: float, cache: BlobCache
) -> None:
    downlink = DownlinkEncoder(code, cache)
    steady, sleepy = Receiver(cache, course()[0]), Receiver(cache, course()[0])
    devices = {"steady": steady, "sleepy": sleepy}
    ask(downlink, 0, devices)
    for number in range(1, ROUNDS - 1):
        ask(downlink, number, {"steady": steady})
    downlink = DownlinkEncoder(code, cache, json.loads(json.dumps(downlink.to_json())))
    before, patched = sleepy.fetched, sleepy.patched
    ref, _ = ask(downlink, ROUNDS - 1, devices)
    assert sleepy.fetched - before < most * ref.size
    assert sleepy.patched - patched == 1
    assert len(ref.direct) == (2 if code == "fp32" else 1)


def test_a_newcomer_fetches_the_whole_coded(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("topk", cache)
    steady, late = Receiver(cache, course()[0]), Receiver(cache, course()[0])
    for number in range(ROUNDS - 1):
        ref, _ = ask(downlink, number, {"steady": steady})
    # The codec is sparse, so that the first weights are sent whole, rounded to 16 bits.
    ref, _ = ask(downlink, ROUNDS - 1, {"steady": steady, "late": late})
    assert [patch.base for patch in ref.direct] == [None]
    assert late.fetched == ref.direct[0].size < 0.7 * ref.size


def test_a_device_is_named_only_the_patches_that_it_can_use(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("topk", cache, chain=1)
    names = ("one", "two", "three")
    devices = {name: Receiver(cache, course()[0]) for name in names}
    for number, name in enumerate(names):
        ask(downlink, number, {name: devices[name]})
    ref = downlink.send("weights", Payload(course()[8]), 8, (*names, "new"))
    bases = {
        name: {patch.base for patch in downlink.for_device(ref, "weights", name).direct}
        for name in (*names, "new")
    }
    assert bases["new"] == {None}
    assert bases["one"] > {None}
    assert bases["two"] > {None}
    assert bases["one"] != bases["two"]
    assert bases["three"] == {None}  # the last difference serves it


def test_no_more_is_made_where_all_devices_follow(
    cache: BlobCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> bytes:
        raise AssertionError("an exact patch costs the time to encode a model")

    monkeypatch.setattr(downlink_encoder, "encode_exact", too_many)
    downlink = DownlinkEncoder("int8", cache)
    devices = {"one": Receiver(cache, course()[0]), "two": Receiver(cache, course()[0])}
    for number in range(ROUNDS):
        ref, _ = ask(downlink, number, devices)
        assert ref.direct == ()


def test_an_exact_patch_that_is_larger_is_not_offered(cache: BlobCache) -> None:
    """Two int8 differences from zeros take half of the weights that they lead to."""
    downlink = DownlinkEncoder("int8", cache)
    ask(downlink, 0, {"one": Receiver(cache, course()[0])})
    ref, _ = ask(downlink, 1, {"new": Receiver(cache, course()[0])})
    assert ref.direct == ()


def test_a_sparse_codec_begins_with_all_values(cache: BlobCache) -> None:
    first = course()[0]
    _, made = ask(DownlinkEncoder("topk", cache), 0, {"one": Receiver(cache, first)})
    held = unpack(made["one"], None)
    assert np.abs(held["w"] - first["w"]).max() <= 2.0**-16 * np.abs(first["w"]).max()


def test_what_was_stored_without_versions_goes_on(cache: BlobCache) -> None:
    downlink = DownlinkEncoder("bf16", cache)
    first = downlink.send("weights", Payload(course()[0]), 0)
    stored = downlink.to_json()
    del stored["weights"]["held"]
    again = DownlinkEncoder("bf16", cache, stored)
    assert again.send("weights", Payload(course()[0]), 1, ("one",)).patches == first.patches
    again.asked("weights", ["one"])
    second = again.send("weights", Payload(course()[1]), 1, ("one",))
    assert [patch.base for patch in second.patches] == [first.digest, None]


def test_older_versions_stay_until_nobody_holds_them(cache: BlobCache, tmp_path: Path) -> None:
    downlink = DownlinkEncoder("topk", cache)
    devices = {"one": Receiver(cache, course()[0]), "two": Receiver(cache, course()[0])}
    first, _ = ask(downlink, 0, devices)
    for number in range(1, ROUNDS - 1):
        ask(downlink, number, {"one": devices["one"]})
        downlink.committed()
        assert first.digest in cache_files(tmp_path)
    ask(downlink, ROUNDS - 1, devices)
    downlink.committed()
    assert first.digest not in cache_files(tmp_path)
    downlink.release()
    cache.shed()
    assert cache_files(tmp_path) == set()
