"""The test of an offered model on held-out samples, and the files that are written of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_agent.tasks import model_check
from device_agent.tasks.model_check import check_model
from device_agent.tasks.training_messages import ModelChecked, ModelTest
from edgefed.data.base.types import DeviceData
from edgefed.files.samples import Samples
from edgefed.learn.training.trainer import Stopped
from edgefed.prediction.export import torch_run
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from tests.prediction.model_files import COLOUR, NAMES, described, model_file, network, write_model

COUNT = 100

TRTEXEC = """#!/bin/sh
# A stand-in for NVIDIA's trtexec: it writes its arguments where the engine would be.
for word; do
  case "$word" in --saveEngine=*) out="${word#*=}";; --onnx=*) test -s "${word#*=}" || exit 9;; esac
done
echo "$@" > "$out"
echo "no such layer"
exit $CODE
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return model_file(tmp_path)


def board(model: Path, right: int = 80, **changes: Any) -> DeviceData:
    """Return a device whose held-out images the model predicts right in so many of 100 cases."""
    rng = np.random.default_rng(2)
    images = rng.integers(0, 64, (COUNT, *COLOUR), np.uint8)
    images += rng.integers(0, 192, (COUNT, COLOUR[0], 1, 1), np.uint8)
    targets = load_model(model, device="cpu").predict(images).classes
    assert len(set(targets)) > 1
    targets[right:] = (targets[right:] + 1) % len(NAMES)
    test = Samples(images, targets)
    return replace(DeviceData(test, test, 3, COLOUR, "npz", class_names=NAMES), **changes)


def order(folder: Path, model: Path, **changes: Any) -> ModelTest:
    (folder / "draft").mkdir(exist_ok=True)
    made = ModelTest("m-00.0", str(model), "", str(folder / "draft"), ("safetensors",), 0.01)
    return replace(made, **changes)


def check(test: ModelTest, data: DeviceData) -> ModelChecked:
    return check_model(test, data, user_models=False, stop=lambda: False)


def test_a_first_model_is_taken_with_its_score(tmp_path: Path, model: Path) -> None:
    checked = check(order(tmp_path, model), board(model))
    assert (checked.outcome, checked.reason, checked.metric) == ("installed", "", "accuracy")
    assert (checked.score, checked.before) == (0.8, None)
    assert checked.description["files"] == {"safetensors": "model.safetensors"}
    assert checked.description["labels"] == list(NAMES)
    assert (tmp_path / "draft" / "model.safetensors").read_bytes() == model.read_bytes()


def test_a_model_that_is_worse_by_more_than_the_tolerance_is_refused(
    tmp_path: Path, model: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = model_file(tmp_path / "other", class_names=("cat", "ant", "bee"))  # the same weights
    data = board(other, right=COUNT, class_names=("cat", "ant", "bee"))
    worse = check(order(tmp_path, model, current=str(other)), data)
    assert (worse.outcome, worse.before) == ("refused", 1.0)
    assert worse.score is not None and worse.score < 0.5, "labels are numbered after each model"
    assert (
        worse.reason
        == f"its accuracy is {worse.score:.4g} on 1 before, and model_tolerance is 0.01"
    )
    better = check(order(tmp_path, other, current=str(model)), data)
    assert (better.outcome, better.score, better.before) == ("installed", 1.0, worse.score)
    tolerant = order(tmp_path, model, current=str(other), tolerance=1.0)
    assert check(tolerant, data).outcome == "installed"
    gone = check(order(tmp_path, model, current=str(tmp_path / "none")), data)
    assert (gone.outcome, gone.before) == ("installed", None), "a lost model holds nobody up"


def test_a_model_of_numbers_is_compared_by_its_error(tmp_path: Path) -> None:
    description = described("mlp", shape=(4,), loss="squared_error", class_names=())
    _, weights = network(description)
    model = write_model(tmp_path / "model.safetensors", description, weights)
    inputs = np.random.default_rng(1).standard_normal((COUNT, 4)).astype(np.float32)
    exact = load_model(model, device="cpu").compute(inputs)
    off = {name: array * np.float32(1.2) for name, array in weights.items()}
    other = write_model(tmp_path / "other.safetensors", description, off)
    samples = Samples(inputs, exact + np.float32(0.5))
    data = DeviceData(samples, samples, 3, (4,), "npz")
    better = check(order(tmp_path, model, current=str(other)), data)
    assert better.outcome == "installed"
    assert better.metric == "mean squared error"
    assert better.score == pytest.approx(0.25)
    worse = check(order(tmp_path, other, current=str(model)), data)
    assert (worse.outcome, worse.before) == ("refused", better.score)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"test": Samples(np.zeros((0, *COLOUR), np.uint8), np.zeros(0, np.int64))},
            "holds out no",
        ),
        ({"shape": (1, 8, 8)}, "its inputs are (1, 8, 8), and the model's (3, 32, 32)"),
        ({"class_names": ("ant", "bee", "dog")}, "classes that the model does not know: 'dog'"),
        (
            {"test": Samples(np.zeros((1, *COLOUR), np.uint8), np.array([3])), "class_names": ()},
            "its targets do not fit the model's 3 outputs",
        ),
    ],
)
def test_samples_that_cannot_test_a_model_refuse_it(
    tmp_path: Path, model: Path, changes: dict[str, Any], reason: str
) -> None:
    checked = check(order(tmp_path, model), board(model, **changes))
    assert (checked.outcome, checked.score) == ("refused", None)
    assert reason in checked.reason


def test_a_file_that_is_no_model_fails_and_nothing_of_it_is_executed(
    tmp_path: Path, model: Path
) -> None:
    (tmp_path / "broken").write_bytes(model.read_bytes()[:-4])
    checked = check(order(tmp_path, tmp_path / "broken"), board(model))
    assert (checked.outcome, "[model.file]" in checked.reason) == ("failed", True), checked.reason
    own = described()
    section = own.section.model_copy(update={"name": "os:abort"})
    code = write_model(
        tmp_path / "code.safetensors", replace(own, section=section), network(own)[1]
    )
    checked = check(order(tmp_path, code), board(model))
    assert (checked.outcome, "[model.refused]" in checked.reason) == ("failed", True), (
        checked.reason
    )


def test_a_check_is_given_up_for_a_task(tmp_path: Path, model: Path) -> None:
    with pytest.raises(Stopped):
        check_model(order(tmp_path, model), board(model), user_models=False, stop=lambda: True)


def program(model: LoadedModel, form: str, path: Path, *, resize: bool = True) -> dict[str, Any]:
    """Stand in for the export to ONNX, which takes 10 s of CPU time."""
    assert (form, resize) == ("onnx", False), "TensorRT has no float64, which scaling needs"
    path.write_text("a program")
    return {"input": "images", "input_shape": ["batch", 32, 32, 3]}


def test_an_engine_is_built_where_the_program_for_it_is(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder is a stand-in: no engine was built on a real board."""
    monkeypatch.setattr(model_check, "export_model", program)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CODE", "0")
    built = order(tmp_path, model, formats=("tensorrt",))
    assert set(check(built, board(model)).description["files"]) == {"safetensors"}

    builder = tmp_path / "trtexec"
    builder.write_text(TRTEXEC)
    builder.chmod(0o755)
    checked = check(built, board(model))
    files = {"safetensors": "model.safetensors", "tensorrt": "model.engine"}
    assert checked.description["files"] == files, checked.reason
    words = (tmp_path / "draft" / "model.engine").read_text().split()
    assert words[:3] == [
        f"--{name}Shapes=images:{count}x32x32x3"
        for name, count in (("min", 1), ("opt", 1), ("max", 64))
    ]
    assert not (tmp_path / "draft" / "engine.onnx").exists()

    monkeypatch.setenv("CODE", "3")
    failed = check(built, board(model))
    assert failed.outcome == "failed"
    assert "trtexec failed with exit code 3: no such layer" in failed.reason


def test_a_program_is_written_beside_the_weights(tmp_path: Path) -> None:
    model = model_file(tmp_path, "mlp", shape=(4,))
    inputs = np.random.default_rng(1).standard_normal((COUNT, 4)).astype(np.float32)
    right = load_model(model, device="cpu").predict(inputs)
    samples = Samples(inputs, right.classes)
    data = DeviceData(samples, samples, 3, (4,), "npz")
    checked = check(order(tmp_path, model, formats=("torch-export",)), data)
    assert checked.description["files"]["torch-export"] == "model.pt2", checked.reason
    assert torch_run(tmp_path / "draft" / "model.pt2")(inputs) == pytest.approx(right.outputs)
