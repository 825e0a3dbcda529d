from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.errors import WireError
from edgefed.wire.blobs import BlobCache
from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.exact_patches import encode_exact
from edgefed.wire.message_parts import Patch
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.patches import apply_patch, difference
from edgefed.wire.tensors import Array, digest, pack
from edgefed.worker.task_inputs import TaskInputs
from tests.support.synced import synced_folders

Weights = dict[str, Array]
DRAWS = np.random.Generator(np.random.Philox(1))


def task(ref: BlobRef) -> Task:
    return Task(
        run="r-1",
        exchange="r-1-0",
        index=0,
        round=0,
        question="fit",
        device="device-1",
        deadline=60.0,
        seed=1,
        algorithm="fedavg",
        settings={},
        model={},
        training={},
        codec="fp32",
        samples=1,
        blobs={"weights": ref},
        params={},
    )


def weights() -> Weights:
    return {"w": DRAWS.standard_normal((30, 40)).astype(np.float32)}


def step(base: Weights | None) -> tuple[Weights, bytes]:
    """Return new weights and the coded patch that leads to them."""
    code = CODECS["int8"].encode(difference(base, weights()), DRAWS)
    return apply_patch(base, decode(code, None)), code


class Chain:
    """Three versions of weights: the first from zeros, the others from the one before."""

    def __init__(self) -> None:
        self.versions: list[Weights] = []
        self.codes: list[bytes] = []
        patches: tuple[Patch, ...] = ()
        for _ in range(3):
            base = self.versions[-1] if self.versions else None
            after, code = step(base)
            name = digest(pack(base)) if base is not None else None
            patches = (Patch(base=name, blob=digest(code), size=len(code)), *patches)
            self.versions.append(after)
            self.codes.append(code)
        self.packed = [pack(version) for version in self.versions]
        self.ref = BlobRef(digest=digest(self.packed[2]), size=len(self.packed[2]), patches=patches)


@pytest.fixture(scope="module")
def chain() -> Chain:
    return Chain()


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(tmp_path, 2**30)


def test_what_is_held_needs_nothing(cache: BlobCache, chain: Chain) -> None:
    cache.put(chain.packed[2])
    inputs = TaskInputs(task(chain.ref), cache)
    assert inputs.ready
    assert inputs.assemble()
    np.testing.assert_array_equal(inputs.read("weights")["w"], chain.versions[2]["w"])


@pytest.mark.parametrize(("held", "lacking"), [(1, [2]), (0, [1, 2])])
def test_who_holds_an_older_version_fetches_only_the_patches_above_it(
    cache: BlobCache, chain: Chain, held: int, lacking: list[int]
) -> None:
    cache.put(chain.packed[held])
    inputs = TaskInputs(task(chain.ref), cache)
    assert inputs.lacking == {digest(chain.codes[n]): len(chain.codes[n]) for n in lacking}
    for n in lacking:
        assert not inputs.ready
        inputs.arrived(cache.put(chain.codes[n]))
    assert inputs.ready
    assert inputs.assemble()
    assert pack(inputs.read("weights")) == chain.packed[2]


def test_a_newcomer_takes_whichever_is_shorter(cache: BlobCache, chain: Chain) -> None:
    inputs = TaskInputs(task(chain.ref), cache)
    assert sum(inputs.lacking.values()) < chain.ref.size  # three int8 patches, from zeros
    short = chain.ref.model_copy(update={"size": sum(len(code) for code in chain.codes)})
    assert TaskInputs(task(short), cache).lacking == {short.digest: short.size}


def test_a_direct_patch_is_taken_where_it_is_shortest(cache: BlobCache, chain: Chain) -> None:
    merged = encode_exact(chain.versions[0], chain.versions[2])
    direct = Patch(base=digest(chain.packed[0]), blob=digest(merged), size=len(merged))
    short = direct.model_copy(update={"size": 1})
    ref = chain.ref.model_copy(update={"direct": (short,)})
    assert TaskInputs(task(ref), cache).lacking.keys().isdisjoint({direct.blob})  # no base yet
    cache.put(chain.packed[0])
    inputs = TaskInputs(task(ref), cache)
    assert inputs.lacking == {direct.blob: 1}
    inputs.arrived(cache.put(merged))
    assert inputs.assemble()
    assert pack(inputs.read("weights")) == chain.packed[2]


def test_a_patch_that_does_not_fit_is_replaced_by_the_whole(cache: BlobCache, chain: Chain) -> None:
    other, code = step(chain.versions[0])
    assert pack(other) != chain.packed[1]
    cache.put(chain.packed[0])
    wrong = Patch(base=digest(chain.packed[0]), blob=digest(code), size=len(code))
    ref = BlobRef(digest=digest(chain.packed[1]), size=len(chain.packed[1]), patches=(wrong,))
    inputs = TaskInputs(task(ref), cache)
    inputs.arrived(cache.put(code))
    assert not inputs.assemble()
    assert inputs.lacking == {ref.digest: ref.size}
    inputs.arrived(cache.put(chain.packed[1]))
    assert inputs.assemble()
    assert pack(inputs.read("weights")) == chain.packed[1]


def test_a_patch_that_is_no_code_is_replaced_by_the_whole(cache: BlobCache, chain: Chain) -> None:
    junk = b"EFC1 but not really"
    cache.put(chain.packed[0])
    patch = Patch(base=digest(chain.packed[0]), blob=digest(junk), size=len(junk))
    ref = BlobRef(digest=digest(chain.packed[1]), size=len(chain.packed[1]), patches=(patch,))
    inputs = TaskInputs(task(ref), cache)
    inputs.arrived(cache.put(junk))
    assert not inputs.assemble()
    assert inputs.lacking == {ref.digest: ref.size}


def test_weights_that_a_power_cut_damages_are_made_again(
    tmp_path: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = BlobCache(tmp_path, 2**30)
    for data in (chain.packed[1], chain.codes[2]):
        cache.put(data)
    synced = synced_folders(monkeypatch)
    assert TaskInputs(task(chain.ref), cache).assemble()
    assert synced == [], "nothing waits for the disk that can be made again"
    (tmp_path / chain.ref.digest).write_bytes(chain.packed[2][:100])

    cache = BlobCache(tmp_path, 2**30)
    inputs = TaskInputs(task(chain.ref), cache)
    inputs.check()
    with pytest.raises(WireError, match="is not in the cache"):
        inputs.read("weights")
    inputs = TaskInputs(task(chain.ref), cache)
    assert inputs.assemble()
    assert pack(inputs.read("weights")) == chain.packed[2]


def test_blobs_of_a_task_stay_until_it_is_cleared(tmp_path: Path, chain: Chain) -> None:
    cache = BlobCache(tmp_path, len(chain.packed[2]))
    cache.put(chain.packed[2])
    inputs = TaskInputs(task(chain.ref), cache)
    cache.put(bytes(len(chain.packed[2])))
    assert cache.has(chain.ref.digest)
    inputs.clear()
    cache.put(b"1" * len(chain.packed[2]))
    assert not cache.has(chain.ref.digest)


def test_a_blob_that_is_no_weights_is_refused(cache: BlobCache) -> None:
    junk = cache.put(b"these are no tensors")
    inputs = TaskInputs(task(BlobRef(digest=junk, size=20)), cache)
    assert inputs.assemble()
    with pytest.raises(WireError):
        inputs.read("weights")
