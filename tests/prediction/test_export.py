"""Exported programs predict what the model predicts; those that do not are refused."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgefed.errors import CheckFailedError, UsageError
from edgefed.prediction import export
from edgefed.prediction.export import (
    METADATA_FILE,
    export_model,
    export_weights,
    onnx_run,
    torch_run,
)
from edgefed.prediction.export_check import TOLERANCE, check_export
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from tests.prediction.model_files import COLOUR, NAMES, OWN, described, model_file

RNG = np.random.default_rng(3)
FORMS: dict[str, Any] = {"torch-export": torch_run, "onnx": onnx_run}


def example(name: str, count: int) -> Any:
    """Inputs of a network that its programs take: of another size than the model's."""
    _, shape = OWN.get(name, ({}, COLOUR))
    if name == "lstm":
        return RNG.integers(0, 9, (count, *shape))
    noise = RNG.integers(0, 64, (count, shape[1] + 11, 3 * shape[2] + 1, shape[0]), np.uint8)
    return noise + RNG.integers(0, 192, (count, 1, 1, shape[0]), np.uint8)


def check(model: LoadedModel, name: str, form: Any, path: Path) -> None:
    """Compare what a program of a network predicts with what its model predicts."""
    run = FORMS[form](path)
    for count in (1, 5):
        inputs = example(name, count)
        right = model.predict(inputs).probabilities
        assert np.abs(run(inputs) - right).max() < TOLERANCE
    assert right.std(axis=0).max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_a_program_predicts_what_its_model_predicts(
    programs: Path, model: LoadedModel, form: str
) -> None:
    check(model, "cnn", form, programs / form)
    assert {each.name for each in programs.iterdir()} == {"model.safetensors", *FORMS}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), [("lstm", "onnx"), ("resnet20", "torch-export")])
def test_networks_of_every_kind_are_exported(tmp_path: Path, name: str, form: Any) -> None:
    model = load_model(model_file(tmp_path, name), device="cpu")
    export_model(model, form, tmp_path / "program")
    check(model, name, form, tmp_path / "program")


@pytest.fixture
def of_numbers(tmp_path: Path) -> LoadedModel:
    path = model_file(tmp_path, "mlp", shape=(6,), outputs=2, class_names=(), loss="squared_error")
    return load_model(path, device="cpu")


def test_numbers_are_exported(tmp_path: Path, of_numbers: LoadedModel) -> None:
    model = of_numbers
    told = export_model(model, "torch-export", tmp_path / "program")
    assert (told["labels"], told["output"], told["input"]) == ([], "outputs", "inputs")
    inputs = RNG.standard_normal((4, 6), np.float32)
    found = torch_run(tmp_path / "program")(inputs)
    assert np.allclose(found, model.predict(inputs).outputs, atol=1e-5)


def test_a_program_says_what_it_is(programs: Path) -> None:
    import onnxruntime

    extra = {METADATA_FILE: ""}
    torch.export.load(str(programs / "torch-export"), extra_files=extra)
    session = onnxruntime.InferenceSession(programs / "onnx", providers=["CPUExecutionProvider"])
    texts = session.get_modelmeta().custom_metadata_map
    assert (texts["run"], texts["round"], json.loads(texts["labels"])) == ("r-0001", "3", [*NAMES])
    told = json.loads(extra[METADATA_FILE])
    assert (told["run"], told["round"], told["labels"]) == ("r-0001", 3, [*NAMES])
    assert told["input_shape"] == ["batch", "height", "width", 3]
    (images,) = session.get_inputs()
    assert (images.name, images.type, images.shape) == (
        "images", "tensor(uint8)", ["batch", "height", "width", 3],
    )  # fmt: skip


def test_without_a_resize_images_have_the_models_size(tmp_path: Path) -> None:
    model = load_model(model_file(tmp_path, "mlp"), device="cpu")
    told = export_model(model, "onnx", tmp_path / "program", resize=False)
    assert told["input_shape"] == ["batch", 32, 32, 3]
    photos = RNG.integers(0, 256, (3, 32, 32, 3), np.uint8)
    run = onnx_run(tmp_path / "program")
    assert np.abs(run(photos) - model.predict(photos).probabilities).max() < TOLERANCE
    assert b"DOUBLE" not in _types(tmp_path / "program")


def _types(path: Path) -> bytes:
    import onnx

    return str(onnx.shape_inference.infer_shapes(onnx.load(path)).graph.value_info).encode()


def test_a_program_that_predicts_something_else_is_refused(
    tmp_path: Path, of_numbers: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program").write_text("an earlier one")
    whole = export._on_host
    changed = lambda module: torch.nn.Sequential(whole(module), torch.nn.ReLU())  # noqa: E731
    monkeypatch.setattr(export, "_on_host", changed)
    with pytest.raises(CheckFailedError) as caught:
        export_model(of_numbers, "torch-export", tmp_path / "program")
    assert caught.value.code == "export.differs"
    assert (tmp_path / "program").read_text() == "an earlier one"
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["model.safetensors", "program"]


@pytest.mark.parametrize(
    "run",
    [
        lambda found: found + 2 * TOLERANCE,
        lambda found: found[:1],
        lambda found: found * np.nan,
        lambda found: found.no_such_thing,
    ],
)
def test_the_check_sees_a_difference(model: LoadedModel, run: Callable[[Any], Any]) -> None:
    check_export(model, lambda inputs: model.predict(inputs).outputs, resize=True)
    with pytest.raises(CheckFailedError) as caught:
        check_export(model, lambda inputs: run(model.predict(inputs).outputs), resize=True)
    assert caught.value.code == "export.differs"


def test_without_the_packages_it_is_said_which_to_install(
    tmp_path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("onnxruntime"):
            raise ImportError(name)
        return whole(name, *rest, **named)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(UsageError) as caught:
        export_model(model, "onnx", tmp_path / "program")
    assert (caught.value.code, caught.value.hint) == (
        "export.missing",
        "pip install 'edgefed[onnx]'",
    )


def test_weights_are_written_with_their_labels(tmp_path: Path) -> None:
    source = model_file(tmp_path)
    told = export_weights(source, tmp_path / "copy.safetensors")
    assert json.loads(told["labels"]) == [*NAMES]
    first, second = load_model(source), load_model(tmp_path / "copy.safetensors")
    assert (
        second.description == first.description == described(weights_digest=told["weights_digest"])
    )
    photos = example("cnn", 2)
    assert np.array_equal(first.predict(photos).outputs, second.predict(photos).outputs)
