"""Obtaining the bytes of a blob: the cheapest chain of patches, and wrong patches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.errors import WireError
from edgefed.learn.base.types import Tensors
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.message_parts import BlobRef, Patch
from edgefed.wire.patch_assembly import Route, assemble, route
from edgefed.wire.patches import apply_patch, difference
from edgefed.wire.tensors import digest, pack, specs_of


def name(number: int) -> str:
    return f"{number:064x}"


def chain(sizes: list[int], whole: int, *, rooted: bool = False) -> BlobRef:
    """Return a reference to blob 0 with patches from 1, 2, …; each patch blob is 100 + its base."""
    patches = tuple(
        Patch(
            base=None if rooted and place == len(sizes) else name(place),
            blob=name(100 + place),
            size=size,
        )
        for place, size in enumerate(sizes, start=1)
    )
    return BlobRef(digest=name(0), size=whole, patches=patches)


def test_what_is_held_costs_nothing() -> None:
    assert route(chain([5, 5], 100), {name(0)}.__contains__) == Route((), ())


@pytest.mark.parametrize("base", [1, 2, 3])
def test_the_patches_above_a_held_base_are_fetched_and_applied_oldest_first(base: int) -> None:
    ref = chain([5, 6, 7], 100)
    way = route(ref, {name(base)}.__contains__)
    assert way.patches == tuple(reversed(ref.patches[:base]))
    assert way.fetch == tuple((name(100 + k), 4 + k) for k in range(base, 0, -1))


def test_the_nearest_base_is_taken() -> None:
    assert len(route(chain([5, 6, 7], 100), {name(3), name(1)}.__contains__).patches) == 1


def test_a_patch_that_is_held_is_not_fetched_again() -> None:
    way = route(chain([5, 6], 100), {name(2), name(102)}.__contains__)
    assert way.fetch == ((name(101), 5),)
    assert len(way.patches) == 2


def test_without_any_base_the_whole_is_fetched() -> None:
    assert route(chain([5, 6], 100), lambda _: False) == Route((), ((name(0), 100),))


def test_a_chain_from_zeros_needs_no_base() -> None:
    way = route(chain([5, 6], 100, rooted=True), lambda _: False)
    assert [patch.base for patch in way.patches] == [None, name(1)]


@pytest.mark.parametrize("sizes", [[60, 40], [60, 41], [100]])
def test_patches_as_large_as_the_whole_are_not_worth_it(sizes: list[int]) -> None:
    held = {name(len(sizes))}
    assert route(chain(sizes, 100), held.__contains__).fetch == ((name(0), 100),)


def test_patches_can_be_distrusted() -> None:
    way = route(chain([5], 100), {name(1)}.__contains__, whole=True)
    assert way == Route((), ((name(0), 100),))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), max_size=5),
    held=st.sets(st.integers(0, 106)),
    rooted=st.booleans(),
)
def test_a_way_is_never_dearer_than_the_whole_and_always_complete(
    sizes: list[int], held: set[int], rooted: bool
) -> None:
    ref = chain(sizes, 100, rooted=rooted)
    has = {name(number) for number in held}
    way = route(ref, has.__contains__)
    assert sum(size for _, size in way.fetch) <= 100
    fetched = has | {blob for blob, _ in way.fetch}
    if not way.patches:
        assert ref.digest in fetched
        return
    assert way.patches[0].base is None or way.patches[0].base in has
    assert all(patch.blob in fetched for patch in way.patches)
    steps = [patch.base for patch in way.patches[1:]]
    assert steps == [name(number) for number in range(len(steps), 0, -1)]


# -- with real blobs ----------------------------------------------------------------------------


def world() -> tuple[BlobRef, dict[str, bytes], Tensors]:
    """Return a reference to weights, with a patch from older ones, and every blob by name."""
    rng = np.random.default_rng(1)
    old = {"w": rng.standard_normal((20, 30)).astype(np.float32)}
    new = {"w": old["w"] + np.float32(0.01)}
    code = CODECS["int8"].encode(difference(old, new), rng)
    after = apply_patch(old, decode(code, specs_of(new)))
    blobs = {digest(each): each for each in (pack(old), pack(after), code)}
    patch = Patch(base=digest(pack(old)), blob=digest(code), size=len(code))
    ref = BlobRef(digest=digest(pack(after)), size=len(pack(after)), patches=(patch,))
    return ref, blobs, old


def test_patching_makes_the_named_bytes() -> None:
    ref, blobs, old = world()
    held = {digest(pack(old))}
    made = assemble(ref, route(ref, held.__contains__), blobs.__getitem__, specs_of(old))
    assert made == blobs[ref.digest]


def test_the_whole_is_handed_on_as_it_is() -> None:
    ref, blobs, old = world()
    way = route(ref, lambda _: False)
    assert assemble(ref, way, blobs.__getitem__, specs_of(old)) == blobs[ref.digest]


def test_a_patch_that_leads_elsewhere_is_noticed() -> None:
    ref, blobs, old = world()
    wrong = CODECS["int8"].encode({"w": np.ones((20, 30), np.float32)}, np.random.default_rng(0))
    blobs[ref.patches[0].blob] = wrong
    with pytest.raises(WireError) as caught:
        assemble(ref, Route(ref.patches, ()), blobs.__getitem__, specs_of(old))
    assert caught.value.code == "wire.digest"


@pytest.mark.parametrize("damage", [b"", b"EFC1", b"\x00" * 50])
def test_a_damaged_patch_is_noticed(damage: bytes) -> None:
    ref, blobs, old = world()
    blobs[ref.patches[0].blob] = damage
    with pytest.raises(WireError):
        assemble(ref, Route(ref.patches, ()), blobs.__getitem__, specs_of(old))


def test_a_patch_of_another_shape_is_noticed() -> None:
    ref, blobs, _ = world()
    other = CODECS["fp32"].encode({"w": np.ones((20, 31), np.float32)}, np.random.default_rng(0))
    blobs[ref.patches[0].blob] = other
    with pytest.raises(WireError):
        assemble(ref, Route(ref.patches, ()), blobs.__getitem__, None)
