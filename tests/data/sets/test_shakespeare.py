"""Texts by role as tokens and next characters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.data.base.alphabets import LEAF, alphabet_of
from edgefed.data.devices.partition import deal
from edgefed.data.devices.shard_files import read_shard, write_shard
from edgefed.data.devices.sources import load_device
from edgefed.data.sets.datasets import load
from edgefed.errors import DataError, RecipeError
from tests.data.helpers import section, write_npz

TEXT = "To be, or not to be: that is the question.\n"


def _write(path: Path, roles: dict[str, str]) -> None:
    lines = (json.dumps({"role": role, "play": "p", "text": text}) for role, text in roles.items())
    path.write_text("\n".join(lines) + "\n")


def _text(tokens: object) -> str:
    return "".join(LEAF[token] for token in np.asarray(tokens).tolist())


def test_the_alphabets_have_the_papers_sizes() -> None:
    assert len(set(LEAF)) == len(LEAF) == 80
    assert [alphabet_of(name, ["abca"]).size for name in ("80", "84", "data")] == [80, 84, 3]


@settings(max_examples=20, deadline=None)
@given(st.text(alphabet=LEAF, max_size=50))
def test_what_is_in_the_alphabet_reads_back(text: str) -> None:
    tokens, strange = alphabet_of("80", []).encode(text)
    assert _text(tokens) == text
    assert strange == 0


def test_what_is_not_in_it_is_a_space_or_a_number_of_its_own() -> None:
    for name, wanted in (("80", LEAF.index(" ")), ("84", 81)):
        tokens, strange = alphabet_of(name, []).encode("a$𝄞\ud800")  # type: ignore[arg-type]
        assert tokens.tolist() == [LEAF.index("a"), *[wanted] * 3]
        assert strange == 3


def test_a_window_is_followed_by_its_label_and_the_end_is_for_testing(tmp_path: Path) -> None:
    _write(tmp_path / "a.jsonl", {"hamlet": TEXT * 3, "ophelia": TEXT * 2, "guard": "Who?"})
    keys = section(name="shakespeare", path="a.jsonl", window=8, partition="natural")
    dataset = load(keys, tmp_path, seed=1)
    assert dataset.train.inputs.dtype == np.int64
    assert (dataset.classes, dataset.shape) == (80, (8,))
    # Four fifths of 129 and of 86 characters, less a window each: as many starts.
    assert len(dataset.train) == (129 - 25 - 8) + (86 - 17 - 8)
    assert len(dataset.test) == (25 - 8) + (17 - 8)
    assert _text(dataset.train.inputs[0]) + _text([dataset.train.targets[0]]) == TEXT[:9]
    assert _text(dataset.test.inputs[0]) == (TEXT * 3)[104:112]
    assert dataset.groups is not None
    assert np.bincount(dataset.groups).tolist() == [96, 61]
    assert "too short for a sample: 1" in dataset.warnings[0]
    shards = deal(dataset, keys, 2, 0, seed=1)
    assert sorted(len(shard.train) for shard in shards) == [61, 96]


def test_a_devices_samples_keep_the_order_of_the_text_where_it_is_wanted(tmp_path: Path) -> None:
    _write(tmp_path / "a.jsonl", {"hamlet": TEXT * 3, "ophelia": TEXT * 4})
    keys = section(name="shakespeare", path="a.jsonl", window=8, partition="natural")
    dataset = load(keys, tmp_path, seed=1)
    ordered = deal(dataset, keys, 2, 0, seed=1, in_order=True)
    for shard in ordered:
        first = shard.train.inputs[:, 0]
        assert _text(first[:20]) == TEXT[:20]
        assert _text(first) == (TEXT * 4)[: len(first)]
    shuffled = deal(dataset, keys, 2, 0, seed=1)
    for shard, other in zip(ordered, shuffled, strict=True):
        assert len(shard.train) == len(other.train)
        assert not np.array_equal(shard.train.inputs, other.train.inputs)


def test_stride_and_roles_keep_it_small(tmp_path: Path) -> None:
    _write(tmp_path / "a.jsonl", {"short": TEXT, "long": TEXT * 9, "longer": TEXT * 10})
    keys = {"name": "shakespeare", "path": "a.jsonl", "window": 8, "stride": 10}
    some = load(section(**keys, roles=1, min_samples=20), tmp_path, seed=1)
    assert len(some.train) == -(-(387 - 77 - 8) // 10)
    assert _text(some.train.inputs[1]) == TEXT[10:18]
    with pytest.raises(DataError, match=r"2 roles with at least 20 samples .* of 3 wanted"):
        load(section(**keys, roles=3, min_samples=20), tmp_path, seed=1)


def test_a_folder_of_texts_has_a_role_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "b.txt").write_text(TEXT)
    (tmp_path / "a.txt").write_text("x" * 40)
    dataset = load(section(name="shakespeare", path=".", window=8), tmp_path, seed=1)
    assert dataset.groups is not None
    assert set(_text(dataset.train.inputs[dataset.groups == 0][0])) == {"x"}
    alone = load(section(name="shakespeare", path="a.txt", window=8), tmp_path, seed=1)
    assert len(alone.train) == 40 - 8 - 8


def test_tokens_stay_integers_in_a_shard_and_on_a_device(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 3)
    keys = section(name="shakespeare", path="a.txt", window=8, partition="iid")
    shard = deal(load(keys, tmp_path, seed=1), keys, 2, 0.2, seed=1)[0]
    path = tmp_path / "shard.npz"
    write_shard(path, shard)
    device = load_device(f"npz:{path}", holdout=0.1)
    for part, wanted in ((device.train, shard.train), (read_shard(path).test, shard.test)):
        assert part.inputs.dtype == np.int64
        assert np.array_equal(part.inputs, wanted.inputs)
    assert (device.classes, device.shape) == (80, (8,))
    own = load_device(f"text:{tmp_path / 'a.txt'}?window=8&alphabet=84&stride=2", holdout=0.5)
    assert own.train.inputs.dtype == np.int64
    assert (own.classes, own.name) == (84, "a")
    assert len(own.train) == -(-(129 - 64 - 8) // 2)


def test_tokens_cannot_be_normalised_or_cropped(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 3)
    for key, message in (("normalize", "tokens of a text"), ("flip", "no images")):
        keys = section(name="shakespeare", path="a.txt", window=8, **{key: True})
        with pytest.raises(RecipeError, match=message):
            load(keys, tmp_path, seed=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no texts"),
        (b"hello\n", "line 1, is not a record"),
        (b'{"role": "a"}\n', "line 1, is not a record"),
        (b'{"role": "a", "text": "b"}\n[]\n', "line 2, is not a record"),
        (b'{"role": "a", "text": "too short"}\n', "0 roles with at least 1 samples"),
        (b"\xff\xfe", "is not text in UTF-8"),
    ],
)
def test_what_is_wrong_with_the_file_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(section(name="shakespeare", path="a.jsonl"), tmp_path, seed=1)
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_empty_and_missing_texts_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no texts"):
        load(section(name="shakespeare", path="."), tmp_path, seed=1)
    with pytest.raises(DataError, match="does not exist"):
        load(section(name="shakespeare", path="nope.txt"), tmp_path, seed=1)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(DataError, match="texts are empty"):
        load(section(name="shakespeare", path="a.txt", alphabet="data"), tmp_path, seed=1)


@pytest.mark.parametrize(
    ("x", "vocabulary", "message"),
    [
        (np.array([[0, 5]]), 5, "tokens outside 0 to 4"),
        (np.array([[-1, 1]]), 5, "tokens outside 0 to 4"),
        (np.array([[0.0, 1.0]]), 5, "tokens of type float64"),
        (np.array([[0, 1]]), 5.0, "`vocabulary` of type float64"),
    ],
)
def test_tokens_of_a_file_are_checked(
    tmp_path: Path, x: object, vocabulary: object, message: str
) -> None:
    path = write_npz(tmp_path / "a.npz", x=x, y=np.array([1]), vocabulary=vocabulary)
    with pytest.raises(DataError) as caught:
        load_device(f"npz:{path}", holdout=0)
    assert message in caught.value.message
