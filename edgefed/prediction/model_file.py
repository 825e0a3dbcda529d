"""Read a model file and build its networks; a damaged or foreign file is one clear error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.data.base.paths import require_file
from edgefed.errors import DataError, EdgeFedError, UsageError
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import build
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.learn.modeling.model_file_reader import opened_model_file
from edgefed.learn.modeling.model_memory import COPIES, training_bytes
from edgefed.wire.tensors import weights_digest

BUILD_FAILED = (RuntimeError, OverflowError, ValueError, MemoryError, TypeError)
"""How torch refuses shapes and settings that no network of ours was trained with."""


@dataclass(frozen=True)
class ModelFile:
    """The checked content of a model file.

    Attributes:
        path: the file.
        description: of its models.
        models: the tensors of each of them, by its name.
        network: a network of theirs, with initial weights.
    """

    path: Path
    description: ModelDescription
    models: Mapping[str, Tensors]
    network: Model

    def networks(self) -> tuple[str, ...]:
        """Return the names of the models that are networks; the others only accompany them."""
        known = set(self.network.names)
        return tuple(name for name, tensors in self.models.items() if known & tensors.keys())

    def tensors(self) -> Tensors:
        """Return all tensors in the order of their digest, which the file does not keep."""
        several, order = len(self.models) > 1, self.network.names
        return {
            f"{model}/{name}" if several else name: tensors[name]
            for model, tensors in self.models.items()
            for name in (order if tensors.keys() == set(order) else tensors)
        }

    def module(self, name: str, *, user_models: bool) -> nn.Module:
        """Return a model's network with its weights, for predictions."""
        model = _built(self.path, self.description, user_models)
        model.put_weights(self.models[name])
        return model.module.requires_grad_(False).eval()


def read_model_file(path: Path, *, user_models: bool = False) -> ModelFile:
    """Return the content of a model file, checked against its network and its digest.

    Args:
        path: the file.
        user_models: whether the network may be a user's own code, which is then imported.

    Raises:
        MissingDataError: there is no such file.
        DataError: ``model.file``: it is not a model file; ``model.weights``: its tensors do not fit
            its network; ``model.damaged``: they have changed; ``model.refused``: the network is a
            user's own code.
        RecipeError: this version has no such network, or the user's code fails.
        StorageError: it cannot be read.
    """
    require_file(path)
    with opened_model_file(path) as file:
        description = file.description
        network = _checked_network(path, description, user_models)
        content = ModelFile(path, description, file.models(), network)
    names = content.networks()
    if not names:
        raise _damaged(path, "it lacks the weights of its models")
    for name in names:
        network.check(content.models[name])
    if weights_digest(content.tensors()) != description.weights_digest:
        raise _damaged(path, "its tensors are not those that its run wrote")
    return content


def _checked_network(path: Path, description: ModelDescription, user_models: bool) -> Model:
    """Return the file's network; a network larger than the file is not built.

    Raises:
        DataError: ``model.weights``: the network has more weights than the file.
    """
    section, inputs = _section(description), (description.shape, description.outputs)
    if min(*description.shape, description.outputs, 1) < 1:
        raise _not_buildable(path, f"inputs {description.shape}, {description.outputs} outputs")
    with _buildable(path):
        needed = training_bytes(section, *inputs, allow_user=user_models)
    if needed is not None and needed // COPIES > path.stat().st_size:
        raise DataError(
            f"{path} has fewer weights than its model {section.name}.",
            code="model.weights",
            hint="the file is damaged or was not written by EdgeFed; copy it again",
        )
    return _built(path, description, user_models)


def _built(path: Path, description: ModelDescription, user_models: bool) -> Model:
    section, inputs = _section(description), (description.shape, description.outputs)
    with _buildable(path):
        return build(section, *inputs, seed=0, allow_user=user_models)


def _section(description: ModelDescription) -> ModelSection:
    """Return the network alone: all of its weights are in the file."""
    return ModelSection(name=description.section.name, **description.section.settings())


@contextmanager
def _buildable(path: Path) -> Iterator[None]:
    try:
        yield
    except EdgeFedError:
        raise
    except BUILD_FAILED as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise _not_buildable(path, first[:200]) from error


def _not_buildable(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} describes a network that cannot be built: {why}.",
        code="model.file",
        hint="give the model.safetensors of a run of EdgeFed",
    )


def chosen_models(content: ModelFile, name: str) -> dict[str, float]:
    """Return the models that predict, each with its share.

    Args:
        content: of the file.
        name: of the only model to take; empty for all of them together.

    Raises:
        UsageError: ``model.several``: there is no such model, or they cannot be combined.
    """
    names, known = content.networks(), dict(_shares(content.description))
    if name in names:
        return {name: 1.0}
    shares = {model: known[model] for model in names if known.get(model, 0) > 0}
    if not name and len(names) == 1:
        return {names[0]: 1.0}
    if not name and shares:
        return shares
    listed = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    reason = (
        f"{content.path} has no model '{name}'"
        if name
        else f"{content.path} holds {len(names)} models, which it does not say how to combine"
    )
    raise UsageError(
        f"{reason}.",
        code="model.several",
        hint=f"choose one with --model: {listed}" if len(names) > 1 else "leave --model out",
    )


def _shares(description: ModelDescription) -> Iterator[tuple[str, float]]:
    yield from zip(description.models, description.shares, strict=False)


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"{path} is damaged: {what}.",
        code="model.damaged",
        hint="copy the file again, or take the one in the run's folder",
    )
