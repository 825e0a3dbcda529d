"""``predict`` and ``run export``: models of runs and files, all kinds of inputs, the output."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from device_agent.commands.cli import app as agent_app
from edgefed.coordinator.storage.run_store import Store
from edgefed.prediction.load import load_model
from tests.cli.commands import Told, edgefed, only, recipe_file
from tests.prediction.model_files import described, model_file, network, write_model
from tests.processes import clean_environment
from tests.support.generated_images import write_pictures

CLASSES = ("ants", "bees", "cats")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run that tells three classes of pictures apart."""
    state = tmp_path_factory.mktemp("state")
    pictures = write_pictures(state / "pictures", CLASSES, 30)
    text = f"""
    [model]
    name = "mlp"
    hidden = [16]
    [data]
    name = "folder"
    path = "{pictures}"
    size = 8
    greyscale = true
    partition = "iid"
    [training]
    learning_rate = 0.3
    epochs = 5
    [rounds]
    count = 3
    min_devices = 2
    [simulation]
    devices = 2
    """
    told = edgefed("--quiet", "sim", "run", recipe_file(state, text), "--json", state=state)
    assert told.json["accuracy"] > 0.9
    return state


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return write_pictures(tmp_path / "new", CLASSES, 3, seed=7)


def agent(*words: str | Path) -> Told:
    with only(clean_environment()):
        told = CliRunner().invoke(agent_app, [str(word) for word in words])
    if told.exception is not None and not isinstance(told.exception, SystemExit):
        raise told.exception
    return Told(told.exit_code, told.stdout, told.stderr)


def run_folder(state: Path) -> Path:
    return next((state / "simulations" / "runs").iterdir())


def test_a_run_predicts_the_classes_of_a_folder(trained: Path, pictures: Path) -> None:
    told = edgefed("predict", "latest", pictures, "--top", "2", state=trained)
    lines, (_, *table, accuracy) = told.out.splitlines()[:9], told.out.splitlines()[9:]
    assert (told.code, told.err) == (0, f"run {run_folder(trained).name}\n")
    assert accuracy == "accuracy 1.0000 (9 of 9)"
    assert [row.split() for row in table] == [
        ["CLASS", "INPUTS", "RECALL", "PRECISION"],
        *([name, "3", "1.000", "1.000"] for name in CLASSES),
    ]
    for line in lines:
        path, label, probability, _, second = line.split()
        assert Path(path).parent.name == label
        assert float(probability) > 0.5 > float(second)


def test_a_file_a_folder_and_the_agent_predict_what_a_run_does(
    trained: Path, pictures: Path, tmp_path: Path
) -> None:
    run = run_folder(trained)
    told = edgefed("predict", run.name[:6], pictures, "--json", state=trained)
    whole = {"samples": 3, "predicted": 3, "recall": 1.0, "precision": 1.0}
    counts = {"inputs": 9, "unreadable": 0, "labelled": 9, "accuracy": 1.0}
    classes = [{"label": name, **whole} for name in CLASSES]
    assert told.lines[-1] == {"summary": {**counts, "classes": classes}}
    first = told.lines[0]
    assert (first["input"], first["expected"]) == (str(pictures / "ants" / "00.png"), "ants")
    assert (first["label"], first["probability"]) == (
        first["top"][0]["label"],
        first["top"][0]["probability"],
    )
    file = run / "model.safetensors"
    assert edgefed("predict", file, pictures, "--json", state=tmp_path).out == told.out
    assert edgefed("predict", run, pictures, "--json", state=tmp_path).out == told.out
    assert agent("predict", file, pictures, "--json").out == told.out
    found = load_model(file).predict(pictures / "ants" / "00.png")
    assert first["probability"] == pytest.approx(found.top(1)[0][0].probability, abs=1e-6)


def test_the_newest_run_with_a_model_is_taken_and_named(
    trained: Path, pictures: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(trained / "simulations", state / "simulations")
    run, later = run_folder(state), state / "coordinator" / "f" / "runs" / "r-9999-abcd"
    later.mkdir(parents=True)
    os.utime(later, (2**32, 2**32))
    photo = pictures / "ants" / "00.png"
    told = edgefed("predict", "latest", photo, state=state)
    assert (told.code, told.err) == (0, f"run {run.name}; no model.safetensors yet: {later.name}\n")
    assert "ants" in told.out
    assert edgefed("--quiet", "predict", "latest", photo, state=state).err == ""
    edgefed("predict", later.name, photo, state=state).failed(5, "model.none", later.name)
    (run / "model.safetensors").unlink()
    edgefed("predict", "latest", photo, state=state).failed(5, "model.none", str(state))


def test_an_unfinished_run_is_predicted_with_only_if_it_is_named_or_wanted(
    trained: Path, pictures: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    shutil.copytree(trained / "simulations", state / "simulations")
    run, photo = run_folder(state).name, pictures / "ants" / "00.png"
    with closing(Store(state / "simulations")) as store:
        store.save_run(replace(store.run(run), status="aborted"))
    words = "was aborted after 3 of 3 rounds"
    for command in (("predict", "latest", photo), ("run", "export", "latest")):
        told = edgefed(*command, state=state)
        told.failed(2, "model.unfinished", run, words, "--unfinished")
    told = edgefed("predict", "latest", photo, "--unfinished", state=state)
    assert (told.code, told.err) == (0, f"run {run}\n")
    assert edgefed("predict", run, photo, state=state).out == told.out
    out = tmp_path / "out.safetensors"
    exported = ("run", "export", "latest", "--unfinished", "--out", out)
    assert edgefed(*exported, state=state).code == 0


def test_python_predicts_folders_with_the_results_of_each_class(
    trained: Path, pictures: Path
) -> None:
    model, photo = load_model(run_folder(trained)), pictures / "bees" / "00.png"
    (pictures / "others").mkdir()
    (pictures / "cats" / "00.png").rename(pictures / "others" / "00.png")
    (pictures / "cats" / "01.png").rename(pictures / "ants" / "wrong.png")
    found = model.predict([pictures, photo])
    assert len(found) == len(found.paths) == len(found.expected) == 10
    assert (found.paths[-1], found.expected[-1], found.labels[-1]) == (photo, "", "bees")
    assert found.expected.count("") == 2, "the photo, and the one of no class of the model"
    result = {each.label: (each.samples, each.recall, each.precision) for each in found.by_class()}
    assert result == {"ants": (4, 0.75, 1.0), "bees": (3, 1.0, 1.0), "cats": (1, 1.0, 0.5)}
    assert model.predict(pictures).labels == found.labels[:-1]
    assert model.predict(photo).by_class() == ()


def test_arrays_are_predicted_with_their_labels(trained: Path, tmp_path: Path) -> None:
    images = [Image.open(each) for each in sorted((trained / "pictures" / "bees").iterdir())[:4]]
    pixels = np.stack([np.asarray(image.convert("L")) for image in images])
    path = tmp_path / "some.npz"
    np.savez(path, x_test=pixels, y_test=np.array([1, 1, 0, 1]), x_train=pixels[:1], y_train=[0])
    told = edgefed("predict", "latest", path, "--csv", state=trained)
    rows = list(csv.DictReader(io.StringIO(told.out)))
    assert [(row["input"], row["row"]) for row in rows] == [(str(path), str(k)) for k in range(4)]
    assert [row["expected"] for row in rows] == ["bees", "bees", "ants", "bees"]
    assert {row["label"] for row in rows} == {"bees"}
    _, head, *table, accuracy = told.err.splitlines()
    assert [row.split() for row in (head, *table)] == [
        ["CLASS", "INPUTS", "RECALL", "PRECISION"],
        ["ants", "1", "0.000", "-"],
        ["bees", "3", "1.000", "0.750"],
    ]
    assert accuracy == "accuracy 0.7500 (3 of 4)"
    named = np.array(["wasps", "cats", "bees"])
    np.savez(
        path, x=pixels.astype(np.float32)[:, None] / 255, y=np.array([2, 1, 0, 7]), classes=named
    )
    told = edgefed("predict", "latest", path, "--json", state=trained)
    assert [row.get("expected") for row in told.lines[:-1]] == ["bees", "cats", None, None]
    assert told.lines[-1]["summary"]["accuracy"] == 0.5


def test_unreadable_images_are_listed_and_the_others_predicted(
    trained: Path, pictures: Path
) -> None:
    (pictures / "bees" / "broken.png").write_bytes(b"no image")
    (pictures / "others").mkdir()
    (pictures / "cats" / "00.png").rename(pictures / "others" / "00.png")
    (pictures / "cats" / "01.png").rename(pictures / "01.png")
    told = edgefed("predict", "latest", pictures, state=trained)
    assert (told.code, len(told.out.splitlines())) == (7, 9 + 2 + 4)
    assert "accuracy 1.0000 (7 of 7)" in told.out
    assert "1 of 10 inputs cannot be read:  [predict.unreadable]" in told.err
    assert str(pictures / "bees" / "broken.png") in told.err
    assert f"{pictures / 'others'} is no class of the model" in told.err
    told = edgefed("predict", "latest", pictures, "--json", state=trained)
    broken = next(each for each in told.lines if "error" in each)
    assert broken["input"] == str(pictures / "bees" / "broken.png")
    assert told.lines[-1]["summary"]["unreadable"] == 1
    assert json.loads(told.err.splitlines()[-1])["error"]["code"] == "predict.unreadable"


def test_numbers_are_printed_as_numbers(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "outputs": 2,
        "class_names": (),
        "loss": "squared_error",
        "shape": (4,),
    }
    path = model_file(tmp_path, "mlp", **changes)
    inputs = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    np.savez(tmp_path / "in.npz", x=inputs)
    right = load_model(path).predict(inputs).outputs
    told = edgefed("predict", path, tmp_path / "in.npz", "--json")
    assert np.allclose([row["outputs"] for row in told.lines[:-1]], right, atol=1e-6)
    rows = list(
        csv.DictReader(io.StringIO(edgefed("predict", path, tmp_path / "in.npz", "--csv").out))
    )
    assert float(rows[1]["output_2"]) == pytest.approx(right[1, 1], abs=1e-6)
    text = edgefed("predict", path, tmp_path / "in.npz").out.splitlines()
    assert text[0].split()[1:] == [f"{value:.6g}" for value in right[0]]


def test_what_cannot_be_predicted_is_said(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "wrong.npz", z=np.zeros(3))
    np.savez(tmp_path / "tokens.npz", x=np.zeros((3, 5), np.int64))
    for words, code, name in (
        (("latest", tmp_path / "none.png"), 2, "data.missing"),
        (("latest", tmp_path / "empty"), 1, "data.empty"),
        (("latest", tmp_path / "wrong.npz"), 1, "predict.input"),
        (("latest", tmp_path / "tokens.npz"), 1, "predict.input"),
        (("r-9", tmp_path), 5, "run.unknown"),
        (("none.safetensors", tmp_path), 2, "data.missing"),
        (("latest", tmp_path, "--csv", "--json"), 2, "usage"),
        (("latest", tmp_path, "--device", "cuda:99"), 2, "device.unavailable"),
    ):
        told = edgefed("predict", *words, state=trained)
        assert (told.code, told.out) == (code, ""), told
        assert name in told.err
    agent("predict", "latest", tmp_path).failed(2, "data.missing")


def test_the_best_round_is_used_if_it_is_wanted(
    trained: Path, pictures: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    whole = (run_folder(trained) / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "best.safetensors").write_bytes(whole)
    assert edgefed("predict", folder, pictures, "--best").code == 0
    (tmp_path / "other").mkdir()
    edgefed("predict", tmp_path / "other", pictures, "--best").failed(5, "model.none", "--best")
    edgefed("predict", folder, pictures).failed(1, "model.file")
    edgefed("predict", folder / "best.safetensors", pictures, "--best").failed(2, "usage")


def test_user_code_needs_consent(tmp_path: Path, pictures: Path) -> None:

    from edgefed.config.recipes.recipe import ModelSection
    from edgefed.learn.modeling.model_building import build

    section = ModelSection(name="tests.learn.own_models:linear")
    description = replace(described("mlp"), section=section)
    weights = build(section, description.shape, 3, 0, allow_user=True).weights()
    path = write_model(tmp_path / "own.safetensors", description, weights)
    edgefed("predict", path, pictures).failed(1, "model.refused", "user_models")
    assert edgefed("predict", path, pictures, "--user-models").code == 0
    agent("predict", path, pictures).failed(1, "model.refused")
    assert agent("predict", path, pictures, "--user-models").code == 0
    settings = tmp_path / "settings.toml"
    settings.write_text("user_models = true\n")
    assert edgefed("predict", "--config", settings, path, pictures).code == 0


def test_one_of_several_models_is_chosen(tmp_path: Path, pictures: Path) -> None:

    description = replace(described("mlp"), models=("a", "b"))
    each = {name: network(description, seed)[1] for seed, name in enumerate("ab")}
    tensors = {
        f"{model}/{name}": array for model, own in each.items() for name, array in own.items()
    }
    path = write_model(tmp_path / "two.safetensors", description, tensors)
    edgefed("predict", path, pictures).failed(2, "model.several", "--model", "a, b")
    first, second = (
        edgefed("predict", path, pictures, "--model", name, "--json").out for name in "ab"
    )
    assert first != second
    out = tmp_path / "b.safetensors"
    assert edgefed("run", "export", path, "--model", "b", "--out", out).code == 0
    assert edgefed("predict", out, pictures, "--json").out == second


def test_a_run_is_exported(trained: Path, pictures: Path, tmp_path: Path) -> None:
    """That a program predicts the same is in ``tests/prediction/test_export.py``."""
    weights = tmp_path / "deep" / "copy.safetensors"
    told = edgefed("run", "export", "latest", "--out", weights, "--json", state=trained)
    assert (told.code, told.json["file"]) == (0, str(weights))
    assert told.json["metadata"]["labels"] == [*CLASSES]
    assert load_model(weights).labels == CLASSES
    before = weights.read_bytes()
    again = ("run", "export", "latest", "--best", "--out", weights)
    edgefed(*again, state=trained).failed(2, "export.exists", str(weights), "--force")
    assert weights.read_bytes() == before
    told = edgefed(*again, "--force", state=trained)
    assert (told.code, told.out) == (0, f"{weights}\n")
    assert weights.read_bytes() != before
