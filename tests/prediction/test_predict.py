"""Arrays of all kinds and image files become predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from edgefed.data.base.preparation import stored_preparation
from edgefed.data.base.types import Preparation
from edgefed.errors import DataError
from edgefed.learn.training.trainer import Trainer
from edgefed.prediction.answers import answers
from edgefed.prediction.inputs_found import find_inputs
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from tests.prediction.model_files import OWN, SCALE, described, model_file, network, reference

RNG = np.random.default_rng(5)
PHOTOS = RNG.integers(0, 256, (5, 32, 32, 3), np.uint8)


def expected(photos: Any) -> Any:
    """What training's network says of uint8 photos (n, height, width, 3)."""
    description = described()
    inputs = SCALE.inputs(np.ascontiguousarray(photos.transpose(0, 3, 1, 2)))
    return reference(description, network(description)[1], inputs)


@pytest.mark.parametrize("name", OWN)
def test_every_network_predicts_what_training_evaluates(tmp_path: Path, name: str) -> None:
    description = described(name)
    own, weights = network(description)
    made = load_model(model_file(tmp_path, name), device="cpu")
    if own.vocabulary is None:
        inputs: Any = RNG.standard_normal((6, *description.shape), np.float32)
    else:
        inputs = RNG.integers(0, own.vocabulary, (6, *description.shape))
    scores = torch.from_numpy(Trainer(own, "cpu").predict(weights, inputs))
    right = torch.softmax(scores, dim=1).numpy()
    found = made.predict(inputs).probabilities
    assert right.std(axis=0).max() > 1e-3
    assert np.allclose(found, right, atol=1e-6)


def test_images_are_scaled_as_in_training(model: LoadedModel) -> None:
    right = expected(PHOTOS)
    assert np.allclose(model.predict(PHOTOS).probabilities, right, atol=1e-6)
    first = model.predict(PHOTOS.transpose(0, 3, 1, 2)).probabilities
    assert np.allclose(first, right, atol=1e-6)
    floats = SCALE.inputs(PHOTOS.transpose(0, 3, 1, 2))
    assert np.allclose(model.predict(floats).probabilities, right, atol=1e-6)
    shares = PHOTOS.transpose(0, 3, 1, 2) / np.float32(255)
    for kind in (np.float32, np.float64):
        found = model.predict(shares.astype(kind), batch=2).probabilities
        assert np.allclose(found, right, atol=1e-6)
    assert shares.max() <= 1, "what was given stays as it is"


def test_pixels_of_a_file_are_scaled_as_in_training(model: LoadedModel, tmp_path: Path) -> None:
    shares = np.ascontiguousarray(PHOTOS.transpose(0, 3, 1, 2)) / np.float32(255)
    raw, dim = {"x": shares}, {"x": shares * np.float32(0.5), "preparation": stored()}
    probabilities = []
    for number, arrays in enumerate((raw, dim)):
        np.savez(tmp_path / f"{number}.npz", **arrays)
        found = find_inputs([tmp_path / f"{number}.npz"], model.labels)
        rows = [each.outputs for part in answers(model, found, 2) for each in part]
        probabilities.append(np.stack([each for each in rows if each is not None]))
    assert np.allclose(probabilities[0], expected(PHOTOS), atol=1e-6)
    description = described()
    finished = reference(description, network(description)[1], dim["x"])
    assert np.allclose(probabilities[1], finished, atol=1e-6), "the file says it is scaled"


def test_samples_for_training_are_predicted_where_a_file_holds_out_none(
    model: LoadedModel, tmp_path: Path
) -> None:
    pixels = PHOTOS.transpose(0, 3, 1, 2)
    np.savez(tmp_path / "shard.npz", x_train=pixels, x_test=pixels[:0])
    assert find_inputs([tmp_path / "shard.npz"], model.labels).count == len(PHOTOS)
    np.savez(tmp_path / "none.npz", x_train=pixels[:0], x_test=pixels[:0])
    with pytest.raises(DataError, match="or the arrays no rows"):
        find_inputs([tmp_path / "none.npz"], model.labels)


def stored() -> Any:
    return stored_preparation(Preparation((0.0,), (2.0,)))


def test_images_of_other_sizes_and_modes_are_converted(model: LoadedModel, tmp_path: Path) -> None:
    photos = RNG.integers(0, 256, (2, 51, 40, 3), np.uint8)
    small = [Image.fromarray(each).resize((32, 32), Image.Resampling.BILINEAR) for each in photos]
    right = expected(np.stack([np.asarray(each) for each in small]))
    assert np.allclose(model.predict(photos).probabilities, right, atol=1e-6)
    first = model.predict(photos.transpose(0, 3, 1, 2)).probabilities
    assert np.allclose(first, right, atol=1e-6)
    grey = RNG.integers(0, 256, (2, 32, 32), np.uint8)
    right = expected(np.repeat(grey[..., None], 3, axis=3))
    for each in (grey, grey[..., None], grey[:, None]):
        assert np.allclose(model.predict(each).probabilities, right, atol=1e-6)
    Image.fromarray(grey[0]).save(tmp_path / "grey.png")
    found = model.predict(tmp_path / "grey.png").probabilities
    assert np.allclose(found, right[:1], atol=1e-6)


def test_a_grey_model_takes_photos_in_colour(tmp_path: Path) -> None:
    model = load_model(model_file(tmp_path, "lenet5"), device="cpu")
    photo = RNG.integers(0, 256, (40, 30, 3), np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    wanted = Image.fromarray(photo).convert("L").resize((28, 28), Image.Resampling.BILINEAR)
    right = model.predict(np.asarray(wanted)[None]).probabilities
    assert np.allclose(model.predict(photo[None]).probabilities, right, atol=1e-7)
    assert np.allclose(model.predict(str(tmp_path / "photo.png")).probabilities, right, atol=1e-7)


def test_a_network_of_non_square_images(tmp_path: Path) -> None:
    model = load_model(model_file(tmp_path, shape=(3, 24, 16)), device="cpu")
    photo = RNG.integers(0, 256, (50, 60, 3), np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    wanted = np.asarray(Image.fromarray(photo).resize((16, 24), Image.Resampling.BILINEAR))
    right = model.predict(wanted[None]).probabilities
    assert np.allclose(model.predict([tmp_path / "photo.png"]).probabilities, right, atol=1e-7)


def test_batches_do_not_change_predictions(model: LoadedModel) -> None:
    whole = model.predict(PHOTOS).probabilities
    assert np.allclose(model.predict(PHOTOS, batch=2).probabilities, whole, atol=1e-6)
    assert model.predict(PHOTOS[:0]).probabilities.shape == (0, 3)
    assert model.predict([]).probabilities.shape == (0, 3)


def test_the_best_classes_come_first(model: LoadedModel) -> None:
    found = model.predict(PHOTOS)
    for row, guesses, label in zip(found.probabilities, found.top(2), found.labels, strict=True):
        order = np.argsort(row)[::-1]
        assert [each.label for each in guesses] == [model.labels[k] for k in order[:2]]
        assert guesses[0].probability == pytest.approx(row.max())
        assert guesses[0].label == label
    assert len(found.top(9)[0]) == 3


def test_a_model_of_squared_error_predicts_numbers(tmp_path: Path) -> None:
    description = described("mlp", outputs=2, class_names=(), loss="squared_error")
    own, weights = network(description)
    model = load_model(
        model_file(tmp_path, "mlp", outputs=2, class_names=(), loss="squared_error"), device="cpu"
    )
    inputs = RNG.standard_normal((4, *description.shape), np.float32)
    found = model.predict(inputs)
    assert np.allclose(found.outputs, Trainer(own, "cpu").predict(weights, inputs), atol=1e-5)
    assert model.labels == ()
    with pytest.raises(DataError) as caught:
        found.top(1)
    assert caught.value.code == "predict.numbers"


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        (np.zeros((2, 5), np.float32), "predict.input"),
        (np.zeros((2, 32, 32, 3), np.float32), "predict.input"),
        (np.zeros((2, 32, 32, 5), np.uint8), "predict.input"),
        (np.zeros((2, 0, 32, 3), np.uint8), "predict.input"),
        (np.zeros((), np.uint8), "predict.input"),
        (np.array(["a"]), "predict.input"),
        (np.full((1, 3, 32, 32), np.nan, np.float32), "data.not_finite"),
        ("none.png", "data.missing"),
        pytest.param(__file__, "data.unreadable", id="no-image"),
    ],
)
def test_what_a_model_cannot_take(model: LoadedModel, inputs: Any, code: str) -> None:
    with pytest.raises(DataError) as caught:
        model.predict(inputs)
    assert caught.value.code == code


def test_tokens_must_be_known(tmp_path: Path) -> None:
    model = load_model(model_file(tmp_path, "lstm"), device="cpu")
    tokens = RNG.integers(0, 9, (3, 7))
    right = model.predict(tokens).probabilities
    small = model.predict(tokens.astype(np.uint8)).probabilities
    assert np.array_equal(small, right)
    with pytest.raises(DataError) as caught:
        model.predict(tokens + 8)
    assert caught.value.code == "data.tokens"
    with pytest.raises(DataError, match="takes no images"):
        model.predict("photo.png")
