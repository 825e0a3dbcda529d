"""Write a trained model for other programs, and check the file against torch.

The preprocessing is inside: an exported image model takes uint8 images as decoders return them, (n,
height, width, channels) of any size, turned upright and in RGB or grey, and returns probabilities.
A model of other inputs takes its own floats, or tokens. The number of inputs is variable.
"""

from __future__ import annotations

import copy
import json
import uuid
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import save
from torch import nn

from edgefed.errors import DataError, EdgeFedError, UsageError
from edgefed.files.optional import wanted
from edgefed.files.writing import make_folder, storage_error, write_output
from edgefed.learn.base.transfers import place_module
from edgefed.learn.base.types import Tensors
from edgefed.prediction.export_check import Run, check_export
from edgefed.prediction.inputs import Array
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from edgefed.prediction.model_file import ModelFile, chosen_models, read_model_file
from edgefed.prediction.networks import PhotoOutputs
from edgefed.wire.tensors import weights_digest

Format = Literal["torch-export", "onnx"]
"""How a program with its weights is written."""

METADATA_FILE = "edgefed.json"
"""The file in a torch export that holds its description."""

TRACED = 2
"""Inputs of the example that the model is traced with."""


@dataclass(frozen=True)
class Signature:
    """The argument and the result of an exported program.

    Attributes:
        input: the name of its argument.
        output: the name of its result.
        example: inputs to trace it with.
        open: names of the dimensions of variable length, by their place.
    """

    input: str
    output: str
    example: torch.Tensor
    open: Mapping[int, str]

    def shape(self) -> list[int | str]:
        """Return the shape of the argument, with names for variable lengths."""
        lengths = enumerate(self.example.shape)
        return [self.open.get(place, length) for place, length in lengths]


def export_model(
    model: LoadedModel, form: Format, path: Path, *, resize: bool = True
) -> dict[str, Any]:
    """Write a model as a program, check it, and return its description.

    The file appears only after the check: it returns the outputs of ``model``, up to 1e-4, for
    several numbers and sizes of inputs.

    Args:
        model: on the CPU.
        form: ``torch-export``, for ``torch.export.load``; or ``onnx``.
        path: the file to write.
        resize: scale images of any size inside; without, images must have the model's size.

    Raises:
        UsageError: ``export.missing``: a package that writes or checks the file is not installed;
            ``export.torch``: this torch is too old.
        DataError: ``export.failed``: torch cannot export this network.
        CheckFailedError: ``export.differs``: the file's outputs differ from torch's.
        StorageError: it cannot be written.
    """
    program, signature = _program(model, resize), _signature(model, resize)
    metadata = _metadata(model, signature)
    writer = _write_onnx if form == "onnx" else _write_torch
    if form == "onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            wanted(package, "onnx", code="export.missing")
    make_folder(path.parent, private=False)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with _exportable(model.description.section.name):
            run = writer(_traced(program, signature), signature, metadata, draft)
        check_export(model, run, resize=resize)
        draft.replace(path)
    except OSError as error:
        raise storage_error(path, error) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return metadata


def _program(model: LoadedModel, resize: bool) -> nn.Module:
    """Return the module that is exported."""
    if not model.takes_images:
        return _on_host(model.outputs)
    _, height, width = model.shape
    size = (height, width) if resize else None
    return PhotoOutputs(_on_host(model.images), size).eval()


def _on_host(module: nn.Module) -> nn.Module:
    """Return a copy of a module in the host's memory, in evaluation mode."""
    own = copy.deepcopy(module)
    place_module(own, torch.device("cpu"))
    return own.eval()


def _signature(model: LoadedModel, resize: bool) -> Signature:
    output = "probabilities" if model.labels else "outputs"
    if model.takes_images:
        channels, height, width = model.shape
        free = {1: "height", 2: "width"} if resize else {}
        sides = (height + 5, width + 9) if resize else (height, width)
        example = torch.zeros(TRACED, *sides, channels, dtype=torch.uint8)
        return Signature("images", output, example, {0: "batch", **free})
    kind = torch.float32 if model.vocabulary is None else torch.int64
    name = "inputs" if model.vocabulary is None else "tokens"
    return Signature(name, output, torch.zeros(TRACED, *model.shape, dtype=kind), {0: "batch"})


def _metadata(model: LoadedModel, signature: Signature) -> dict[str, Any]:
    """Return the description in the file; ``labels`` are in the order of the probabilities."""
    description = model.description
    kind = str(signature.example.dtype).removeprefix("torch.")
    return {
        "run": description.run,
        "round": description.round,
        "algorithm": description.algorithm,
        "network": description.section.name,
        "weights_digest": description.weights_digest,
        "labels": list(model.labels),
        "input": signature.input,
        "input_type": kind,
        "input_shape": signature.shape(),
        "output": signature.output,
    }


def _traced(program: nn.Module, signature: Signature) -> torch.export.ExportedProgram:
    if not hasattr(torch, "export") or not hasattr(torch.export, "Dim"):
        raise UsageError(
            f"torch {torch.__version__} cannot export models.",
            code="export.torch",
            hint="pip install --upgrade torch",
        )
    free = {place: torch.export.Dim(name, min=1) for place, name in signature.open.items()}
    return torch.export.export(program, (signature.example,), dynamic_shapes=(free,))


def _write_torch(
    traced: torch.export.ExportedProgram,
    signature: Signature,
    metadata: dict[str, Any],
    path: Path,
) -> Run:
    """Write a file for ``torch.export.load``, and return how it is run."""
    del signature
    with path.open("wb") as file:
        torch.export.save(traced, file, extra_files={METADATA_FILE: json.dumps(metadata)})
    return torch_run(path)


def torch_run(path: Path) -> Run:
    """Return the function with which torch runs an exported file on the CPU."""
    with path.open("rb") as file:
        module = torch.export.load(file).module()

    @torch.no_grad()
    def run(inputs: Array) -> Array:
        own = np.require(inputs, requirements=["C", "W"])
        outputs: Array = module(torch.from_numpy(own)).numpy()
        return outputs

    return run


def _write_onnx(
    traced: torch.export.ExportedProgram,
    signature: Signature,
    metadata: dict[str, Any],
    path: Path,
) -> Run:
    """Write an ONNX file, and return how ONNX Runtime runs it."""
    program = torch.onnx.export(
        traced,
        input_names=[signature.input],
        output_names=[signature.output],
        dynamic_shapes=(dict(signature.open),),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    texts = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in metadata.items()
    }
    program.model.metadata_props.update(texts)
    program.save(path, external_data=False)
    return onnx_run(path)


def onnx_run(path: Path) -> Run:
    """Return the function with which ONNX Runtime runs an exported file on the CPU."""
    runtime = wanted("onnxruntime", "onnx", code="export.missing")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda inputs: session.run(None, {name: inputs})[0]


@contextmanager
def _exportable(name: str) -> Iterator[None]:
    """Turn errors of torch's exporters into EdgeFed errors, and silence their warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (EdgeFedError, OSError):
        raise
    # Exporters fail in as many ways as networks have.
    except Exception as error:
        first = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise DataError(
            f"The model {name} cannot be exported: {first[:200]}.",
            code="export.failed",
            hint="use operations that torch.export supports, or --format safetensors",
        ) from error


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
