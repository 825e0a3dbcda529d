"""The contents of a model file: the weights of one or several models, and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping

from edgefed.config.recipe import ModelSection
from edgefed.coordinator.compatibility import DataSpec
from edgefed.coordinator.run_records import RunRecord
from edgefed.learn.types import Tensors


def model_tensors(models: Mapping[str, Tensors]) -> Tensors:
    """Return the tensors of a model file: those of the only model, or of each as ``NAME/…``."""
    if len(models) == 1:
        return next(iter(models.values()))
    return {
        f"{model}/{name}": array
        for model, weights in models.items()
        for name, array in weights.items()
    }


def model_metadata(
    record: RunRecord,
    *,
    section: ModelSection,
    spec: DataSpec,
    number: int,
    digest: str,
    models: tuple[str, ...],
) -> dict[str, str]:
    """Return the metadata of a run's models.

    Args:
        record: the run's row.
        section: the network that all of them have.
        spec: what its data look like; where its classes have names, ``classes`` is their list.
        number: of the round after which the model is.
        digest: of the file's tensors.
        models: their names; of several, ``models`` is their list.
    """
    metadata = {
        "run": record.run,
        "algorithm": record.algorithm,
        "model": section.model_dump_json(),
        "round": str(number),
        "weights_digest": digest,
    }
    if spec.class_names:
        metadata["classes"] = json.dumps(spec.class_names)
    if len(models) > 1:
        metadata["models"] = json.dumps(models)
    return metadata
