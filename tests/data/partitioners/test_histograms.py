"""The partition ``histograms``: counts of a file, samples dealt in turn, and unusable files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edgefed.config.recipes.recipe import DataSection
from edgefed.data.base.types import Indices
from edgefed.data.devices.partition import partition
from edgefed.data.partitioners.cover import Cover, check_parts
from edgefed.data.partitioners.histograms import histograms
from edgefed.errors import DataError

LABELS = np.repeat(np.arange(3), 10)


@settings(max_examples=30, deadline=None)
@given(arrays(np.int64, (4, 3), elements=st.integers(0, 14)), st.integers(0, 2**32))
def test_devices_have_their_counts_and_share_no_sample_while_they_suffice(
    counts: Indices, seed: int
) -> None:
    parts = histograms(LABELS, counts, np.random.default_rng(seed))
    held = np.array([np.bincount(LABELS[part], minlength=3) for part in parts])
    assert np.array_equal(held, np.minimum(counts, 10))
    check_parts(parts, LABELS, Cover.SHARED)
    for label in range(3):
        taken = np.concatenate([part[LABELS[part] == label] for part in parts])
        assert len(np.unique(taken)) == min(10, held[:, label].sum())


def _dealt(file: Path, text: str, devices: int = 2) -> tuple[Indices, ...]:
    file.write_text(text)
    section = DataSection.model_validate({"partition": "histograms", "histograms": str(file)})
    return partition(section, LABELS, devices, 3, np.random.default_rng(0))


def test_the_counts_come_from_the_file_of_the_recipe(tmp_path: Path) -> None:
    parts = _dealt(tmp_path / "h.csv", "device,0,1,2\na,1,2,3\nb,0,0,4\n")
    assert [np.bincount(LABELS[part], minlength=3).tolist() for part in parts] == [
        [1, 2, 3],
        [0, 0, 4],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns are not device, 0, 1, 2"),
        ("device,1,0\na,1,2\nb,1,2\n", "columns are not device, 0, 1, 2"),
        ("device,0\na,1\n", "it has 1 devices, and the simulation 2"),
        ("device,0\na,1\nb,-1\n", "a cell is negative or missing"),
        ("device,0\na,1\nb,many\n", "invalid literal"),
        ("device,0,1,2,3\na,1,0,0,0\nb,0,0,0,5\n", "no sample of label 3"),
    ],
)
def test_an_unusable_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as raised:
        _dealt(tmp_path / "h.csv", text)
    assert raised.value.code == "data.histograms"


def test_a_missing_file_is_one_clear_error() -> None:
    section = DataSection.model_validate({"partition": "histograms"})
    with pytest.raises(DataError, match="cannot be read: no file is named"):
        partition(section, LABELS, 2, 3, np.random.default_rng(0))
