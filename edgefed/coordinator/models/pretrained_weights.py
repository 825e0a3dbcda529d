"""Weights that were trained elsewhere, for a run's network: torchvision's own, or a file.

An output layer for another number of classes keeps its drawn values. All other weights must fit;
the error names those that do not.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.torch_version import TorchVersion

from edgefed.errors import DataError, MissingDataError, RecipeError, UsageError
from edgefed.learn.base.transfers import download
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.networks.torchvision_classifiers import PREFIX, is_torchvision

PUBLISHED = "default"
"""The value of ``model.weights`` for torchvision's own."""

SAFE_TORCH = "2.6"
"""The first torch that reads nothing but tensors of a ``.pth`` file; others can be made to run code
of it, also with ``weights_only`` (CVE-2025-32434)."""

NESTED = ("state_dict", "model", "model_state_dict", "weights")
"""Where files of training programs keep a network's weights among other things."""

AUXILIARY = ("aux", "AuxLogits")
"""How the names of auxiliary classifiers begin, which are built for training elsewhere only."""

SHOWN = 4
"""Most names that an error lists."""


def pretrained(model: Model, path: Path | None) -> tuple[Tensors, str]:
    """Return all arrays of a model with weights from elsewhere, and a note for the operator.

    Args:
        model: the run's, with its own initial values.
        path: of a ``.safetensors`` or ``.pth`` file; None for torchvision's own.

    Raises:
        UsageError: ``model.torch``, as ``require_safe_torch``.
        RecipeError: ``model.weights``: there are no published weights for this network.
        MissingDataError: ``model.download``: there is no network.
        DataError: ``model.weights``: the file holds no weights, or those of another network.
    """
    if path is None:
        return fitted(model, _published(model), f"torchvision's weights of {_name(model)}")
    return fitted(model, _read(path), str(path))


def fitted(model: Model, tensors: Mapping[str, torch.Tensor], where: str) -> tuple[Tensors, str]:
    """Return the arrays of ``tensors`` in a model's shapes, and a note for the operator.

    Raises:
        DataError: ``model.weights``: they are another network's.
    """
    state = model.module.state_dict()
    head = _head_names(model)
    arrays: Tensors = {}
    left: list[str] = []
    wrong: list[str] = []
    for name in model.all_names:
        given = tensors.get(name)
        if given is not None and given.shape == state[name].shape:
            arrays[name] = np.array(given.detach().to(state[name].dtype).numpy(), order="C")
            continue
        if name in head or (given is None and name.endswith("num_batches_tracked")):
            left += [name] * (name in head)
            arrays[name] = np.array(download(state[name], "model").numpy(), order="C")
            continue
        wrong.append(f"{name} is {_shape(given)}, not {_shape(state[name])}")
    wrong += [
        f"{name} is not a part of the network"
        for name in tensors
        if name not in state and name not in head and not name.startswith(AUXILIARY)
    ]
    if wrong:
        more = f", and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise DataError(
            f"{where} does not fit the model {_name(model)}: {', '.join(wrong[:SHOWN])}{more}.",
            code="model.weights",
            hint="choose the network that these weights were trained with",
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise DataError(
                f"{where} holds values in {name} that are not finite.",
                code="model.weights",
                hint="choose other weights",
            )
    layer = left[0].rpartition(".")[0] if left else ""
    return arrays, f"the output layer {layer} is new: {where} has other classes" if left else ""


def require_safe_torch(path: Path) -> None:
    """Check that this torch can open a file of weights without running code of it.

    Raises:
        UsageError: ``model.torch``: it cannot.
    """
    if path.suffix != ".safetensors" and TorchVersion(torch.__version__) < SAFE_TORCH:
        raise UsageError(
            f"torch {torch.__version__} could run code of {path}, which is not opened"
            " (CVE-2025-32434).",
            code="model.torch",
            hint="install torch 2.6 or newer, or save the weights as .safetensors",
        )


def published_file(name: str) -> tuple[str, Path]:
    """Return where torchvision publishes the weights of a network, and where torch keeps them.

    Raises:
        RecipeError: ``model.weights``: there are none.
    """
    if not is_torchvision(name):
        raise RecipeError(
            f"There are no published weights for the model {name}.",
            code="model.weights",
            hint=f'choose a "{PREFIX}…" model, or a file of weights',
        )
    url = _entry(name).url
    return url, Path(torch.hub.get_dir()) / "checkpoints" / Path(url).name


def _entry(name: str) -> Any:
    import torchvision

    return torchvision.models.get_model_weights(name.removeprefix(PREFIX)).DEFAULT


def _head_names(model: Model) -> frozenset[str]:
    """Return the names of the output layer's weights; of the last layer's if it is not linear."""
    try:
        layer = model.output_layer.name
    except DataError:
        layer = model.all_names[-1].rpartition(".")[0]
    return frozenset(name for name in model.all_names if name.rpartition(".")[0] == layer)


def _published(model: Model) -> Mapping[str, torch.Tensor]:
    """Return torchvision's published weights of a network; downloaded once into torch's cache."""
    name = _name(model)
    url, target = published_file(name)
    try:
        state: Mapping[str, torch.Tensor] = _entry(name).get_state_dict(
            progress=False, check_hash=True
        )
    except (OSError, RuntimeError) as error:
        raise MissingDataError(
            f"The weights of {name} cannot be downloaded: {' '.join(str(error).split())[:200]}.",
            code="model.download",
            hint=f"connect this machine, or copy {url} to {target}",
        ) from error
    return state


def _read(path: Path) -> Mapping[str, torch.Tensor]:
    """Return the tensors of a file by name."""
    require_safe_torch(path)
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _unreadable(path, "it holds more than tensors, and is not opened") from error
    except Exception as error:
        # Damaged files make their readers fail in many ways.
        raise _unreadable(path, " ".join(str(error).split())[:200]) from error
    for key in NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in content.items()
    ):
        raise _unreadable(path, "it is not a state_dict: tensors by name")
    return content


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} cannot be read as weights: {why}.",
        code="model.weights",
        hint="save the network's state_dict with torch.save, or with safetensors",
    )


def _name(model: Model) -> str:
    return model.section.name if model.section is not None else type(model.module).__name__


def _shape(tensor: torch.Tensor | None) -> str:
    if tensor is None:
        return "missing"
    return "x".join(str(side) for side in tensor.shape) or "a single number"
