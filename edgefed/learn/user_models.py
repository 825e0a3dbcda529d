"""User-defined models: import ``package.module:factory``, build the model, and test it.

The factory is called as ``factory(shape, classes, **settings)`` with the shape of one input, the
number of classes and the further keys of the recipe's ``[model]`` table, and returns a
``torch.nn.Module`` that maps (batch, …) to (batch, classes). Importing a module runs its code, so
each program decides whether it imports the module that a recipe or a task names.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from edgefed.errors import DataError, EdgeFedError, RecipeError
from edgefed.learn.networks.base import Shape
from edgefed.learn.networks.torchvision_classifiers import is_torchvision

ANY_TOKEN = 2**31
"""The vocabulary of a model that takes tokens and holds no embedding to tell how many."""

SHOWN = 300
"""Most characters of somebody else's error that are shown."""

FAILED = (Exception, SystemExit)
"""How somebody else's code fails; code that ends the program must not end ours."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_user_model(name: str) -> bool:
    """Return whether a model's name means a user's own code."""
    return ":" in name and not is_torchvision(name)


def refused(name: str) -> DataError:
    """Return the error of a program that runs no user models."""
    return DataError(
        f"The model {name} is user code, which is not allowed here.",
        code="model.refused",
        hint="to allow it, set user_models = true in the settings of this program",
    )


def make_user_model(
    name: str, settings: Mapping[str, Any], shape: Shape, classes: int
) -> nn.Module:
    """Return what the factory makes; its initial weights may draw from torch's global generator.

    Raises:
        RecipeError: there is no such module or factory, it fails, or makes something unusable.
    """
    factory = _factory(name)
    try:
        module = factory(shape, classes, **settings)
    except EdgeFedError:
        raise
    except FAILED as error:
        raise RecipeError(
            f"The model {name} cannot be created for inputs {shape} and {classes} classes:"
            f" {_told(error)}.",
            code="model.factory",
            hint="it is called as factory(shape, classes, **other keys of [model])",
        ) from error
    if not isinstance(module, nn.Module):
        raise RecipeError(
            f"The model {name} returns {type(module).__name__}, not a torch.nn.Module.",
            code="model.factory",
            hint="return the module itself, not its class",
        )
    _check_tensors(name, module)
    return module


def try_out(name: str, module: nn.Module, shape: Shape, classes: int) -> int | None:
    """Put zeros through a module; return how many tokens it knows, or None if it takes numbers.

    Real numbers are tried before token numbers. The module is left as it was.

    Raises:
        DataError: it takes neither.
        RecipeError: it does not answer one score a class.
    """
    try:
        answer, tokens = _answer(module, torch.zeros(2, *shape)), None
    except FAILED as error:
        embeddings = [part for part in module.modules() if isinstance(part, nn.Embedding)]
        try:
            answer = _answer(module, torch.zeros(2, *shape, dtype=torch.int64))
        except FAILED as second:
            told = _told(second if embeddings else error)
            raise DataError(
                f"The model {name} does not accept inputs of shape {shape}: {told}.",
                code="model.input",
                hint=f"its input is a batch (n, {', '.join(map(str, shape))})",
            ) from error
        tokens = max((part.num_embeddings for part in embeddings), default=ANY_TOKEN)
    shown = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
    if shown != (2, classes) or not answer.is_floating_point():
        raise RecipeError(
            f"The model {name} returns {shown} for a batch of 2, not (2, {classes}).",
            code="model.output",
            hint="return one score for each sample and class, as a tensor of floats",
        )
    return tokens


def _factory(name: str) -> Callable[..., Any]:
    """Return the factory of that name."""
    if not NAME.fullmatch(name):
        raise RecipeError(
            f"{name!r} does not name a model of your own.",
            code="model.unknown",
            hint="write package.module:factory",
        )
    module_name, _, path = name.partition(":")
    found: Any = _imported(name, module_name)
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as error:
            raise RecipeError(
                f"The model {name} cannot be found: {module_name} has no {path}.",
                code="model.import",
                hint=f"define {path} in {module_name}, at the top level",
            ) from error
    if not callable(found):
        raise RecipeError(
            f"The model {name} is {type(found).__name__}, which cannot be called.",
            code="model.factory",
            hint="name a function or a class that creates the module",
        )
    factory: Callable[..., Any] = found
    return factory


def _imported(name: str, module_name: str) -> object:
    """Return the module of that name."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _import_failed(name, error) from error
        raise RecipeError(
            f"The model {name} cannot be found: there is no module {missing!r}.",
            code="model.import",
            hint="install its package, or add its folder to PYTHONPATH, on each machine",
        ) from error
    except FAILED as error:
        raise _import_failed(name, error) from error


def _import_failed(name: str, error: BaseException) -> RecipeError:
    return RecipeError(
        f"The model {name} cannot be imported: {_told(error)}.",
        code="model.import",
        hint="import the module in a Python shell to see where it fails",
    )


def _check_tensors(name: str, module: nn.Module) -> None:
    """Check that the module's weights can be trained, sent and averaged."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise RecipeError(
            f"The model {name} has no weights to train.",
            code="model.module",
            hint="make its weights nn.Parameter with requires_grad",
        )
    tensors = [*module.named_parameters(), *module.named_buffers()]
    lazy = next((key for key, tensor in tensors if is_lazy(tensor)), None)
    if lazy is not None:
        raise RecipeError(
            f"The model {name} has lazy layers: {lazy} has no shape before the first input.",
            code="model.lazy",
            hint="use layers with fixed sizes instead of lazy ones",
        )
    kept = module.state_dict()
    for key, tensor in tensors:
        whole = tensor.dtype in (torch.int64, torch.int32) and key not in dict(
            module.named_parameters()
        )
        if key in kept and tensor.dtype != torch.float32 and not whole:
            raise RecipeError(
                f"The model {name} has {key} in {str(tensor.dtype).removeprefix('torch.')}.",
                code="model.module",
                hint="weights are float32; buffers are float32, int64 or not persistent",
            )


@torch.no_grad()
def _answer(module: nn.Module, inputs: torch.Tensor) -> Any:
    """Return what a module answers, on copies of its weights and without dropout."""
    copies = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    training = module.training
    module.eval()
    try:
        return functional_call(module, copies, (inputs,))
    finally:
        module.train(training)


def _told(error: BaseException) -> str:
    """Return an error of somebody else's code in one line, without a full stop."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:SHOWN].rstrip(".: ")
