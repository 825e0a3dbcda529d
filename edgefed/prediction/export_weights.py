"""Write the weights of a model, checked, to another model file: all of its models, or one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from edgefed.files import write_output
from edgefed.learn.types import Tensors
from edgefed.prediction.export_check import check_export
from edgefed.prediction.load import load_model
from edgefed.prediction.model_file import ModelFile, chosen_models, read_model_file
from edgefed.wire.tensors import weights_digest


def export_weights(
    source: Path, path: Path, *, model: str = "", user_models: bool = False
) -> dict[str, Any]:
    """Write the tensors of a model file under the names that its network gives them.

    Its metadata is that of the source, with the labels. Preprocessing is not included: the
    metadata's ``scale`` holds the mean and deviation of pixels from 0 to 1.

    Args:
        source: a model file.
        path: the file to write.
        model: the only model to write; empty for all.
        user_models: whether the network may be a user's own code, which is then imported.

    Raises:
        CheckFailedError: ``export.differs``: the file's predictions differ.
        EdgeFedError: as ``load_model``.
        StorageError: it cannot be written.
    """
    content = read_model_file(source, user_models=user_models)
    description, tensors = content.description, content.tensors()
    if model:
        chosen_models(content, model)
        tensors = _one(content, model)
        digest = weights_digest(tensors)
        description = replace(description, models=("model",), shares=(), weights_digest=digest)
    metadata = {**description.metadata(), "labels": json.dumps(description.labels)}
    draft = path.with_name(f".{path.name}.draft")
    write_output(draft, save(tensors, metadata))
    try:
        written = load_model(draft, user_models=user_models, device="cpu")
        right = load_model(source, model=model, user_models=user_models, device="cpu")
        check_export(right, lambda inputs: written.predict(inputs).outputs, resize=True)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return dict(metadata)


def _one(content: ModelFile, name: str) -> Tensors:
    """Return one model's tensors in the order of its network."""
    return {key: content.models[name][key] for key in content.network.names}
