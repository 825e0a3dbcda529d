"""User-defined models: import ``package.module:factory``, build the model, and test it.

The factory is called as ``factory(shape, classes, **settings)`` with the shape of one input, the
number of classes and the further keys of the recipe's ``[model]`` table, and returns a
``torch.nn.Module`` that maps (batch, …) to (batch, classes). Importing a module runs its code, so
each program decides whether it imports the module that a recipe or a task names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.parameter import is_lazy

from edgefed.errors import DataError, EdgeFedError, RecipeError
from edgefed.files.user_code import FAILED, error_line, imported
from edgefed.learn.networks.base import Shape
from edgefed.learn.networks.torchvision_classifiers import is_torchvision

ANY_TOKEN = 2**31
"""The vocabulary of a model that takes tokens and holds no embedding to tell how many."""


def is_user_model(name: str) -> bool:
    """Return whether a model's name means a user's own code."""
    return ":" in name and not is_torchvision(name)


def make_user_model(
    name: str, settings: Mapping[str, Any], shape: Shape, classes: int
) -> nn.Module:
    """Return the factory's module; its initial weights may draw from torch's global generator.

    Raises:
        RecipeError: there is no such module or factory, it fails, or makes something unusable.
    """
    factory = imported("model", name)
    return checked_module(
        name,
        lambda: factory(shape, classes, **settings),
        shape,
        classes,
        "it is called as factory(shape, classes, **other keys of [model])",
    )


def checked_module(
    name: str, make: Callable[[], Any], shape: Shape, classes: int, hint: str
) -> nn.Module:
    """Return the module that users' code makes, checked.

    Raises:
        RecipeError: ``model.factory``: it fails, or makes something unusable.
    """
    try:
        module = make()
    except EdgeFedError:
        raise
    except FAILED as error:
        raise RecipeError(
            f"The model {name} cannot be created for inputs {shape} and {classes} classes:"
            f" {error_line(error)}.",
            code="model.factory",
            hint=hint,
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
            reason = error_line(second if embeddings else error)
            raise DataError(
                f"The model {name} does not accept inputs of shape {shape}: {reason}.",
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
    """Return a module's output, on copies of its weights and without dropout."""
    copies = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    training = module.training
    module.eval()
    try:
        return functional_call(module, copies, (inputs,))
    finally:
        module.train(training)
