"""Codecs: precision, size, and rejected input."""

from __future__ import annotations

import struct
from typing import Any, get_args

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.config.recipes.sections import CodecName
from edgefed.errors import WireError
from edgefed.seeds import generator
from edgefed.wire import limits, tensors
from edgefed.wire.codecs import CODECS, Floats, decode
from edgefed.wire.tensors import Array, Bytes, TensorSpec, specs_of
from tests.wire.memory import at_most
from tests.wire.strategies import arrays, damaged
from tests.wire.test_tensors import same

LARGEST = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).smallest_subnormal)


def raw_frame(content: bytes) -> bytes:
    """A zstd frame of one stored block, as RFC 8878 section 3.1.1 lays it out."""
    block = struct.pack("<I", len(content) << 3 | 1)[:3]
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(content)]) + block + content


def coded(name: str, tensors: list[object], body: bytes) -> bytes:
    header: bytes = msgpack.packb(name) + msgpack.packb(tensors)
    return b"EFC1" + struct.pack("<I", len(header)) + header + body


def through(name: str, found: dict[str, Array], seed: int = 0) -> dict[str, Array]:
    return decode(CODECS[name].encode(found, generator(seed, "test")), specs_of(found))


def one(name: str, values: object, seed: int = 0) -> Floats:
    return through(name, {"w": np.array(values, dtype=np.float32)}, seed)["w"]


def refused(blob: bytes, expected: dict[str, TensorSpec] | None = None) -> str:
    with pytest.raises(WireError) as caught, at_most(1 << 20):
        decode(blob, expected)
    return caught.value.code


def test_a_recipe_can_name_every_codec() -> None:
    assert set(get_args(CodecName)) == set(CODECS)
    assert all(codec.name == name for name, codec in CODECS.items())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("fp32", b"\x3f\xc0\x80\x00\x00\x00\x00\x00"),
        ("bf16", b"\x3f\xc0\x80\x00"),
        ("int8", b"\x00\x00\x00\x3f\x02\xfc"),
    ],
)
def test_bytes_do_not_drift(name: str, content: bytes) -> None:
    blob = coded(name, [["w", "float32", [2]]], raw_frame(content))
    expected = {"w": TensorSpec("float32", (2,))}
    assert decode(blob, expected)["w"].tolist() == [1.0, -2.0]
    if name != "int8":
        ours = CODECS[name].encode({"w": np.array([1, -2], np.float32)}, generator(0))
        assert ours.startswith(blob[: -len(raw_frame(content))])
        start = len(blob) - len(raw_frame(content))
        assert zstandard.ZstdDecompressor().decompress(ours[start:]) == content


@settings(max_examples=30, deadline=None)
@given(arrays())
def test_fp32_loses_nothing(found: dict[str, Array]) -> None:
    assert same(through("fp32", found), found)


@settings(max_examples=30, deadline=None)
@given(arrays(), st.sampled_from(sorted(CODECS)))
def test_every_codec_keeps_other_dtypes_exactly(found: dict[str, Array], name: str) -> None:
    back = through(name, found)
    assert specs_of(back) == specs_of(found)
    exact = {key: array for key, array in found.items() if array.dtype != np.float32}
    assert same({key: back[key] for key in exact}, exact)
    assert all(array.flags.writeable for array in back.values())


@settings(max_examples=50, deadline=None)
@given(arrays(floats_only=True))
def test_bf16_is_off_by_at_most_half_a_step(found: dict[str, Array]) -> None:
    for name, back in through("bf16", found).items():
        wanted = found[name].astype(np.float64)
        normal = np.abs(wanted) >= np.finfo(np.float32).tiny
        assert np.all(np.abs(back - wanted)[normal] <= np.abs(wanted)[normal] * 2.0**-8)


def test_bf16_rounds_to_nearest_and_ties_to_even() -> None:
    step = 2.0**-7
    values = [1.0, 1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, 1 + 0.49 * step, -1 - step / 2]
    assert one("bf16", values).tolist() == [1.0, 1.0, 1 + 2 * step, 1 + step, 1.0, -1.0]


def test_bf16_stays_finite_at_the_end_of_the_range() -> None:
    back = one("bf16", [LARGEST, -LARGEST, 0.0, -0.0, TINY])
    assert np.isfinite(back).all()
    assert back[0] == -back[1] > 0.99 * LARGEST
    assert np.signbit(back[3])


def test_topk_by_hand() -> None:
    """8 / 127 is more than 2^-4, so that the scale is 1/8; 0.8 is 6.4 of it, and of the ties
    between 0.8 and -0.8 the first is kept."""
    values = [0.5, -8, 0.8, -0.8, 0, 0, 0, 0]
    blob = CODECS["topk"].encode({"w": np.array(values, np.float32)}, generator(0))
    content = struct.pack("<f", 0.125) + b"\x06" + struct.pack("<bb", -64, 6)
    start = len(coded("topk", [["w", "float32", [8]]], b""))
    assert zstandard.ZstdDecompressor().decompress(blob[start:]) == content
    assert one("topk", values).tolist() == [0, -8, 0.75, 0, 0, 0, 0, 0]


@settings(max_examples=50, deadline=None)
@given(arrays(floats_only=True))
def test_topk_keeps_the_largest_quarter(found: dict[str, Array]) -> None:
    for name, back in through("topk", found).items():
        wanted, made = found[name].reshape(-1), back.reshape(-1)
        kept = np.argsort(-np.abs(wanted), kind="stable")[: -(-wanted.size // 4)]
        others = np.setdiff1d(np.arange(wanted.size), kept)
        largest = np.abs(wanted.astype(np.float64)).max(initial=0)
        assert not made[others].any()
        assert (np.abs(made[kept] - wanted[kept].astype(np.float64)) <= largest / 127 + TINY).all()


@pytest.mark.parametrize("size", [LARGEST, TINY, 127.0, 128.0])
def test_topk_reaches_both_ends_of_the_range(size: float) -> None:
    rel = 0.01 if size == LARGEST else 0  # the others are multiples of their scale
    assert one("topk", [size, 0, 0, 0])[0] == pytest.approx(size, rel=rel, abs=0)


def test_stretches_of_unlike_bytes_are_compressed_apart() -> None:
    """Bytes of two kinds cost no more than alone, give or take the heads of blocks."""
    noise = np.random.default_rng(1).integers(0, 16, 20_000).astype(np.uint8)
    other = np.random.default_rng(2).integers(100, 104, 20_000).astype(np.uint8)
    joined = np.concatenate([noise, other])

    def taken(content: Bytes, *parts: int) -> int:
        return len(tensors.compressed(b"", iter([(content, parts)]), content.size))

    both = taken(joined, 20_000, 20_000)
    assert both <= taken(noise, 20_000) + taken(other, 20_000) + 10
    assert both < 0.9 * taken(joined, 40_000)


@settings(max_examples=50, deadline=None)
@given(arrays(floats_only=True), st.integers(0, 2**32))
def test_int8_is_off_by_less_than_a_scale(found: dict[str, Array], seed: int) -> None:
    for name, back in through("int8", found, seed).items():
        wanted = found[name].astype(np.float64)
        scale = np.abs(wanted).max(initial=0) / 127
        # One unit in the last place more: scale and product are rounded to float32.
        assert np.all(np.abs(back - wanted) <= scale * (1 + 1e-4) + 2 * TINY)


def test_int8_is_unbiased() -> None:
    values = np.linspace(-1, 1, 101, dtype=np.float32) ** 3
    draws = 2000
    total = np.zeros(values.shape)
    for seed in range(draws):
        total += one("int8", values, seed)
    # A rounding is off by less than a scale, so its standard deviation is at most half a scale;
    # five standard errors for a hundred values.
    assert np.abs(total / draws - values).max() <= 5 * 0.5 / 127 / np.sqrt(draws)


def test_int8_is_unbiased_over_many_values() -> None:
    values = np.linspace(-1, 1, 1_000_001, dtype=np.float32)
    error = (one("int8", values).astype(np.float64) - values).mean()
    assert abs(error) <= 5 * 0.5 / 127 / np.sqrt(values.size)


def test_int8_never_rounds_past_the_largest_multiple() -> None:
    # A draw just below 1 added to 127 is 128 in float32; among two million there are some.
    assert (one("int8", np.full(2_000_000, 127)) == 127).all()


def test_int8_draws_come_from_the_generator() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    assert np.array_equal(one("int8", values, 1), one("int8", values, 1))
    assert not np.array_equal(one("int8", values, 1), one("int8", values, 2))


def test_int8_of_zeros_and_nothing() -> None:
    assert not one("int8", [0.0, -0.0, 0.0]).any()
    assert one("int8", []).shape == (0,)
    assert one("int8", 0.5).shape == ()


@pytest.mark.parametrize("largest", [TINY, 100 * TINY, 190 * TINY, 1e-38, 1e-30, 1e38, LARGEST])
def test_int8_reaches_the_largest_value_at_any_scale(largest: float) -> None:
    back = one("int8", [largest, -largest, 0.0]).astype(np.float64)
    assert np.abs(np.abs(back[:2]) - largest).max() <= largest / 127 * (1 + 1e-4) + TINY
    assert back[2] == 0
    assert (back[0] > 0) and (back[1] < 0)


def test_arrays_longer_than_a_block_and_in_any_layout() -> None:
    values = np.random.default_rng(0).standard_normal((300, 700)).astype(np.float32)
    for layout in (values, np.asfortranarray(values), values.astype(">f4")):
        assert same(through("fp32", {"w": layout}), {"w": values})
        assert np.allclose(through("bf16", {"w": layout})["w"], values, rtol=2**-8)
        assert np.allclose(through("int8", {"w": layout})["w"], values, atol=5 / 127)
    every_other = values.reshape(-1)[::2]
    for name in CODECS:
        assert same(through(name, {"w": every_other}), through(name, {"w": every_other.copy()}))


def trained_delta() -> dict[str, Array]:
    """What one epoch on two of ten classes adds to a two-layer network trained on all of them."""
    rng = np.random.default_rng(7)
    blur = np.exp(-0.02 * (np.arange(784)[:, None] // 28 - rng.uniform(0, 28, 40)) ** 2)
    blur *= np.exp(-0.02 * (np.arange(784)[:, None] % 28 - rng.uniform(0, 28, 40)) ** 2)
    means = blur @ rng.random((40, 10))
    labels = np.arange(2000) % 10
    images = means.T[labels] / means.max() + 0.1 * rng.standard_normal((2000, 784))
    images = np.clip(2 * images - 1, 0, 1)
    weights = [rng.standard_normal((784, 120)) * 0.05, rng.standard_normal((120, 10)) * 0.1]

    def epoch(chosen: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        for batch in np.array_split(rng.permutation(chosen), max(1, len(chosen) // 20)):
            hidden = np.maximum(images[batch] @ weights[0], 0)
            logits = hidden @ weights[1]
            error = np.exp(logits - logits.max(1, keepdims=True))
            error /= error.sum(1, keepdims=True)
            error[np.arange(len(batch)), labels[batch]] -= 1
            back = (error @ weights[1].T) * (hidden > 0)
            weights[1] -= 0.05 / len(batch) * hidden.T @ error
            weights[0] -= 0.05 / len(batch) * images[batch].T @ back

    epoch(np.arange(2000))
    before = [array.copy() for array in weights]
    epoch(np.flatnonzero(labels < 2)[:230])
    return {
        f"layer{k}": (after - start).astype(np.float32)
        for k, (after, start) in enumerate(zip(weights, before, strict=True))
    }


@pytest.mark.parametrize(
    ("name", "ratio", "cosine"), [("fp32", 1.2, 1.0), ("bf16", 2.4, 0.99999), ("int8", 6.0, 0.999)]
)
def test_a_trained_delta_becomes_small_and_keeps_its_direction(
    name: str, ratio: float, cosine: float
) -> None:
    delta = trained_delta()
    size = sum(array.nbytes for array in delta.values())
    assert size / len(CODECS[name].encode(delta, generator(1))) >= ratio
    left = np.concatenate([array.ravel() for array in delta.values()]).astype(np.float64)
    right = np.concatenate([array.ravel() for array in through(name, delta).values()])
    assert left @ right / np.linalg.norm(left) / np.linalg.norm(right) >= cosine - 1e-12


@pytest.mark.parametrize("name", sorted(CODECS))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_value_that_is_not_finite_is_named(name: str, bad: float, dtype: str) -> None:
    found: dict[str, Array] = {"good": np.ones(3, np.float32), "bad": np.array([0, bad], dtype)}
    with pytest.raises(WireError, match="'bad'") as caught:
        CODECS[name].encode(found, generator(0))
    assert caught.value.code == "wire.not_finite"
    assert "learning rate" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("fp32", b"\x7f\x80\x00\x00"),
        ("fp32", b"\x7f\xc0\x00\x00"),
        ("bf16", b"\x7f\x80"),
        ("bf16", b"\xff\xc1"),
        ("int8", struct.pack("<f", float("nan")) + b"\x00"),
        ("int8", struct.pack("<f", float("inf")) + b"\x00"),
        ("int8", struct.pack("<f", -1.0) + b"\x01"),
        ("int8", struct.pack("<f", LARGEST / 2) + b"\x01"),
        ("int8", struct.pack("<f", 1.0) + b"\x80"),
        ("topk", struct.pack("<f", float("nan")) + b"\x01\x00"),
        ("topk", struct.pack("<f", float("inf")) + b"\x01\x00"),
        ("topk", struct.pack("<f", 0.0) + b"\x01\x00"),
        ("topk", struct.pack("<f", -1.0) + b"\x01\x01"),
        ("topk", struct.pack("<f", 3.0) + b"\x01\x01"),
        ("topk", struct.pack("<f", 2.0**122) + b"\x01\x01"),
        ("topk", struct.pack("<f", 1.0) + b"\x01\x80"),
        ("topk", struct.pack("<f", 1.0) + b"\x00\x01"),
        ("topk", struct.pack("<f", 1.0) + b"\x03\x01"),
        ("topk", struct.pack("<f", 1.0) + b"\x02\x01"),
    ],
)
def test_codes_that_no_codec_writes_are_refused(name: str, content: bytes) -> None:
    blob = coded(name, [["w", "float32", [1]]], raw_frame(content))
    assert refused(blob, {"w": TensorSpec("float32", (1,))}) == "wire.not_finite"
    with pytest.raises(WireError, match="'w'"):
        decode(blob, None)
    lossless = coded(name, [["w", "float64", [1]]], raw_frame(struct.pack("<d", float("nan"))))
    assert refused(lossless, {"w": TensorSpec("float64", (1,))}) == "wire.not_finite"


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(WireError, match="int4") as caught:
        decode(coded("int4", [], raw_frame(b"")), {})
    assert caught.value.code == "wire.codec"
    assert caught.value.hint.endswith("fp32, bf16, int8, topk")


def test_what_differs_is_named_before_anything_is_inflated() -> None:
    expected = {"w": TensorSpec("float32", (2,))}
    huge = coded("fp32", [["w", "float32", [2**28]]], b"")
    assert refused(huge, expected) == "wire.tensor"
    with pytest.raises(WireError, match="1000 are allowed"):
        decode(huge, None, max_bytes=1000)


def test_what_is_wrong_with_a_compressed_part_is_said() -> None:
    entry: list[object] = [["w", "float32", [2]]]
    for body, said in ((raw_frame(bytes(9)), "not as long"), (raw_frame(bytes(8))[:-1], "damaged")):
        with pytest.raises(WireError, match=said):
            decode(coded("fp32", entry, body), None)


def test_a_truth_value_that_is_none_is_named_with_its_tensor() -> None:
    with pytest.raises(WireError, match="'mask' holds a truth value"):
        decode(coded("fp32", [["mask", "bool", [2]]], raw_frame(b"\x01\x02")), None)


def test_tensors_may_fill_the_largest_blob(monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Array] = {name: np.ones(1, np.float32) for name in "ab"}
    monkeypatch.setattr(limits, "MAX_BLOB_BYTES", 8)
    assert same(through("fp32", found), found)
    monkeypatch.setattr(limits, "MAX_BLOB_BYTES", 7)
    with pytest.raises(WireError, match="take 8 bytes"):
        through("fp32", found)


def test_bombs_are_refused_without_much_memory() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 26))
    entry: list[object] = [["w", "float32", [2]]]
    lying = b"\x28\xb5\x2f\xfd\x20\x08" + struct.pack("<I", (1 << 17) << 3 | 3)[:3] + b"\x00"
    for body in (bomb, silent, lying, b"", b"\x28\xb5\x2f\xfd"):
        blob = coded("fp32", entry, body)
        assert refused(blob, {"w": TensorSpec("float32", (2,))}) == "wire.tensor"
    claim = coded("int8", [["w", "float32", [2**31]]], raw_frame(b"\x00" * 5))
    assert refused(claim) == "wire.tensor"


@pytest.mark.parametrize(
    "extra", [b"\x00", raw_frame(b""), raw_frame(bytes(8))], ids=["byte", "empty", "frame"]
)
def test_bytes_after_the_frame_are_refused(extra: bytes) -> None:
    blob = coded("fp32", [["w", "float32", [2]]], raw_frame(bytes(8)) + extra)
    assert refused(blob, {"w": TensorSpec("float32", (2,))}) == "wire.tensor"


@settings(max_examples=75, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(CODECS)), st.booleans())
def test_random_bytes_are_refused(data: bytes, name: str, framed: bool) -> None:
    blob = coded(name, [["w", "float32", [2]]], data) if framed else data
    assert refused(blob, {"w": TensorSpec("float32", (2,))}).startswith("wire.")


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(CODECS)))
def test_damage_is_refused_or_stays_within_what_was_expected(
    data: st.DataObject, name: str
) -> None:
    found = data.draw(arrays())
    blob = data.draw(damaged(CODECS[name].encode(found, generator(0))))
    with at_most(1 << 20):
        try:
            read = decode(blob, specs_of(found))
        except WireError as error:
            assert error.code in ("wire.tensor", "wire.codec", "wire.not_finite")
        else:
            assert specs_of(read) == specs_of(found)
            assert all(np.isfinite(array).all() for array in read.values())


MEGABYTE = 1 << 20


def large(tensors: int = 8) -> dict[str, Array]:
    rng = np.random.default_rng(4)
    return {
        f"w{n}": rng.standard_normal(MEGABYTE // 2, dtype=np.float32) * np.float32(0.01)
        for n in range(tensors)
    }


def test_a_blob_is_coded_and_decoded_tensor_by_tensor() -> None:
    found = large()
    size = sum(array.nbytes for array in found.values())
    for name, share in (("int8", 4), ("fp32", 1)):
        section = size // 8 // share
        with at_most(size // share + size // 8 + 4 * section):
            blob = CODECS[name].encode(found, generator(1, "test"))
        with at_most(size + 3 * section):
            decode(blob, specs_of(found))


@pytest.mark.parametrize("name", list(CODECS))
def test_two_threads_write_the_bytes_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**large(3), "count": np.array(7, np.int64), "none": np.zeros((0, 2), np.float32)}
    blob = CODECS[name].encode(found, generator(1, "test"))
    monkeypatch.setattr(tensors, "LARGE", 1 << 40)
    assert CODECS[name].encode(found, generator(1, "test")) == blob


def test_an_error_in_the_other_thread_names_its_tensor() -> None:
    found = large(3)
    found["w2"][5] = np.inf
    with pytest.raises(WireError, match="'w2' holds a value that is not finite"):
        CODECS["int8"].encode(found, generator(1, "test"))


def frame_of(content: bytes, **parameters: Any) -> bytes:
    chosen = zstandard.ZstdCompressionParameters(compression_level=1, **parameters)
    return zstandard.ZstdCompressor(compression_params=chosen).compress(content)


def test_a_frame_may_have_a_checksum_which_must_be_right() -> None:
    content = np.arange(9, dtype=np.uint8).tobytes()
    tensors: list[object] = [["m", "uint8", [4]], ["n", "uint8", [5]]]
    blob = coded("fp32", tensors, frame_of(content, write_checksum=True))
    assert decode(blob, None)["n"].tobytes() == content[4:]
    assert refused(blob[:-1] + bytes([blob[-1] ^ 1])) == "wire.tensor"
    assert refused(blob[:-1]) == "wire.tensor"


def test_a_window_that_a_decoder_need_not_have_is_refused() -> None:
    size = 17 * MEGABYTE
    for log, is_fine in ((23, True), (24, False)):
        body = frame_of(bytes(size), window_log=log)
        blob = coded("fp32", [["m", "uint8", [1]], ["n", "uint8", [size - 1]]], body)
        if is_fine:
            assert not decode(blob, None)["n"].any()
        else:
            with pytest.raises(WireError, match="its compressed part is damaged"):
                decode(blob, None)
