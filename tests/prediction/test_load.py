"""Model files are checked before they predict: whole, of this network, and of this run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import EdgeFedError
from edgefed.prediction.load import load_model
from tests.learn.own_models import linear
from tests.prediction.model_files import described, model_file, network, reference, write_model


def failure(path: Path, **options: bool) -> EdgeFedError:
    with pytest.raises(EdgeFedError) as caught:
        load_model(path, **options)  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    return caught.value


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, "np") as opened:
        return dict(opened.metadata())


def test_a_model_knows_its_run_and_its_labels(tmp_path: Path) -> None:
    model = load_model(model_file(tmp_path))
    assert model.labels == ("ant", "bee", "cat")
    assert (model.description.run, model.description.round) == ("r-0001", 3)
    assert (model.shape, model.takes_images) == ((3, 32, 32), True)
    assert load_model(tmp_path).description == model.description


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert failure(tmp_path / "none.safetensors").code == "data.missing"
    assert failure(tmp_path).code == "data.missing"


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08" + bytes(7) + b"{}      "])
def test_a_foreign_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert failure(tmp_path / "model.safetensors").code == "model.file"


def test_a_safetensors_file_of_another_program(tmp_path: Path) -> None:
    save_file({"x": np.zeros(3, np.float32)}, tmp_path / "model.safetensors", {"format": "pt"})
    assert failure(tmp_path / "model.safetensors").code == "model.file"


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_a_part_of_a_file(tmp_path: Path, kept: float) -> None:
    path = model_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    assert failure(path).code == "model.file"


def test_a_changed_weight(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    assert failure(path).code == "model.damaged"


def test_a_missing_and_a_foreign_tensor(tmp_path: Path) -> None:
    description = described()
    _, weights = network(description)
    last = [*weights][-1]
    for tensors in (
        {name: array for name, array in weights.items() if name != last},
        {**weights, last: weights[last][:2]},
        {**weights, "more": np.zeros(1, np.float32)},
    ):
        path = write_model(tmp_path / "model.safetensors", description, tensors)
        assert failure(path).code == "model.weights"


def test_metadata_of_another_network(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    other = {**metadata(path), "model": ModelSection(name="lenet5").model_dump_json()}
    save_file(load_file(path), path, other)
    assert failure(path).code == "model.weights"


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("model", '{"name": "mlp", "hidden": [65536, 65536]}', "model.weights"),
        ("model", '{"name": "none"}', "model.unknown"),
        ("model", "{", "model.file"),
        ("shape", "[3, -32, 32]", "model.file"),
        ("shape", "[3, 1000000000, 1000000000]", "model.file"),
        ("outputs", "0", "model.file"),
        ("outputs", "many", "model.file"),
        ("shares", "[NaN]", "model.file"),
        ("weights_digest", "00", "model.damaged"),
    ],
)
def test_changed_metadata(tmp_path: Path, key: str, value: str, code: str) -> None:
    path = model_file(tmp_path)
    save_file(load_file(path), path, {**metadata(path), key: value})
    assert failure(path).code == code


def test_a_users_own_network_needs_consent(tmp_path: Path) -> None:
    section = ModelSection(name="tests.learn.own_models:linear")
    description = replace(described("mlp", shape=(5,)), section=section)
    module = linear((5,), 3)
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    path = write_model(tmp_path / "model.safetensors", description, tensors)
    assert failure(path).code == "model.refused"
    inputs = np.random.default_rng(0).standard_normal((4, 5), np.float32)
    found = load_model(path, user_models=True).predict(inputs)
    module.eval()
    with torch.no_grad():
        right = torch.softmax(module(torch.from_numpy(inputs)), dim=1).numpy()
    assert np.allclose(found.probabilities, right, atol=1e-6)


def test_several_models_predict_together_or_one_of_them_alone(tmp_path: Path) -> None:
    description = replace(
        described("mlp"), models=("first", "second", "extra"), shares=(0.75, 0.25, 0.0)
    )
    each = {name: network(description, seed)[1] for seed, name in enumerate(("first", "second"))}
    tensors = {f"{model}/{name}": a for model, own in each.items() for name, a in own.items()}
    tensors["extra/table"] = np.ones(3, np.float32)
    path = write_model(tmp_path / "model.safetensors", description, tensors)
    inputs = np.random.default_rng(0).standard_normal((5, 3, 32, 32), np.float32)
    first, second = (reference(description, own, inputs) for own in each.values())
    assert not np.allclose(first, second, atol=0.01)
    together = load_model(path).predict(inputs).probabilities
    assert np.allclose(together, 0.75 * first + 0.25 * second, atol=1e-6)
    alone = load_model(path, model="second").predict(inputs).probabilities
    assert np.allclose(alone, second, atol=1e-6)
    with pytest.raises(EdgeFedError, match="no model 'extra'") as caught:
        load_model(path, model="extra")
    assert caught.value.code == "model.several"
    write_model(path, replace(description, shares=()), tensors)
    unweighed = failure(path)
    assert (unweighed.code, "first, second" in unweighed.hint) == ("model.several", True)
