"""Data sets by name, and their keys."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.devices.partition import PARTITIONS
from edgefed.data.sets.datasets import dataset_names, load
from edgefed.errors import RecipeError
from tests.data.helpers import section, write_npz


def test_the_names_are_those_that_the_recipe_documents() -> None:
    told = DataSection.model_fields["name"].description or ""
    assert set(re.findall(r"``([^`:]+)``", told)) == set(dataset_names())


def test_the_partitions_are_those_that_the_recipe_documents() -> None:
    told = DataSection.model_fields["partition"].description or ""
    assert set(re.findall(r"``([^`:]+)``", told)) == set(PARTITIONS)


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        ({"name": "digitz"}, "no data set 'digitz'", "did you mean 'digits'?"),
        ({"name": "digits", "limt": 5}, "no key 'limt'", "did you mean 'limit'?"),
        ({"name": "none", "zzz": 5}, "no key 'zzz'", "choose from: shape"),
        ({"name": "npz"}, "'path' cannot be used: Field required", "file or folder"),
        ({"name": "npz", "path": "x", "test_share": 1}, "'test_share'", "Fraction held out"),
        ({"name": "folder", "path": "x", "size": -1}, "'size'", "Height and width"),
    ],
)
def test_wrong_keys_are_refused_and_explained(
    keys: dict[str, object], message: str, hint: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        load(section(**keys), None, seed=1)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.code == "recipe.data"


def test_none_has_no_samples_but_may_say_what_devices_hold() -> None:
    dataset = load(section(name="none", classes=4, shape=[3, 8, 8]), None, seed=1)
    assert (len(dataset.train), len(dataset.test)) == (0, 0)
    assert (dataset.classes, dataset.shape) == (4, (3, 8, 8))
    assert dataset.train.inputs.shape == (0, 3, 8, 8)
    assert load(section(name="none"), None, seed=1).classes == 0


def test_limit_keeps_a_draw_of_the_runs_seed_and_leaves_the_test_part(tmp_path: Path) -> None:
    x = np.arange(50, dtype=np.float32)[:, None]
    write_npz(tmp_path / "a.npz", x=x, y=np.arange(50) % 5)
    keys = {"name": "npz", "path": "a.npz"}
    whole = load(section(**keys), tmp_path, seed=1)
    some, same, other = (load(section(**keys, limit=15), tmp_path, seed=seed) for seed in (1, 1, 2))
    assert len(some.train) == 15
    assert set(some.train.inputs[:, 0]) < set(whole.train.inputs[:, 0])
    assert np.array_equal(some.test.inputs, whole.test.inputs)
    assert np.array_equal(some.train.inputs, same.train.inputs)
    assert not np.array_equal(some.train.inputs, other.train.inputs)
    labels = some.train.inputs[:, 0].astype(int) % 5
    assert np.array_equal(labels, some.train.targets)


def test_samples_and_data_sets_are_equal_only_to_themselves() -> None:
    one, other = (load(section(name="none"), None, seed=1) for _ in range(2))
    assert len({one, other, one}) == 2
    assert one.train != other.train
