"""Mapped arrays: what reads all of their values gives their pages back."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefed.algorithms.averaging.fedavg import difference
from edgefed.algorithms.interface.answer import Group
from edgefed.algorithms.interface.exchange import Payload
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.data.base.checks import checked_samples
from edgefed.files.mapped import blocks, copied_rows, opened_bytes
from edgefed.learn.base.types import Tensors
from edgefed.learn.training.trainer import Trainer
from edgefed.wire.blobs import BlobCache
from edgefed.wire.tensors import pack, unpack
from edgefed.worker.outcomes import encode_groups
from tests.learn import worlds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

MODEL = worlds.model("mlp", hidden=[3000])
WEIGHTS = MODEL.weights()
WEIGHT = WEIGHTS["fc1.weight"]


def _arrays(path: Path) -> Tensors:
    path.write_bytes(pack(WEIGHTS))
    return unpack(opened_bytes(path).data, None, copied=False)


def _resident(path: Path) -> int:
    """Return the resident bytes of the mapped file."""
    maps = Path("/proc/self/smaps").read_text()
    found = re.search(rf"{re.escape(str(path))}\nSize.*?\nRss: +(\d+) kB", maps, re.DOTALL)
    assert found is not None
    return 1024 * int(found[1])


def _differ(mapped: Tensors, path: Path) -> None:
    changes = difference({name: array + 1 for name, array in WEIGHTS.items()}, mapped)
    assert all(np.array_equal(changes[name], array + 1 - array) for name, array in WEIGHTS.items())


def _add_errors(mapped: Tensors, path: Path) -> None:
    memory = {"feedback/delta": mapped}
    blobs, _ = encode_groups({"delta": Group(WEIGHTS)}, "int8", 1, memory)
    doubled = {name: 2 * array for name, array in WEIGHTS.items()}
    assert blobs == encode_groups({"delta": Group(doubled)}, "int8", 1, None)[0]


def _train(mapped: Tensors, path: Path) -> None:
    samples, resident = worlds.samples(20), list[int]()
    trainer, job = Trainer(MODEL, "cpu"), replace(worlds.job(MODEL), weights=mapped)
    after = trainer.train(job, samples, lambda share: resident.append(_resident(path)))
    assert not any(resident)
    in_memory = trainer.train(replace(job, weights=WEIGHTS), samples)
    assert pack(after.weights) == pack(in_memory.weights)


def _send(mapped: Tensors, path: Path) -> None:
    cache = BlobCache(path.parent / "blobs", 1 << 30)
    ref = DownlinkEncoder("fp32", cache).send("weights", Payload(mapped), 1)
    assert cache.get(ref.digest) == pack(WEIGHTS)


def _check(mapped: Tensors, path: Path) -> None:
    checked_samples(mapped["fc1.weight"], np.zeros(len(WEIGHT), np.int64), "here")


def _copy(mapped: Tensors, path: Path) -> None:
    index = np.arange(0, len(WEIGHT), 7)
    copied = copied_rows(mapped["fc1.weight"], index)
    assert np.array_equal(copied, WEIGHT[index])  # type: ignore[arg-type]


def _read(mapped: Tensors, path: Path) -> None:
    assert b"".join(map(bytes, blocks(mapped["fc1.weight"]))) == WEIGHT.tobytes()


@pytest.mark.parametrize("read", [_differ, _add_errors, _train, _send, _check, _copy, _read])
def test_no_page_stays(read: Callable[[Tensors, Path], None], tmp_path: Path) -> None:
    path = tmp_path / "arrays"
    mapped = _arrays(path)
    assert float(sum(array.sum() for array in mapped.values())) != 0
    assert _resident(path) >= WEIGHT.nbytes, "read values are resident"
    read(mapped, path)
    assert _resident(path) < WEIGHT.nbytes / 2
