"""Error feedback: the encoding error of one reply is part of the next."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefed.algorithms.interface.answer import Group
from edgefed.learn.base.types import Array, Tensors
from edgefed.wire.codecs import CODECS, decode
from edgefed.worker.outcomes import FEEDBACK, encode_groups
from tests.algorithms.play import bits

LOSSY = [name for name in CODECS if name != "fp32"]
vectors = arrays(np.float32, 6, elements=st.floats(-8, 8, width=32))


def send(
    deltas: list[Tensors], code: str, memory: dict[str, Tensors] | None
) -> tuple[dict[str, Array], dict[str, Tensors]]:
    """Return the sum of what was sent, in float64, and the memory at the end."""
    total: dict[str, Array] = {}
    left: dict[str, Tensors] = {}
    for seed, delta in enumerate(deltas):
        blobs, left = encode_groups({"delta": Group(delta)}, code, seed, memory)
        for name, array in decode(blobs["delta"], None).items():
            total[name] = total.get(name, 0.0) + array.astype(np.float64)
        memory = None if memory is None else left
    return total, left


@pytest.mark.parametrize("code", LOSSY)
@settings(max_examples=30, deadline=None)
@given(values=st.lists(vectors, min_size=1, max_size=8))
def test_all_that_was_sent_and_the_rest_are_all_that_was_meant(
    code: str, values: list[Array]
) -> None:
    """sum of sent_t + e_T = sum of delta_t, up to the rounding of float32 additions."""
    sent, left = send([{"w": value} for value in values], code, {})
    meant = np.sum([value.astype(np.float64) for value in values], axis=0)
    rest = left[FEEDBACK + "delta"]["w"].astype(np.float64)
    np.testing.assert_allclose(sent["w"] + rest, meant, atol=1e-5)
    bound = {"bf16": 2.0**-8, "int8": 1 / 127, "topk": 1}[code] * 8 * (1 + len(values))
    assert np.abs(rest).max() <= bound


@pytest.mark.parametrize("code", LOSSY)
def test_without_a_memory_small_changes_are_lost(code: str) -> None:
    """One large value hides the small ones, round after round, unless they are remembered."""
    delta: Tensors = {"w": np.array([8.0, 0.003, 1.0 + 2**-9], np.float32)}
    meant = 40 * delta["w"].astype(np.float64)
    forgetful, left = send([delta] * 40, code, None)
    mindful, _ = send([delta] * 40, code, {})
    assert left == {}
    error_without = np.abs(forgetful["w"] - meant).max()
    assert np.abs(mindful["w"] - meant).max() < max(error_without / 2, 0.08)


def test_a_lossless_code_drops_nothing() -> None:
    delta: Tensors = {"w": np.array([1e-30, 3.0], np.float32)}
    before: dict[str, Tensors] = {FEEDBACK + "delta": {"w": np.ones(2, np.float32)}}
    blobs, left = encode_groups({"delta": Group(delta)}, "fp32", 1, before)
    assert bits(decode(blobs["delta"], None)) == bits(delta)
    assert left == {}


def test_roles_have_memories_of_their_own() -> None:
    groups = {
        "a": Group({"w": np.array([1.003], np.float32)}),
        "b": Group({"w": np.zeros(1, "f4")}),
    }
    _, left = encode_groups(groups, "bf16", 1, {})
    assert left.keys() == {FEEDBACK + "a", FEEDBACK + "b"}
    assert left[FEEDBACK + "a"]["w"] != 0
    assert left[FEEDBACK + "b"]["w"] == 0


def test_integers_travel_as_they_are_and_are_not_remembered() -> None:
    delta: Tensors = {"w": np.ones(2, np.float32), "seen": np.array(3, np.int64)}
    blobs, left = encode_groups({"delta": Group(delta)}, "int8", 1, {})
    assert decode(blobs["delta"], None)["seen"] == 3
    assert left[FEEDBACK + "delta"].keys() == {"w"}
    again, _ = encode_groups({"delta": Group(delta)}, "int8", 2, left)
    assert decode(again["delta"], None)["seen"] == 3


def test_a_memory_of_another_model_is_forgotten() -> None:
    delta: Tensors = {"w": np.ones(2, np.float32)}
    plain, _ = encode_groups({"delta": Group(delta)}, "int8", 1, {})
    others: list[Tensors] = [{"w": np.ones(3, np.float32)}, {"v": np.ones(2, np.float32)}]
    for stale in others:
        memory: dict[str, Tensors] = {FEEDBACK + "delta": stale}
        assert encode_groups({"delta": Group(delta)}, "int8", 1, memory)[0] == plain


def test_what_is_given_is_not_changed() -> None:
    delta: Tensors = {"w": np.array([1.003], np.float32)}
    memory: dict[str, Tensors] = {FEEDBACK + "delta": {"w": np.array([0.5], np.float32)}}
    before = bits([delta, memory])
    encode_groups({"delta": Group(delta)}, "bf16", 1, dict(memory))
    assert bits([delta, memory]) == before
