"""``edgefed run export``: write a run's model for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Unfinished
from edgefed.cli.runs.predict import Source
from edgefed.prediction.options import Best, ModelName, UserModels
from edgefed.terminal.console import collect_at_end

if TYPE_CHECKING:
    from edgefed.cli.runs.model_source import ModelSource

EPILOG = examples(
    "edgefed run export latest --format onnx",
    "edgefed run export r-0007 --format torch-export --out model.pt2",
    "edgefed run export r-0007 --best --out model.safetensors",
)

SUFFIXES = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}

Form = Annotated[
    Literal["safetensors", "torch-export", "onnx"],
    typer.Option(
        "--format",
        help="safetensors: the weights. torch-export: a program for torch.export.load. onnx: a"
        " program for ONNX Runtime and others; needs the extra onnx.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="File to write; by default RUN with the format's suffix.", metavar="FILE"
    ),
]
NoResize = Annotated[
    bool,
    typer.Option(
        "--no-resize",
        help="Let the program take images of the model's size only, for runtimes without float64.",
    ),
]


def export(
    context: typer.Context,
    source: Source,
    *,
    form: Form = "safetensors",
    out: Out = None,
    model: ModelName = "",
    best: Best = False,
    unfinished: Unfinished = False,
    no_resize: NoResize = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    user_models: UserModels = False,
) -> None:
    """Write the model of a run for other programs, and check it against torch.

    A program of the formats torch-export and onnx takes uint8 images (n, height, width, channels)
    of any size and returns probabilities: it scales and normalises them as training does. The file
    names the labels, the run and the round. A file with other outputs than torch's is refused.
    """
    from edgefed.cli.runs.model_source import model_source
    from edgefed.prediction.command import model_path

    options = globals_of(context)
    settings = options.settings().value
    chosen = model_source(settings.state, source, best=best, unfinished=unfinished)
    allowed = user_models or settings.user_models or chosen.is_simulated
    file = (out or Path(_name(chosen) + SUFFIXES[form])).expanduser().absolute()
    _refuse_existing(file, force)
    metadata = _written(model_path(chosen.path, best), file, form, model, not no_resize, allowed)
    options.answer({"file": str(file), "format": form, "metadata": metadata}, str(file))
    if form != "safetensors":
        shape = ", ".join(map(str, metadata["input_shape"]))
        options.note(
            f"  {metadata['input']}: {metadata['input_type']} ({shape}), to {metadata['output']}"
        )


def _refuse_existing(file: Path, force: bool) -> None:
    """Raise if a file would be replaced.

    Raises:
        UsageError: ``export.exists``.
    """
    from edgefed.errors import UsageError

    if file.exists() and not force:
        raise UsageError(
            f"{file} exists.",
            code="export.exists",
            hint="--force replaces it; --out names another file",
        )


def _name(chosen: ModelSource) -> str:
    return chosen.run or chosen.path.stem


def _written(
    source: Path, file: Path, form: str, model: str, resize: bool, user_models: bool
) -> dict[str, Any]:
    """Write the file and return its metadata."""
    if form == "safetensors":
        from edgefed.prediction.export import export_weights

        texts = export_weights(source, file, model=model, user_models=user_models)
        return {**texts, "labels": json.loads(texts["labels"])}
    collect_at_end()
    from edgefed.prediction.export import export_model
    from edgefed.prediction.load import load_model

    loaded = load_model(source, model=model, user_models=user_models, device="cpu")
    kind: Literal["torch-export", "onnx"] = "onnx" if form == "onnx" else "torch-export"
    return export_model(loaded, kind, file, resize=resize)
