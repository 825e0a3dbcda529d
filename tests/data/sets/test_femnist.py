"""LEAF's JSON files by writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.data.devices.partition import deal
from edgefed.data.sets.datasets import load
from edgefed.data.sets.femnist import read_leaf
from edgefed.errors import DataError
from tests.data.helpers import section


def _write(path: Path, users: dict[str, int], side: int = 28) -> None:
    """Write a file in which every value of a user's inputs is the user's number of samples."""
    data = {
        user: {"x": [[count / 100] * side**2] * count, "y": [place % 62 for place in range(count)]}
        for user, count in users.items()
    }
    content = {"users": list(users), "num_samples": list(users.values()), "user_data": data}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_writers_keep_their_samples_and_a_tenth_of_each_is_for_testing(tmp_path: Path) -> None:
    _write(tmp_path / "all_data_0.json", {"f0001": 20, "f0002": 30})
    _write(tmp_path / "all_data_1.json", {"f0003": 40})
    dataset = load(section(name="femnist", path="."), tmp_path, seed=1)
    assert (dataset.classes, dataset.shape) == (62, (1, 28, 28))
    assert dataset.groups is not None
    assert np.bincount(dataset.groups).tolist() == [18, 27, 36]
    assert len(dataset.test) == 2 + 3 + 4
    for group, value in enumerate((0.2, 0.3, 0.4)):
        assert np.allclose(dataset.train.inputs[dataset.groups == group], value)
    shards = deal(dataset, section(partition="natural"), 2, 0, seed=1)
    assert all(len(np.unique(shard.train.inputs)) == 1 for shard in shards)


def test_limit_keeps_each_samples_writer(tmp_path: Path) -> None:
    _write(tmp_path / "a.json", {"f1": 20, "f2": 30})
    dataset = load(section(name="femnist", path="a.json", limit=25), tmp_path, seed=1)
    assert dataset.groups is not None
    assert len(dataset.groups) == len(dataset.train) == 25
    assert np.allclose(dataset.train.inputs[:, 0, 0, 0], np.where(dataset.groups == 0, 0.2, 0.3))


def test_folders_of_train_and_test_are_the_parts(tmp_path: Path) -> None:
    _write(tmp_path / "train" / "a.json", {"f1": 9, "f2": 8})
    _write(tmp_path / "test" / "a.json", {"f1": 1, "f2": 2})
    dataset = load(section(name="femnist", path="."), tmp_path, seed=1)
    assert (len(dataset.train), len(dataset.test)) == (17, 3)


def test_other_inputs_stay_flat_and_a_writer_may_be_in_two_files(tmp_path: Path) -> None:
    data = {"w": {"x": [[1, 2, 3]], "y": [5]}, "empty": {"x": [], "y": []}}
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"users": ["w", "empty"], "user_data": data}))
    samples, groups = read_leaf(tmp_path)
    assert samples.inputs.shape == (2, 3)
    assert groups.tolist() == [0, 0]
    data["v"] = {"x": [[1, 2]], "y": [5]}
    (tmp_path / "c.json").write_text(json.dumps({"users": ["v"], "user_data": data}))
    with pytest.raises(DataError, match="inputs of different shapes"):
        read_leaf(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "lacks users or user_data"),
        ({"users": ["a"], "user_data": {}}, "lacks x and y of user a"),
        ({"users": [1], "user_data": {}}, "lacks x and y of user 1"),
        ({"users": ["a"], "user_data": {"a": {"x": [[1], [1, 2]], "y": [0, 0]}}}, "equally long"),
        ({"users": ["a"], "user_data": {"a": {"x": [["b"]], "y": [0]}}}, "equally long"),
        ({"users": ["a"], "user_data": {"a": {"x": [[1.0]], "y": [0, 1]}}}, "1 inputs but 2"),
        ({"users": ["a"], "user_data": {"a": {"x": [[1.0]], "y": [-1]}}}, "labels outside 0"),
        ({"users": [], "user_data": {}}, "holds no samples"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, content: Any, message: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError) as caught:
        load(section(name="femnist", path="."), tmp_path, seed=1)
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_a_folder_without_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \.json files"):
        load(section(name="femnist", path="."), tmp_path, seed=1)
    with pytest.raises(DataError, match="does not exist"):
        load(section(name="femnist", path="nope"), tmp_path, seed=1)
