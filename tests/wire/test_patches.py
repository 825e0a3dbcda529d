"""Patches give the same bits on every machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from edgefed.errors import WireError
from edgefed.seeds import generator
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.patches import apply_patch, difference
from edgefed.wire.tensors import Array, TensorSpec, specs_of, weights_digest
from tests.wire.strategies import arrays
from tests.wire.test_tensors import same


def weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.standard_normal((40, 30)).astype(np.float32),
        "scale": np.asarray(rng.standard_normal()).astype(np.float32),
        "steps": np.array(seed, dtype=np.int64),
    }


def test_a_chain_of_lossy_patches_gives_all_receivers_the_same_bits() -> None:
    held: dict[str, Array] | None = None
    other: dict[str, Array] | None = None
    for seed in range(4):
        wanted = weights(seed)
        specs = specs_of(wanted)
        blob = CODECS["int8"].encode(difference(held, wanted), generator(seed))
        held = apply_patch(held, decode(blob, specs), specs)
        other = apply_patch(other, decode(blob, None))
        assert weights_digest(held) == weights_digest(other)
        assert held["steps"] == seed
        assert held["w"].dtype == np.float32
        assert held["scale"].shape == ()
        assert np.abs(held["w"] - wanted["w"]).max() < 0.1


def test_exact_arithmetic() -> None:
    base: dict[str, Array] = {"w": np.array([1, 2], np.float32), "n": np.array([5], np.int32)}
    patch: dict[str, Array] = {"w": np.array([0.5, -2], np.float32), "n": np.array([6], np.int32)}
    assert apply_patch(base, patch)["w"].tolist() == [1.5, 0.0]
    assert apply_patch(base, patch)["n"].tolist() == [6]
    assert base["w"].tolist() == [1, 2]


@settings(max_examples=25, deadline=None)
@given(arrays())
def test_from_nothing_the_patch_is_the_weights(found: dict[str, Array]) -> None:
    made = apply_patch(None, difference(None, found), specs_of(found))
    assert same(made, found)
    for copied in (apply_patch(None, found), difference(None, found)):
        assert not any(np.shares_memory(copied[name], found[name]) for name in found)


def test_the_result_has_the_order_of_the_specs() -> None:
    base = weights(0)
    turned = dict(reversed(specs_of(base).items()))
    assert list(apply_patch(base, base, turned)) == list(turned)
    assert list(apply_patch(base, dict(reversed(base.items())))) == list(base)


def test_what_does_not_fit_is_named() -> None:
    base = weights(0)
    specs = specs_of(base)
    short = {name: base[name] for name in ("w", "scale")}
    for wrong_base, wrong_patch in ((short, base), (base, short)):
        with pytest.raises(WireError, match="'steps' is missing"):
            apply_patch(wrong_base, wrong_patch, specs)
    with pytest.raises(WireError, match="'more' is not expected"):
        apply_patch(base, {**base, "more": base["w"]})
    with pytest.raises(WireError, match="'w' is float32"):
        apply_patch(base, base, {**specs, "w": TensorSpec("float32", (30, 40))})
    with pytest.raises(WireError, match="'w' is float64"):
        difference({**base, "w": base["w"].astype(np.float64)}, base)
