"""The description of a model in its file: the network, its inputs and its classes.

The metadata of a safetensors file are texts by name; lists are written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.files.code_versions import UNKNOWN_VERSIONS, CodeVersions, read_versions
from edgefed.files.samples import UNSCALED, PixelScale

_SHAPE = TypeAdapter(tuple[int, ...])
_NAMES = TypeAdapter(tuple[str, ...])
_SCALE = TypeAdapter(PixelScale)
_SHARES = TypeAdapter(tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...])


@dataclass(frozen=True)
class ModelDescription:
    """How to build the network of a model file, and how to use it.

    Attributes:
        section: the network.
        shape: of one input: (channels, height, width) for images.
        outputs: number of classes, or of numbers in a target.
        class_names: names of labels 0, 1, …; empty where labels have no names.
        scale: how the pixels of an image become inputs.
        loss: the run's.
        run: its id.
        algorithm: its name.
        round: the round that produced the model.
        weights_digest: of the file's tensors.
        models: names of the models in the file; one for most algorithms.
        metric, score: the score by which the round is the run's best; of no other model.
        shares: weight of each of several models in the mean of their predictions; empty where the
            run predicts in another way.
        numbers: a user's own loss was of numbers, and not of labels.
        versions: of the code of the run; unknown in files of earlier releases.
    """

    section: ModelSection
    shape: tuple[int, ...]
    outputs: int
    class_names: tuple[str, ...] = ()
    scale: PixelScale = UNSCALED
    loss: str = "cross_entropy"
    run: str = ""
    algorithm: str = ""
    round: int = 0
    weights_digest: str = ""
    models: tuple[str, ...] = ("model",)
    metric: str = ""
    score: float | None = None
    shares: tuple[float, ...] = ()
    numbers: bool = False
    versions: CodeVersions = UNKNOWN_VERSIONS

    @property
    def is_classifier(self) -> bool:
        """Whether outputs are scores of classes, and not numbers."""
        return self.loss != "squared_error" and not self.numbers

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of each class, or its number where it has none."""
        return self.class_names or tuple(str(number) for number in range(self.outputs))

    def metadata(self) -> dict[str, str]:
        """Return the metadata of the model file."""
        metadata = {
            "run": self.run,
            "algorithm": self.algorithm,
            "model": self.section.model_dump_json(),
            "round": str(self.round),
            "weights_digest": self.weights_digest,
            "shape": json.dumps(self.shape),
            "outputs": str(self.outputs),
            "loss": self.loss,
        }
        if self.class_names:
            metadata["classes"] = json.dumps(self.class_names)
        if self.scale != UNSCALED:
            metadata["scale"] = _SCALE.dump_json(self.scale).decode()
        if len(self.models) > 1:
            metadata["models"] = json.dumps(self.models)
        if self.score is not None:
            metadata |= {"metric": self.metric, "score": repr(self.score)}
        if self.shares:
            metadata["shares"] = json.dumps(self.shares)
        if self.numbers:
            metadata["targets"] = "numbers"
        if self.versions.edgefed:
            metadata["versions"] = json.dumps(asdict(self.versions))
        return metadata


def read_description(metadata: Mapping[str, str], where: Path) -> ModelDescription:
    """Return the description in the metadata of a model file.

    Raises:
        DataError: ``model.file``: it is not a model file of this version.
    """
    try:
        description = ModelDescription(
            section=ModelSection.model_validate_json(metadata["model"]),
            shape=_SHAPE.validate_json(metadata["shape"]),
            outputs=int(metadata["outputs"]),
            loss=metadata["loss"],
            run=metadata["run"],
            algorithm=metadata["algorithm"],
            round=int(metadata["round"]),
            weights_digest=metadata["weights_digest"],
        )
        if "classes" in metadata:
            description = replace(
                description, class_names=_NAMES.validate_json(metadata["classes"])
            )
        if "scale" in metadata:
            description = replace(description, scale=_SCALE.validate_json(metadata["scale"]))
        if "models" in metadata:
            description = replace(description, models=_NAMES.validate_json(metadata["models"]))
        if "score" in metadata:
            score = float(metadata["score"])
            description = replace(description, metric=metadata["metric"], score=score)
        if "shares" in metadata:
            description = replace(description, shares=_SHARES.validate_json(metadata["shares"]))
        description = replace(description, numbers=metadata.get("targets") == "numbers")
        versions = read_versions(json.loads(metadata.get("versions", "null")))
        description = replace(description, versions=versions)
    except (KeyError, ValueError, ValidationError) as error:
        raise DataError(
            f"{where} does not say which model it holds.",
            code="model.file",
            hint="give the model.safetensors of a run of EdgeFed",
        ) from error
    return description
