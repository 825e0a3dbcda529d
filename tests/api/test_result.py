"""The result of a simulation: scores, weights, file, and a model that predicts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import edgefed
from edgefed.errors import StorageError
from tests.api.small import TEST, TRAIN, arrays, images, recipe


@pytest.fixture(scope="module")
def result() -> edgefed.Result:
    tables = recipe(rounds={"count": 3}, training={"learning_rate": 0.3})
    return edgefed.simulate(tables, data=arrays(TRAIN), test=arrays(TEST))


def test_it_says_in_one_line_what_came_out(result: edgefed.Result) -> None:
    accuracy, loss = result.scores["accuracy"], result.scores["loss"]
    digest = result.weights_digest[:12]
    told = f"3 rounds, accuracy {accuracy:.4g}, loss {loss:.4g}, digest {digest}"
    assert repr(result) == f"<Result memory-fedavg: {told}>"


def test_it_can_be_written_as_json(result: edgefed.Result) -> None:
    told = json.loads(json.dumps(result.to_json()))
    assert told["weights_digest"] == result.weights_digest
    assert (told["accuracy"], told["rounds"]) == (result.scores["accuracy"], 3)
    told["status"] = "changed"
    assert result.to_json()["status"] == "finished"
    assert json.loads(json.dumps(result.rounds))[-1]["loss"] == result.scores["loss"]


def test_it_cannot_be_changed(result: edgefed.Result) -> None:
    with pytest.raises(AttributeError):
        result.weights_digest = ""  # type: ignore[misc]


def test_the_saved_file_describes_the_model(result: edgefed.Result, tmp_path: Path) -> None:
    path = result.save(str(tmp_path / "new" / "model.safetensors"))
    with safe_open(path, "np") as file:
        assert set(file.keys()) == set(result.weights)
        metadata = file.metadata()
    assert metadata["weights_digest"] == result.weights_digest
    assert metadata["round"] == "3"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        result.save(tmp_path / "file" / "model.safetensors")


def test_the_model_predicts_as_it_was_tested(result: edgefed.Result, tmp_path: Path) -> None:
    inputs, targets = arrays(TEST)
    for model in (result.model, edgefed.load_model(result.save(tmp_path / "m.safetensors"))):
        found = model.predict(inputs)
        right = np.mean(found.probabilities.argmax(axis=1) == targets)
        assert right == pytest.approx(result.scores["accuracy"])
    assert result.model is result.model


def test_a_model_of_images_takes_their_bytes() -> None:
    pixels, labels = images(60)
    result = edgefed.simulate(recipe(model={"name": "cnn"}), data=(pixels, labels))
    floats = np.moveaxis(pixels, -1, 1).astype(np.float32) / 255
    found = result.model.predict(pixels).probabilities
    np.testing.assert_allclose(found, result.model.predict(floats).probabilities, atol=1e-5)


def test_a_model_of_a_users_own_code_predicts() -> None:
    own = recipe(model={"name": "tests.api.own_model:make"})
    result = edgefed.simulate(own, data=arrays(TRAIN))
    assert result.model.predict(TEST.inputs).probabilities.shape == (15, 3)


@pytest.mark.parametrize("on", ["coordinator", "devices"])
def test_numbers_of_a_users_own_loss_are_predicted_as_they_are(on: str) -> None:
    inputs = TRAIN.inputs
    numbers = np.stack([inputs.sum(axis=1), -inputs[:, 0]], axis=1).astype(np.float32) + 20
    own = {"loss": "tests.learn.own_functions:huber", "learning_rate": 0.3}
    data = {"test_share": 0.2 if on == "coordinator" else 0.0}
    held = {"evaluation": {"on": on}, "simulation": {"holdout": 0.3}}
    ended = edgefed.simulate(recipe(training=own, data=data, **held), data=(inputs, numbers))
    model = ended.model
    outputs = model.predict(inputs[:5]).outputs
    assert model.labels == ()
    assert np.abs(outputs.sum(axis=1) - 1).min() > 0.05, "no probabilities"


def test_labels_of_a_users_own_loss_are_classes() -> None:
    own = {"loss": "tests.learn.own_functions:focal"}
    ended = edgefed.simulate(recipe(training=own), data=arrays(TRAIN))
    assert ended.model.labels == ("0", "1", "2")
