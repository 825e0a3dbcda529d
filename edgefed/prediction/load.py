"""Load a trained model from its file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from edgefed.learn.modeling.model_file_reader import MODEL_FILE
from edgefed.prediction.loaded_model import LoadedModel
from edgefed.prediction.model_file import chosen_models, read_model_file
from edgefed.prediction.networks import Outputs


def load_model(
    source: str | PathLike[str],
    *,
    model: str = "",
    user_models: bool = False,
    device: str | None = None,
) -> LoadedModel:
    """Return the model of a file, ready to predict.

    Several models in one file, such as those of an ensemble, predict together if the run's
    algorithm defines their weights.

    Args:
        source: a ``model.safetensors``, or the folder of a run that has one.
        model: the only model of the file to take; empty for all of them.
        user_models: whether the network may be a user's own code, which is then imported.
        device: ``cpu``, ``cuda`` or ``cuda:N``; None for a GPU if there is one.

    Raises:
        MissingDataError: there is no such file.
        DataError: ``model.file``, ``model.weights`` or ``model.damaged``: it is not the whole file
            of a model; ``model.refused``: its network is a user's own code.
        UsageError: ``model.several``: its models cannot be combined, or none has that name;
            ``device.unavailable``.
        RecipeError: this version has no such network.
    """
    path = Path(source).expanduser()
    content = read_model_file(path / MODEL_FILE if path.is_dir() else path, user_models=user_models)
    shares = chosen_models(content, model)
    modules = [content.module(name, user_models=user_models) for name in shares]
    outputs = Outputs(modules, [*shares.values()], content.description.is_classifier)
    return LoadedModel(content.description, content.network, outputs, device)
