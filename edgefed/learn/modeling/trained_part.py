"""Which weights of a module a recipe's ``train`` freezes.

A normalisation layer goes as a whole: if none of its weights is trained, its running statistics are
frozen too, and it stays in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn

from edgefed.errors import RecipeError
from edgefed.learn.base.torch_private import BatchOrInstanceNorm

NORMALISATION = (BatchOrInstanceNorm, nn.GroupNorm, nn.LayerNorm)
"""Layers that count with the layer before them, and are trained with it."""

MOST_NAMES = 12
"""Names that a hint lists."""


def frozen_part(
    module: nn.Module, train: str | tuple[str, ...], output_layer: Callable[[], str]
) -> frozenset[str]:
    """Return the names of the weights and buffers that stay as they are.

    Args:
        module: the network.
        train: ``all``, ``head``, ``last:N``, or patterns of names.
        output_layer: returns the name of the last linear layer, or raises DataError.

    Raises:
        RecipeError: ``model.train``: there are fewer than N layers, or a pattern finds no weight.
        DataError: ``model.features``: ``head``, and the network does not end in a linear layer.
    """
    if train == "all":
        return frozenset()
    names = [name for name, _ in module.named_parameters()]
    if train == "head":
        wanted = {name for name in names if _within(name, output_layer())}
    elif isinstance(train, str):
        wanted = _of_last_layers(module, int(train.partition(":")[2]))
    else:
        wanted = {name for pattern in train for name in _matching(pattern, names)}
    kept = {*names, *(name for name, _ in module.named_buffers())}
    trained = wanted | _statistics(module, wanted)
    return frozenset(name for name in kept if name not in trained)


def still_layers(module: nn.Module, frozen: frozenset[str]) -> tuple[nn.Module, ...]:
    """Return the normalisation layers that have weights or statistics, all of them frozen."""
    return tuple(
        layer
        for name, layer in module.named_modules()
        if isinstance(layer, NORMALISATION)
        and (own := set(_own_names(name, layer)))
        and own <= frozen
    )


def _of_last_layers(module: nn.Module, count: int) -> set[str]:
    """Return the names of the last layers' weights, with those of their normalisation.

    Weights that lie in no layer, such as a class token, belong to the first one.
    """
    layers: list[set[str]] = []
    for name, layer in module.named_modules():
        own = {f"{name}.{weight}" if name else weight for weight, _ in _own_parameters(layer)}
        if not own:
            continue
        if layers and isinstance(layer, NORMALISATION):
            layers[-1] |= own
        else:
            layers.append(own)
    if count > len(layers):
        raise _unfit(
            f"The model has {len(layers)} layers with weights, not {count}",
            f'choose at most train = "last:{len(layers)}", or "all"',
        )
    return set().union(*layers[-count:])


def _own_parameters(layer: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    return layer.named_parameters(recurse=False)


def _own_names(name: str, layer: nn.Module) -> list[str]:
    own = [*_own_parameters(layer), *layer.named_buffers(recurse=False)]
    return [f"{name}.{weight}" if name else weight for weight, _ in own]


def _statistics(module: nn.Module, trained: set[str]) -> set[str]:
    """Return the names of all that belongs to normalisation layers with trained weights."""
    names: set[str] = set()
    for name, layer in module.named_modules():
        own = _own_names(name, layer)
        if isinstance(layer, NORMALISATION) and trained.intersection(own):
            names |= set(own)
    return names


def _matching(pattern: str, names: list[str]) -> set[str]:
    matching = {name for name in names if fnmatchcase(name, pattern)}
    if not matching:
        shown = ", ".join(names[-MOST_NAMES:])
        raise _unfit(f"No weight of the model is called {pattern!r}", f"its last weights: {shown}")
    return matching


def _within(name: str, layer: str) -> bool:
    return name.startswith(f"{layer}.") if layer else "." not in name


def _unfit(what: str, hint: str) -> RecipeError:
    return RecipeError(f"{what} (model.train).", code="model.train", hint=hint)
