"""What a model file says beside its weights: safetensors metadata, texts by name."""

from __future__ import annotations

import json

from edgefed.config.recipe import Recipe
from edgefed.coordinator.compatibility import DataSpec
from edgefed.coordinator.records import RunRecord


def model_metadata(
    record: RunRecord, recipe: Recipe, spec: DataSpec, number: int, digest: str
) -> dict[str, str]:
    """Return the metadata of a run's model.

    Args:
        record: the run's row.
        recipe: the run's.
        spec: what its data look like; where its classes have names, ``classes`` is their list.
        number: of the round after which the model is.
        digest: of the weights.
    """
    metadata = {
        "run": record.run,
        "algorithm": record.algorithm,
        "model": recipe.model.model_dump_json(),
        "round": str(number),
        "weights_digest": digest,
    }
    if spec.class_names:
        metadata["classes"] = json.dumps(spec.class_names)
    return metadata
