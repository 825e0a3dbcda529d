"""The initial weights of a run: drawn, from elsewhere, or those of an earlier run's model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from edgefed.config.recipes.recipe import ModelSection
from edgefed.coordinator.models.frozen_weights import save_frozen
from edgefed.coordinator.models.pretrained_weights import (
    PUBLISHED,
    fitted,
    pretrained,
    published_file,
    require_safe_torch,
)
from edgefed.coordinator.rounds.engine_deps import EngineDeps
from edgefed.coordinator.rounds.run_recorder import RunRecorder
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.data.base.paths import require_file, resolve
from edgefed.errors import RecipeError, UnknownNameError
from edgefed.files.samples import UNSCALED, PixelScale
from edgefed.learn.base.transfers import download
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.learn.modeling.model_file_reader import MODEL_FILE, opened_model_file

MISSING = (
    "correct {key} in the recipe's [model]; a relative path starts at the recipe's folder, or else"
    " at the folder data of the coordinator's state"
)
"""The hint of a file that is not there."""

RUN = "run:"
"""How ``model.start`` names a run."""


def start_model(
    model: Model, section: ModelSection, spec: DataSpec, deps: EngineDeps, recorder: RunRecorder
) -> None:
    """Give a new run's model the weights that its recipe starts from, and keep the frozen ones.

    Raises:
        EdgeFedError: as ``put_initial_weights``, or the disk is full.
    """
    store, run = deps.store, recorder.record.run
    images = deps.prepared_recipe.images
    scale = PixelScale(images.mean, images.std)
    for note in put_initial_weights(
        model, section, spec, deps.data_folder, store.run_folder, scale
    ):
        recorder.note(note)
    recorder.written(lambda: save_frozen(store.run_folder(run), model.frozen_weights()))


def put_initial_weights(
    model: Model,
    section: ModelSection,
    spec: DataSpec,
    folder: Path | None,
    run_folder: Callable[[str], Path],
    scale: PixelScale = UNSCALED,
) -> tuple[str, ...]:
    """Give a model the weights that its recipe starts from; return notes for the operator.

    Args:
        model: the run's, with values drawn from its seed.
        section: the recipe's ``[model]`` table.
        spec: the form of the run's data.
        folder: base of relative paths.
        run_folder: returns the folder of a run's files.
        scale: of the run's images.

    Raises:
        RecipeError: ``model.start``: both keys are set, or the file holds several models.
        UnknownNameError: ``run.unknown``: there is no such run.
        EdgeFedError: the file is missing, unreadable, or another network's.
    """
    path = weights_source(section, folder, run_folder)
    notes: list[str] = []
    if section.start and path is not None:
        weights, notes = _started(model, spec, path, scale)
        model.put_weights(weights)
    elif section.weights:
        weights, new = pretrained(model, path)
        model.put_weights(weights)
        notes = [new]
    return tuple(filter(None, notes))


def weights_source(
    section: ModelSection, folder: Path | None, run_folder: Callable[[str], Path]
) -> Path | None:
    """Return the file that a run starts from; None for drawn weights and for torchvision's own.

    Args:
        section: the recipe's ``[model]`` table.
        folder: base of relative paths.
        run_folder: returns the folder of a run's files.

    Raises:
        RecipeError: ``model.start``: both keys are set, or the run has no model yet.
        UnknownNameError: ``run.unknown``: there is no such run.
        MissingDataError: ``data.missing``: there is no such file.
        UsageError: ``model.torch``: this torch does not open such a file safely.
    """
    check_sources(section)
    if section.start:
        return _model_file(section.start, folder, run_folder)
    if section.weights in ("", PUBLISHED):
        return None
    path = resolve(section.weights, folder)
    require_file(path, MISSING.format(key="weights"))
    require_safe_torch(path)
    return path


def check_sources(section: ModelSection) -> None:
    """Check that a recipe names one source of weights at most.

    Raises:
        RecipeError: ``model.start``: it names two.
    """
    if section.weights and section.start:
        raise RecipeError(
            "A run starts from model.weights or from model.start, not from both.",
            code="model.start",
            hint="omit one of them",
        )


def unknown_weights(section: ModelSection) -> str:
    """Return why it is not known yet whether a run's weights can be used; empty where it is.

    Raises:
        RecipeError: ``model.weights``: nobody publishes weights for the network.
    """
    # Published weights that are on this disk need no download
    if section.weights != PUBLISHED or published_file(section.name)[1].is_file():
        return ""
    return f"the weights of {section.name} would be downloaded"


def _model_file(start: str, folder: Path | None, run_folder: Callable[[str], Path]) -> Path:
    """Return the file that ``model.start`` names."""
    if not start.startswith(RUN):
        path = resolve(start, folder)
        require_file(path, MISSING.format(key="start"))
        return path
    run = start.removeprefix(RUN)
    # A slash or dots would lead out of the folder of runs
    files = run_folder(run) if run and "/" not in run and run != ".." else Path()
    if not files.name or not files.is_dir():
        # The beginning of an id is enough where one run alone has it
        names = [folder.name for folder in run_folder("x").parent.glob("*")]
        near = sorted(name for name in names if name.startswith(run))
        if run and len(near) == 1:
            files = run_folder(near[0])
        else:
            raise UnknownNameError(
                f"There is no run '{run}' to start from.",
                code="run.unknown",
                hint="edgefed run list shows the runs; or give the path of a model.safetensors",
            )
    path = files / MODEL_FILE
    if not path.is_file():
        raise RecipeError(
            f"Run {files.name} has not saved a model yet.",
            code="model.start",
            hint=f"wait for its end, or end it: edgefed run finish {files.name}",
        )
    return path


def _started(
    model: Model, spec: DataSpec, path: Path, scale: PixelScale
) -> tuple[Tensors, list[str]]:
    """Return the weights of a saved model, with an output layer for this run's classes."""
    with opened_model_file(path) as file:
        before, models = file.description, file.models()
    if len(before.models) > 1:
        raise RecipeError(
            f"{path} holds {len(before.models)} models, and a run starts from one.",
            code="model.start",
            hint="start from a run of an algorithm that trains one model",
        )
    tensors = models[before.models[0]]
    # A copy, since the arrays are views of a file that is closed by now
    torch_tensors = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}
    kept = _kept_rows(before, spec)
    if kept is not None:
        torch_tensors = _with_rows(model, torch_tensors, kept, before.outputs)
    arrays, _ = fitted(model, torch_tensors, str(path))
    notes = [_other_scale(before.scale, scale, path)]
    if kept is not None:
        new = spec.classes - len(kept)
        notes.append(f"the output layer keeps {len(kept)} classes of {path} and has {new} new ones")
    return arrays, notes


def _other_scale(before: PixelScale, now: PixelScale, path: Path) -> str:
    """Return a message if a model was trained on images of another scale, or nothing."""
    if before == now:
        return ""
    one, other = (
        f"mean {[*scale.mean]} and std {[*scale.std]}" if scale.mean else "no mean and std"
        for scale in (before, now)
    )
    return f"{path} was trained on images with {one}, and this run's have {other} ([images])"


def _kept_rows(before: ModelDescription, spec: DataSpec) -> list[tuple[int, int]] | None:
    """Return which output now was which before, as (now, before); None where all are the same."""
    if before.class_names == spec.class_names and before.outputs == spec.classes:
        return None
    # With names on both sides, rows follow their names, wherever these are in the list
    if before.class_names and spec.class_names:
        return [
            (now, before.class_names.index(name))
            for now, name in enumerate(spec.class_names)
            if name in before.class_names
        ]
    # Without names, equal numbers are the same class
    return [(number, number) for number in range(min(before.outputs, spec.classes))]


def _with_rows(
    model: Model, tensors: dict[str, torch.Tensor], kept: list[tuple[int, int]], outputs: int
) -> dict[str, torch.Tensor]:
    """Return tensors whose output layer is the model's own, with the rows that are kept.

    ``outputs`` is the number of rows before.
    """
    layer, state = model.output_layer.name, model.module.state_dict()
    changed = dict(tensors)
    for kind in ("weight", "bias"):
        name = f"{layer}.{kind}" if layer else kind
        if name not in state or name not in tensors:
            continue
        if tensors[name].shape != (outputs, *state[name].shape[1:]):
            return tensors  # of another network; ``fitted`` names what does not fit
        # New classes keep the values that were drawn from the run's seed
        rows = np.array(download(state[name], "model").numpy())
        for now, was in kept:
            rows[now] = tensors[name][was].numpy()
        changed[name] = torch.from_numpy(rows)
    return changed
