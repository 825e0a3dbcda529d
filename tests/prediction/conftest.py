"""Programs of the small convolutional network, exported once for all tests of predictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.prediction.export import export_model
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from tests.prediction.model_files import model_file


@pytest.fixture(scope="package")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a model file, and of its program in each form."""
    folder = tmp_path_factory.mktemp("programs")
    model = load_model(model_file(folder), device="cpu")
    for form in ("torch-export", "onnx"):
        export_model(model, form, folder / form)
    return folder


@pytest.fixture
def model(programs: Path) -> LoadedModel:
    return load_model(programs, device="cpu")
