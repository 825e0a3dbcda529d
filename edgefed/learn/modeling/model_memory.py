"""Estimate the memory that training a model takes, before allocating it.

The module is created on torch's ``meta`` device, where tensors have a shape but no values. The
estimate is `COPIES` times its trained weights and buffers: the module's own, the blob with the
weights and its arrays, the weights in training and their initial values, gradients, moments,
intermediate values of an objective, and the answer with its encoding. Frozen weights count
`FROZEN_COPIES` times. Activations of a batch and the samples are
not included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError
from edgefed.files.user_code import FAILED
from edgefed.learn.modeling.model import Model, module_bytes
from edgefed.learn.modeling.model_building import NETWORKS, build, make_module, seeded
from edgefed.learn.modeling.trained_part import frozen_part
from edgefed.learn.modeling.user_models import is_user_model
from edgefed.learn.networks.base import Shape
from edgefed.learn.networks.torchvision_classifiers import is_torchvision
from edgefed.process.memory import free_memory
from edgefed.terminal.units import size

COPIES = 11
"""Copies of the weights that exist at once; on a CPU, ``fedprox`` takes 9.2, with Adam 10.3."""

FROZEN_COPIES = 4
"""Copies of frozen weights: the module's own, the blob, its arrays, and those of the features'
computation in another order of memory."""

_DRAWS = ("normal_", "uniform_", "trunc_normal_", "random_", "bernoulli_")


class ModelTooLargeError(DataError):
    """Training a model would take more memory than it may."""

    default_code = "model.too_large"


def default_memory(device: torch.device) -> int:
    """Return half of the memory that is free where a model is trained."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) // 2
    return free_memory() // 2


def training_bytes(
    section: ModelSection, shape: Shape, classes: int, *, allow_user: bool = False
) -> int | None:
    """Return how many bytes training a model takes; None for others' code that cannot tell.

    Raises:
        RecipeError, DataError: as ``build``.
    """
    try:
        with seeded(0), torch.device("meta"), _Undrawn():
            module = make_module(section, shape, classes, allow_user=allow_user)
            return needed_bytes(module, _frozen(section, module))
    except FAILED:
        own = section.name in NETWORKS or is_torchvision(section.name)
        if own or (is_user_model(section.name) and not allow_user):
            raise
        # Code that looks at values fails where there are none; it says more when it is run.
        return None


def _frozen(section: ModelSection, module: nn.Module) -> frozenset[str]:
    """Return the frozen weights, assuming that the last linear layer is the output layer.

    The check would put inputs through the module, and ``meta`` would load torch's compiler.
    """
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    return frozen_part(module, section.train, lambda: linear[-1] if linear else "")


def needed_bytes(module: nn.Module, frozen: Collection[str]) -> int:
    """Return how many bytes training a module takes, of which some weights are frozen."""
    state = module.state_dict(keep_vars=True)
    still = sum(int(state[name].numel()) * int(state[name].element_size()) for name in frozen)
    return COPIES * (module_bytes(module) - still) + FROZEN_COPIES * still


def check_memory(name: str, needed: int, available: int) -> None:
    """Check that training a model fits.

    Raises:
        ModelTooLargeError: it does not.
    """
    if needed > available:
        raise ModelTooLargeError(
            f"Training the model {name} takes about {size(needed)} ({needed} bytes) of memory;"
            f" {size(available)} ({available} bytes) are available here.",
            hint="choose a smaller model, or raise memory in the settings of this machine",
        )


def build_within(
    section: ModelSection,
    shape: Shape,
    classes: int,
    seed: int,
    available: int,
    *,
    allow_user: bool = False,
    make_room: Callable[[int], None] = lambda needed: None,
) -> Model:
    """Return the model of a recipe, as ``build`` does, if training it fits into memory.

    Args:
        section: the recipe's ``[model]`` table.
        shape: shape of one input.
        classes: number of labels.
        seed: of the initial weights.
        available: how many bytes training may take.
        allow_user: as ``build`` takes it.
        make_room: called with the bytes needed before they are allocated, where that is known.

    Raises:
        ModelTooLargeError: it does not fit; nothing was built, unless only building it could tell.
        RecipeError, DataError: as ``build``.
    """
    needed = training_bytes(section, shape, classes, allow_user=allow_user)
    check_memory(section.name, needed or 0, available)
    make_room(needed or 0)
    model = build(section, shape, classes, seed, allow_user=allow_user)
    check_memory(section.name, needed_bytes(model.module, model.frozen_names), available)
    return model


class _Undrawn(TorchFunctionMode):
    """Leave out drawing initial weights, for which ``meta`` would load half of torch's compiler."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        named = dict(kwargs or {})
        if getattr(func, "__name__", "") in _DRAWS:
            return named["tensor"] if "tensor" in named else args[0]
        return func(*args, **named)
