"""The contents of a model file: the weights of one or several models, and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.coordinator.storage.stored_runs import RunRecord
from edgefed.errors import EdgeFedError
from edgefed.events.history.early_stopping import BestRound
from edgefed.files.samples import PixelScale
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.learn.modeling.model_file_reader import opened_model_file

CHECKPOINTS = "checkpoints"
"""The folder of models of every so many rounds."""


def checkpoint_file(number: int) -> str:
    """Return the model file of a round, from the run's folder."""
    return f"{CHECKPOINTS}/round-{number:04d}.safetensors"


def model_tensors(models: Mapping[str, Tensors]) -> Tensors:
    """Return the tensors of a model file: those of the only model, or of each as ``NAME/…``."""
    if len(models) == 1:
        return next(iter(models.values()))
    return {
        f"{model}/{name}": array
        for model, weights in models.items()
        for name, array in weights.items()
    }


def described(
    record: RunRecord,
    recipe: Recipe,
    *,
    section: ModelSection,
    spec: DataSpec,
    number: int,
    digest: str,
    models: tuple[str, ...],
    shares: Mapping[str, float],
    best: BestRound | None = None,
    numbers: bool = False,
) -> ModelDescription:
    """Return the description in a run's model file.

    Args:
        record: the run's row.
        recipe: the run's, with its data set's declarations.
        section: the network that all of its models have.
        spec: the form of its data.
        number: of the round that produced the models.
        digest: of the file's tensors.
        models: their names.
        shares: weight of each model in the mean of their predictions; empty where there is no mean.
        best: the score by which they are the run's best; None for other files.
        numbers: whether a user's own loss is of numbers.
    """
    # Runs and their files are listed without torch.
    from edgefed.learn.modeling.model_building import complete_model

    return ModelDescription(
        section=complete_model(section),
        shape=spec.shape,
        outputs=spec.classes,
        class_names=spec.class_names,
        scale=PixelScale(recipe.images.mean, recipe.images.std),
        loss=recipe.training.loss,
        run=record.run,
        algorithm=record.algorithm,
        round=number,
        weights_digest=digest,
        models=models,
        metric=best.metric if best is not None else "",
        score=best.score if best is not None else None,
        shares=tuple(shares.get(name, 0.0) for name in models) if shares else (),
        numbers=numbers,
        versions=record.versions,
    )


def file_round(path: Path) -> int | None:
    """Return the round of a model file; None if there is no such file that can be read."""
    try:
        with opened_model_file(path) as file:
            return file.description.round
    except EdgeFedError:
        return None


def read_models(path: Path) -> tuple[int, dict[str, Tensors]] | None:
    """Return the round and the models of a model file by name; None without such a file.

    Raises:
        DataError: ``model.file``: it is damaged.
        StorageError: it cannot be read.
    """
    if not path.is_file():
        return None
    with opened_model_file(path) as file:
        return file.description.round, file.models()
