"""State files: array by array, only what changed, and no more files with time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.base import State
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.storage import state_files
from edgefed.coordinator.storage.new_run import create_run
from edgefed.coordinator.storage.run_store import Store
from edgefed.coordinator.storage.state_files import StateFiles, write_arrays
from edgefed.files.mapped import release
from edgefed.learn.base.types import Tensors
from tests.run_fixture import Ticking, World, recipe
from tests.wire.memory import at_most

MEGABYTE = 1 << 20
FLOATS, INTEGERS = ("float16", "float32", "float64"), ("int8", "int16", "int32", "int64")
KINDS = (*FLOATS, *INTEGERS, *(f"u{kind}" for kind in INTEGERS), "bool")


def test_a_file_holds_every_kind_of_array(tmp_path: Path) -> None:
    arrays: Tensors = {f"{kind} ü": np.array([[0, 1, 1]], kind) for kind in KINDS}
    arrays |= {
        "scalar": np.array(5, np.int64),
        "none": np.zeros((0, 4), np.float32),
        "turned": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "big": np.array([1.5, -2.0], ">f4"),
    }
    path = tmp_path / "deep" / "arrays.safetensors"
    write_arrays(path, arrays, {"written": "here"})
    read = load_file(path)
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read[name], array, strict=False)
        assert read[name].shape == array.shape
    with safe_open(path, "np") as file:
        assert file.metadata() == {"written": "here"}


@pytest.mark.parametrize("durable", [True, False])
def test_a_commit_copies_no_array(tmp_path: Path, durable: bool) -> None:
    groups: dict[str, Tensors]
    groups = {"weights": {f"w{n}": np.ones(MEGABYTE, np.float32) for n in range(4)}}
    files = StateFiles(durable=durable)
    with at_most(MEGABYTE // 2):
        layout = files.write(tmp_path, "state-000001.safetensors", groups)
    files.check(tmp_path, layout)
    read = files.read(tmp_path, layout)
    assert all(array.all() and array.size == MEGABYTE for array in read["weights"].values())


def test_arrays_that_did_not_change_are_not_written_again(tmp_path: Path) -> None:
    files = StateFiles(durable=True)
    large: Tensors = {"a": np.ones(1000), "b": np.ones(3)}
    first = files.write(tmp_path, "state-000001.safetensors", {"large": large, "memory": {}})
    files.committed(tmp_path, first, {"large": large, "memory": {}})
    written = (tmp_path / "state-000001.safetensors").stat().st_mtime_ns
    for number, (changed, kept) in enumerate(
        [({**large}, True), ({**large, "b": np.ones(3)}, False), ({"b": large["b"]}, False)], 2
    ):
        groups: dict[str, Tensors] = {"large": changed, "memory": {"m": np.array(number)}}
        layout = files.write(tmp_path, f"state-{number:06d}.safetensors", groups)
        assert (layout.places["large"] == first.places["large"]) is kept
        assert layout.places["memory"] != first.places["memory"]
        read = files.read(tmp_path, layout)
        assert {n: array.tolist() for n, array in read["large"].items()} == {
            n: array.tolist() for n, array in changed.items()
        }
    assert (tmp_path / "state-000001.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize("durable", [True, False])
def test_large_groups_are_mapped_from_files_that_are_not_written_again(
    tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_files, "LARGE_BYTES", 4000)
    files = StateFiles(durable=durable)
    odd: Tensors = {f"{kind}": np.array([[0, 1, 1]], kind) for kind in KINDS}
    given: dict[str, Tensors] = {
        "large": {**odd, "w": np.arange(1000, dtype=np.float32), "none": np.zeros((0, 4))},
        "small": {"w": np.ones(999, np.float32)},
    }
    given |= {f"large-{number}": {"w": np.full(1000, float(number))} for number in range(9)}
    layout = files.write(tmp_path, "state-000001.safetensors", given)
    held = files.committed(tmp_path, layout, given)
    assert Path("/proc/self/maps").read_text().count(f"{tmp_path}/") <= 1, "one map of a file"
    for group, arrays in held.items():
        assert release(arrays["w"]) == (durable and group != "small")
    again = files.write(tmp_path, "state-000002.safetensors", held)
    assert set(again.places.values()) == {"state-000001.safetensors"}
    assert files.committed(tmp_path, again, held)["large"] is held["large"]
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    for group, arrays in given.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(held[group][name], array, strict=True)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"algorithm": {"name": "fedavg", "server": "adam"}},
        {"algorithm": {"name": "scaffold"}},
        {"wire": {"downlink": "int8", "uplink": "int8"}},
        {"rounds": {"mode": "buffered", "buffer": 2}},
    ],
)
def test_a_run_on_mapped_states_ends_in_the_same_bits(
    tmp_path: Path, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for large in (2**30, 1):
        monkeypatch.setattr(state_files, "LARGE_BYTES", large)
        world = World(tmp_path / str(large), recipe(**sections), durable=True)
        algorithm = make(world.recipe)
        merge, mapped = algorithm.merge, list[bool]()

        def noted(state: State, *rest: Any, merge: Any = merge, mapped: Any = mapped) -> Any:
            mapped += [release(a) for group in state.groups.values() for a in group.values()]
            return merge(state, *rest)

        monkeypatch.setattr(algorithm, "merge", noted)
        digests.append(world.engine(algorithm=algorithm).run().weights_digest)
        world.close()
        assert set(mapped) == {large == 1}
    assert digests[0] == digests[1]


def test_three_hundred_commits_take_no_more_disk_than_a_few(tmp_path: Path) -> None:
    store = Store(tmp_path, durable=False)
    record = create_run(store, Recipe.model_validate({"name": "long"}), Ticking())
    rare: Tensors = {"r": np.ones(500, np.float32)}
    taken: list[tuple[int, int]] = []
    for number in range(1, 301):
        groups: dict[str, Tensors]
        groups = {"weights": {"w": np.full(500, number, np.float32)}, "rare": rare}
        record = type(record)(**{**vars(record), "exchanges": number})
        store.commit(record, State(number, groups, {}), {})
        if number in (100, 300):
            store.shrink()
            files = [path for path in tmp_path.rglob("*") if path.is_file()]
            taken.append((len(files), sum(path.stat().st_size for path in files)))
    (few, before), (many, after) = taken
    assert (many, after) == pytest.approx((few, before), rel=0.02)
    checkpoint = store.checkpoint(record.run)
    assert checkpoint is not None
    assert checkpoint.state.groups["weights"]["w"][0] == 300
    assert checkpoint.state.groups["rare"]["r"].tolist() == rare["r"].tolist()
    store.close()
