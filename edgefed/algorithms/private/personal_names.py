"""Which of a model's weights a recipe's ``[personal]`` table keeps on devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from edgefed.config.recipes.recipe import PersonalPreset, PersonalSection
from edgefed.errors import DataError, RecipeError
from edgefed.learn.base.torch_private import BatchOrInstanceNorm
from edgefed.learn.modeling.model import Model

NORMALISATION = (BatchOrInstanceNorm, nn.GroupNorm, nn.LayerNorm)
"""Layers that ``fedbn`` keeps on devices: batch and instance, group and layer normalisation."""

MOST_NAMES = 12
"""Names that a hint lists."""


def personal_names(section: PersonalSection, model: Model) -> tuple[str, ...]:
    """Return the names of the weights and buffers that stay on devices, in the model's order.

    Raises:
        RecipeError: ``personal.weights``: a pattern or the preset finds nothing in this model, or
            no trained weight remains that is shared.
    """
    names = {name for pattern in section.weights for name in _matching(pattern, model)}
    if section.preset != "none":
        names |= _of_preset(section.preset, model)
    if names.issuperset(model.parameter_names):
        raise _refused("The recipe keeps every weight on the devices, so nothing is shared.", model)
    return tuple(name for name in model.names if name in names)


def _matching(pattern: str, model: Model) -> set[str]:
    """Return the names that a pattern matches."""
    names = {name for name in model.names if fnmatchcase(name, pattern)}
    if not names and any(fnmatchcase(name, pattern) for name in model.frozen_names):
        raise _frozen(f"{pattern!r} (personal.weights)")
    if not names:
        raise _refused(f"No weight of the model is called {pattern!r} (personal.weights).", model)
    return names


def _of_preset(preset: PersonalPreset, model: Model) -> set[str]:
    """Return the names that a preset stands for."""
    named = _PRESETS[preset](model)
    if not named:
        raise _refused(f'The model has nothing that personal.preset = "{preset}" names.', model)
    trained = named.intersection(model.names)
    if not trained:
        raise _frozen(f'personal.preset = "{preset}"')
    return trained


def _output_bias(model: Model) -> set[str]:
    return {name for name in _output_layer(model) if name.endswith(".bias") or name == "bias"}


def _output_layer(model: Model) -> set[str]:
    try:
        return _within(model.output_layer.name, model)
    except DataError:
        return set()


def _input_layer(model: Model) -> set[str]:
    """Return the names of the layer that is used first."""
    used: list[str] = []

    def note(name: str) -> Callable[[nn.Module, Any], None]:
        return lambda _layer, _inputs: used.append(name)

    layers = (
        (name, layer)
        for name, layer in model.module.named_modules()
        if any(weight.dim() > 1 for weight in layer.parameters(recurse=False))
    )
    handles = [layer.register_forward_pre_hook(note(name)) for name, layer in layers]
    was_training = model.module.training
    # In evaluation mode, so that running statistics stay as they are
    model.module.eval()
    try:
        with torch.no_grad():
            model.module(model.probe_inputs())
    finally:
        model.module.train(was_training)
        for handle in handles:
            handle.remove()
    return _within(used[0], model) if used else set()


def _normalisation(model: Model) -> set[str]:
    """Return the names of all normalisation layers, with their running statistics."""
    layers = model.module.named_modules()
    names = [name for name, layer in layers if isinstance(layer, NORMALISATION)]
    return {weight for name in names for weight in _within(name, model)}


def _within(layer: str, model: Model) -> set[str]:
    """Return the names of a layer's weights and buffers."""
    start = f"{layer}." if layer else ""
    return {name for name in model.all_names if name.startswith(start)}


_PRESETS: Mapping[PersonalPreset, Callable[[Model], set[str]]] = {
    "biased": _output_bias,
    "fedper": _output_layer,
    "lg": _input_layer,
    "fedbn": _normalisation,
}


def _frozen(what: str) -> RecipeError:
    return RecipeError(
        f"All weights that {what} names are frozen, and devices keep only what they train.",
        code="personal.weights",
        hint="name weights that are trained, or train more of the model (model.train)",
    )


def _refused(message: str, model: Model) -> RecipeError:
    names = ", ".join(model.names[:MOST_NAMES])
    more = f" and {len(model.names) - MOST_NAMES} more" if len(model.names) > MOST_NAMES else ""
    return RecipeError(
        message,
        code="personal.weights",
        hint=f"name weights of the model in the [personal] table: {names}{more}",
    )
