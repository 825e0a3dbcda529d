"""Data in memory train like the same data in files, whatever holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import edgefed
from edgefed.data.base.types import Dataset, no_samples, take
from edgefed.errors import DataError, RecipeError, UsageError
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.files.samples import Samples
from tests.api.small import TEST, TRAIN, Arrays, arrays, images, npz, recipe


class Items:
    """A map-style data set that counts how often each item is read."""

    def __init__(self, inputs: Any, targets: Any) -> None:
        self.items = list(zip(inputs, targets, strict=True))
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> Any:
        self.reads.append(number)
        return self.items[number]


def digest(tables: Mapping[str, Any], **options: Any) -> str:
    return edgefed.simulate(tables, **options).weights_digest


def test_arrays_end_as_the_same_arrays_in_a_file(tmp_path: Path) -> None:
    inputs, targets = arrays(TRAIN)
    from_file = edgefed.simulate(recipe(data=npz(tmp_path)))
    here = edgefed.simulate(recipe(), data=(inputs, targets), test=arrays(TEST))
    assert here.weights_digest == from_file.weights_digest
    assert here.scores == from_file.scores
    assert here.recipe.data.name == "memory"
    assert here.recipe.name == "memory-fedavg"


def test_without_test_data_the_same_samples_are_held_out_as_of_a_file(tmp_path: Path) -> None:
    table = npz(tmp_path, tested=False)
    keys = {"test_share": 0.4}
    from_file = edgefed.simulate(recipe(data={**table, **keys}))
    here = edgefed.simulate(recipe(data=keys), data=arrays(TRAIN))
    assert (here.weights_digest, here.scores) == (from_file.weights_digest, from_file.scores)


def test_every_container_of_the_same_numbers_ends_alike() -> None:
    inputs, targets = arrays(TRAIN)
    tensors = torch.from_numpy(inputs), torch.from_numpy(targets)
    held = Dataset(TRAIN, TEST, 3, TRAIN.inputs.shape[1:])
    items = Items(tensors[0], targets.tolist())
    forms: list[Any] = [
        (inputs, targets),
        (inputs.tolist(), targets.tolist()),
        tensors,
        (tensors[0].requires_grad_(), tensors[1]),
        TensorDataset(*tensors),
        list(zip(inputs, targets, strict=True)),
        items,
        held,
    ]
    tables = recipe(data={"normalize": True, "limit": 20})
    digests = {digest(tables, data=form, test=arrays(TEST)) for form in forms}
    assert len(digests) == 1
    assert digest(tables, data=held) in digests, "its own test part is used"
    assert items.reads == list(range(len(inputs))), "each item is read once"


@pytest.mark.parametrize(
    ("channels", "keys"),
    [(1, {"normalize": True}), (3, {"transform": "rotation"})],
    ids=str,
)
def test_images_end_as_in_a_file_whatever_holds_them(
    channels: int, keys: dict[str, Any], tmp_path: Path
) -> None:
    pixels, labels = images(60, channels)
    flat = pixels[..., 0] if channels == 1 else pixels
    np.savez(tmp_path / "images.npz", x=pixels, y=labels)
    table = {"name": "npz", "path": str(tmp_path / "images.npz"), **keys}
    model = {"model": {"name": "cnn"}}
    wanted = digest(recipe(data=table, **model))
    pictures = [Image.fromarray(each) for each in flat]
    channels_first = np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
    floats = channels_first.astype(np.float32) / np.float32(255)
    for form in (
        (pixels, labels),
        (flat, labels),
        (channels_first, labels),
        (floats, labels),
        Items(pictures, labels),
        TensorDataset(torch.from_numpy(channels_first), torch.from_numpy(labels)),
    ):
        assert digest(recipe(data=keys, **model), data=form) == wanted


@pytest.mark.parametrize(("floats", "by_device"), [(False, True), (True, False)])
def test_the_coordinator_tests_images_as_the_run_scales_them(floats: bool, by_device: bool) -> None:
    (inputs, labels), (held, wanted) = images(48), images(15, seed=1)
    if floats:
        inputs, held = (np.moveaxis(each, 3, 1) / np.float32(255) for each in (inputs, held))
    half = (inputs[:24], labels[:24]), (inputs[24:], labels[24:])
    data: Any = dict(zip(("one", "two"), half, strict=True)) if by_device else (inputs, labels)
    scale = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.25, 0.3)}
    tables = recipe(images=scale, evaluation={"on": "coordinator"})
    result = edgefed.simulate(tables, data=data, test=(held, wanted))
    probabilities = result.model.predict(held).probabilities
    loss = -np.log(probabilities[np.arange(len(wanted)), wanted]).mean()
    assert result.scores["loss"] == pytest.approx(loss, rel=1e-4)


def test_images_of_a_palette_become_rgb() -> None:
    pixels, labels = images(60)
    few = [Image.fromarray(each).quantize(8) for each in pixels]
    assert {each.mode for each in few} == {"P"}
    colours = Items([each.convert("RGB") for each in few], labels)
    model = recipe(model={"name": "cnn"})
    assert digest(model, data=Items(few, labels)) == digest(model, data=colours)


def test_images_of_bytes_are_kept_as_bytes() -> None:
    from edgefed.api.recipe_source import recipe_of
    from edgefed.data.sets.given import given_data

    pixels, labels = images(60)
    plan = recipe_of(recipe(), {"data": {"name": "memory"}})
    dataset = given_data(Items([Image.fromarray(each) for each in pixels], labels), None, plan)
    kept = dataset.dataset.train
    assert kept.has_images
    assert kept.inputs.shape[1:] == (3, 8, 8)


def test_numbers_are_targets_too() -> None:
    inputs, _ = arrays(TRAIN)
    targets = inputs[:, :2].astype(np.float64)
    loss = {"training": {"loss": "squared_error", "learning_rate": 0.05}}
    result = edgefed.simulate(recipe(**loss), data=(inputs, targets))
    assert set(result.scores) >= {"loss"}
    assert result.weights["out.bias"].shape == (2,)


def split() -> dict[str, Arrays]:
    inputs, targets = arrays(TRAIN)
    return {
        name: (inputs[part], targets[part])
        for name, part in {
            "cam-b": slice(0, 15),
            "cam-a": slice(15, 25),
            "kitchen": slice(25, 60),
        }.items()
    }


def devices(result: edgefed.Result) -> dict[str, int]:
    """Return how many samples each device of a run has."""
    assert result.folder is not None
    builder = SnapshotBuilder(Snapshot())
    for line in (result.folder / "events.jsonl").read_text().splitlines():
        builder.apply(Event.from_flat(json.loads(line)))
    return {each.device: each.samples for each in builder.snapshot().devices}


def test_each_device_trains_on_its_own_data(tmp_path: Path) -> None:
    given = split()
    tables = recipe(simulation={"holdout": 0})
    result = edgefed.simulate(tables, data=given, test=arrays(TEST), folder=tmp_path)
    joined = devices(result)
    assert joined == {"cam-a": 10, "cam-b": 15, "kitchen": 35}
    assert result.recipe.simulation.devices == 3
    backwards = dict(reversed(given.items()))
    assert digest(tables, data=backwards, test=arrays(TEST)) == result.weights_digest
    assert digest(recipe(), data=backwards) == digest(recipe(), data=given), "held out alike"
    other = {**given, "cam-a": given["kitchen"], "kitchen": given["cam-a"]}
    assert digest(tables, data=other, test=arrays(TEST)) != result.weights_digest


def test_devices_test_on_what_they_hold_out_where_nobody_else_can() -> None:
    result = edgefed.simulate(recipe(), data=split())
    assert result.recipe.evaluation.on == "devices"
    assert result.scores["accuracy"] == result.scores["device_accuracy"]
    tested = edgefed.simulate(recipe(), data=split(), test=arrays(TEST))
    assert tested.recipe.evaluation.on is None
    assert "device_accuracy" not in tested.scores


def test_a_device_may_bring_test_data_of_its_own() -> None:
    hard = Samples(TEST.inputs, (TEST.targets + 1) % 3)
    shape = TRAIN.inputs.shape[1:]

    def parts(test: Samples) -> dict[str, Dataset]:
        return {
            name: Dataset(take(TRAIN, np.arange(start, start + 20)), test, 3, shape)
            for name, start in (("a", 0), ("b", 20))
        }

    tables = recipe(rounds={"count": 6}, training={"learning_rate": 0.3})
    easy, wrong = (edgefed.simulate(tables, data=parts(test)) for test in (TEST, hard))
    assert easy.weights_digest == wrong.weights_digest, "no sample is held out of training"
    assert easy.scores["accuracy"] > wrong.scores["accuracy"]
    untested = edgefed.simulate(tables, data=parts(no_samples(shape)))
    assert untested.weights_digest != easy.weights_digest, "samples are held out"


def test_the_names_of_classes_reach_the_model() -> None:
    class Named(Items):
        classes = ("cat", "dog", "owl")

    assert edgefed.simulate(recipe(), data=Named(*arrays(TRAIN))).model.labels == Named.classes
    own = recipe(data={"classes": ["x", "y", "z"]})
    assert edgefed.simulate(own, data=arrays(TRAIN)).model.labels == ("x", "y", "z")
    both: dict[str, Any] = {"a": Named(*arrays(TRAIN)), "b": Named(*arrays(TEST))}
    assert edgefed.simulate(recipe(), data=both).model.labels == Named.classes
    other = Named(*arrays(TEST))
    other.classes = ("cat", "owl", "dog")
    with pytest.raises(DataError) as told:
        edgefed.simulate(recipe(), data={"a": both["a"], "b": other})
    assert told.value.code == "data.classes"


class Stream:
    """A data set that can only be read from its beginning."""

    def __iter__(self) -> Iterator[Any]:
        return iter(zip(*arrays(TRAIN), strict=True))


class Broken(Items):
    def __getitem__(self, number: int) -> Any:
        if number == 3:
            raise OSError("disk on fire")
        return super().__getitem__(number)


X, Y = arrays(TRAIN)
PAIRS = list(zip(X, Y, strict=True))
UNEVEN = [(x, y) if number != 4 else (x[:5], y) for number, (x, y) in enumerate(PAIRS)]
BAD: dict[str, tuple[Any, type[edgefed.EdgeFedError], str]] = {
    "stream": (Stream(), UsageError, "cannot be a Stream"),
    "loader": (DataLoader(TensorDataset(torch.zeros(1, 2))), UsageError, "a DataLoader"),
    "text": ("data.npz", UsageError, "cannot be a str"),
    "one array": (X, UsageError, "cannot be a ndarray"),
    "triple": ((X, Y, X), UsageError, "cannot be a tuple"),
    "lengths": ((X, Y[:-1]), DataError, "60 inputs but 59 labels"),
    "labels": ((X, Y - 1), DataError, "labels outside 0"),
    "nan": ((np.where(X > 2, np.nan, X), Y), DataError, "not a finite number"),
    "words": ((np.array(["a"] * 60), Y), DataError, "not numbers"),
    "empty": ((X[:0], Y[:0]), DataError, "no samples"),
    "no items": ([], DataError, "no samples"),
    "broken": (Broken(X, Y), DataError, "cannot read sample 3: OSError: disk on fire"),
    "uneven": (UNEVEN, DataError, "(5,) in sample 4"),
    "no pairs": (list(X), DataError, "a ndarray for sample 0, not a pair"),
    "no devices": ({}, UsageError, "no device"),
    "name": ({"Kitchen cam": (X, Y)}, UsageError, "'Kitchen cam' cannot be the name"),
    "shapes": ({"a": (X, Y), "b": (X[:, :4], Y)}, DataError, "inputs of shape (8,) but"),
    "targets": ({"a": (X, Y), "b": (X, X)}, DataError, "targets of type int64"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_data_is_told(case: str) -> None:
    data, error, words = BAD[case]
    with pytest.raises(error) as told:
        edgefed.simulate(recipe(), data=data)
    assert words in told.value.message
    assert told.value.code


def test_what_cannot_be_combined_is_refused() -> None:
    with pytest.raises(UsageError, match="without data"):
        edgefed.simulate(recipe(), test=arrays(TEST))
    with pytest.raises(RecipeError, match=r"data\.limit cannot"):
        edgefed.simulate(recipe(data={"limit": 5}), data=split())
    with pytest.raises(RecipeError, match=r"data\.path: unknown key"):
        edgefed.simulate(recipe(data={"name": "npz", "path": "x"}), data=arrays(TRAIN))
    with pytest.raises(DataError, match="shape"):
        edgefed.simulate(recipe(), data=arrays(TRAIN), test=(TEST.inputs[:, :3], TEST.targets))


def test_the_callers_arrays_stay_as_they_are() -> None:
    pixels, labels = images(60)
    before = pixels.copy(), labels.copy()
    edgefed.simulate(recipe(model={"name": "cnn"}), data=(pixels, labels))
    assert np.array_equal(pixels, before[0])
    assert np.array_equal(labels, before[1])
