"""The contents of a model file: the weights of one or several models, and metadata."""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.config.recipe import ModelSection, Recipe
from edgefed.coordinator.compatibility import DataSpec
from edgefed.coordinator.run_records import RunRecord
from edgefed.learn.model_description import ModelDescription
from edgefed.learn.models import complete_model
from edgefed.learn.types import Tensors
from edgefed.samples import PixelScale


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
) -> ModelDescription:
    """Return what a run's model file says of itself.

    Args:
        record: the run's row.
        recipe: what the run trains, with what its data set declares.
        section: the network that all of its models have.
        spec: what its data look like.
        number: of the round after which the models are.
        digest: of the file's tensors.
        models: their names.
        shares: what each of them counts in their predictions; empty where they have no mean.
    """
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
        shares=tuple(shares.get(name, 0.0) for name in models) if shares else (),
    )
