"""Build a recipe's model, with initial weights that depend on nothing but a seed.

Installed packages offer networks through the entry point ``edgefed.models``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import DataError, RecipeError
from edgefed.files.plugins import Plugins
from edgefed.files.user_code import refused
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.output_layer import find_output_layer
from edgefed.learn.modeling.trained_part import frozen_part
from edgefed.learn.modeling.user_models import (
    checked_module,
    is_user_model,
    make_user_model,
    try_out,
)
from edgefed.learn.networks.base import Network, NetworkSettings, Shape
from edgefed.learn.networks.cnn import CNN
from edgefed.learn.networks.lenet5 import LENET5
from edgefed.learn.networks.lenet5_wide import LENET5_WIDE
from edgefed.learn.networks.lstm import LSTM
from edgefed.learn.networks.mlp import MLP
from edgefed.learn.networks.resnet18 import RESNET18
from edgefed.learn.networks.resnet20 import RESNET20
from edgefed.learn.networks.torchvision_classifiers import (
    is_torchvision,
    torchvision_network,
    try_classifier,
)
from edgefed.learn.networks.vgg9 import VGG9


def network_plugins(built_in: Callable[[], Collection[str]]) -> Plugins[Network]:
    """Return the networks that packages offer beside those that are built in."""
    # Fleets run models of a user's own, too, which user_models.py reads.
    return Plugins(
        "model", "edgefed.models", built_in, _checked, code="model.plugin", in_modules=False
    )


def _checked(name: str, member: object) -> Network:
    """Return a package's object as a network of this name, whose factory raises EdgeFed errors.

    Raises:
        ValueError: it is not one.
    """
    if not isinstance(member, Network):
        raise ValueError("is no edgefed.extension.Network")
    if member.name != name:
        raise ValueError(f"has the name '{member.name}'")
    if not (isinstance(member.settings, type) and issubclass(member.settings, NetworkSettings)):
        raise ValueError("has settings that are no subclass of NetworkSettings")
    if not callable(member.make):
        raise ValueError("has no function that makes the module")

    def make(settings: Any, shape: Shape, classes: int) -> nn.Module:
        hint = "report this to the authors of the package that offers the model"
        return checked_module(
            name, lambda: member.make(settings, shape, classes), shape, classes, hint
        )

    return replace(member, make=make)


NETWORKS: Mapping[str, Network] = {
    network.name: network
    for network in (CNN, LENET5, LENET5_WIDE, LSTM, MLP, RESNET18, RESNET20, VGG9)
}
"""Every network of EdgeFed's own that a recipe can name."""

NETWORK_PLUGINS = network_plugins(lambda: NETWORKS)
"""The networks of installed packages."""


def build(
    section: ModelSection,
    shape: Shape,
    classes: int,
    seed: int,
    networks: Mapping[str, Network] = NETWORKS,
    *,
    allow_user: bool = False,
) -> Model:
    """Return the model of a recipe, with initial weights that depend on nothing but ``seed``.

    Torch's global generator is left as it was.

    Args:
        section: the recipe's ``[model]`` table.
        shape: shape of one input.
        classes: number of labels.
        seed: of the initial weights.
        networks: where the name is looked up.
        allow_user: whether a name such as ``package.module:factory`` may import and run that code.

    Raises:
        RecipeError: no such model, or a setting that it does not have or cannot take.
        DataError: the model cannot take inputs of that shape, or ``model.refused``.
    """
    if classes < 1:
        raise DataError(
            f"A model needs at least one class, not {classes}.",
            code="model.classes",
            hint="check the labels of the data",
        )
    with seeded(seed):
        module = make_module(section, shape, classes, networks, allow_user=allow_user)
        if is_user_model(section.name):
            tokens = try_out(section.name, module, shape, classes)
        else:
            network = find_network(section.name, networks)
            settings = _settings(network, section.settings())
            tokens = network.vocabulary and network.vocabulary(settings, classes)
            if is_torchvision(section.name):
                try_classifier(section.name, module, shape)
            elif section.name not in networks and tokens is None:
                tokens = try_out(section.name, module, shape, classes)
    return Model(module, shape, classes, tokens, section, frozen_of(section, module, shape, tokens))


def free_initial_weights(model: Model, seed: int, *, allow_user: bool = False) -> None:
    """Free the memory of the initial weights of a model that ``build`` made with this seed."""
    section = model.section
    if section is not None:
        again = partial(build, section, model.shape, model.classes, seed, allow_user=allow_user)
        in_place = section.name in NETWORKS or is_torchvision(section.name)
        model.free_weights(again, in_place=in_place)


def frozen_of(
    section: ModelSection, module: nn.Module, shape: Shape, tokens: int | None
) -> frozenset[str]:
    """Return the names of the weights that a recipe's ``model.train`` freezes.

    Raises:
        RecipeError, DataError: as ``frozen_part``.
    """

    def output_layer() -> str:
        part = next(module.parameters())
        kind = part.dtype if tokens is None else torch.int64
        inputs = torch.zeros(2, *shape, dtype=kind, device=part.device)
        return find_output_layer(module, inputs).name

    return frozen_part(module, section.train, output_layer)


def complete_model(
    section: ModelSection, networks: Mapping[str, Network] = NETWORKS
) -> ModelSection:
    """Return a section with every setting of its network written out, defaults too.

    The settings of a user's own model belong to its code and stay as they are. The source of the
    initial weights is left out: the section then holds only the facts that devices need.

    Raises:
        RecipeError: no such model, or a setting that it does not have or cannot take.
    """
    if is_user_model(section.name):
        return section.model_copy(update={"weights": "", "start": ""})
    settings = network_settings(section, networks).model_dump(mode="json")
    return ModelSection(name=section.name, train=section.train, **settings)


def network_settings(
    section: ModelSection, networks: Mapping[str, Network] = NETWORKS
) -> NetworkSettings:
    """Return the settings of a section's network.

    Raises:
        RecipeError: no such model, or a setting that it does not have or cannot take.
    """
    return _settings(find_network(section.name, networks), section.settings())


def make_module(
    section: ModelSection,
    shape: Shape,
    classes: int,
    networks: Mapping[str, Network] = NETWORKS,
    *,
    allow_user: bool = False,
) -> nn.Module:
    """Return the module of a recipe's model, made on torch's current device; see ``build``."""
    if is_user_model(section.name):
        if not allow_user:
            raise refused("model", section.name)
        return make_user_model(section.name, section.settings(), shape, classes)
    network = find_network(section.name, networks)
    return network.make(_settings(network, section.settings()), shape, classes)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global CPU generator, and put it back at the end."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def find_network(name: str, networks: Mapping[str, Network] = NETWORKS) -> Network:
    """Return the network of a name, one of ``networks`` or of an installed package.

    Raises:
        RecipeError: ``model.unknown``: there is none.
        PluginError: ``model.plugin``: a package offers it, but it cannot be used.
    """
    if is_torchvision(name):
        return torchvision_network(name)
    network = networks.get(name) or NETWORK_PLUGINS.find(name)
    if network is not None:
        return network
    raise RecipeError(
        f"There is no model {name!r}.",
        code="model.unknown",
        hint=_nearest(name, [*networks, *NETWORK_PLUGINS.names()], "models"),
    )


def _settings(network: Network, values: Mapping[str, Any]) -> NetworkSettings:
    """Return a network's settings, checked."""
    try:
        return network.settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise RecipeError(
                f"The model {network.name} has no setting {key!r}.",
                code="model.setting",
                hint=_nearest(key, network.settings.model_fields, "settings"),
            ) from error
        raise RecipeError(
            f"model.{key} = {first['input']!r} cannot be used: {first['msg']}.",
            code="model.setting",
            hint=f"correct {key} in the recipe's [model] table",
        ) from error


def _nearest(name: str, known: Iterable[str], what: str) -> str:
    """Return a hint that names the nearest known name, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known {what}: {', '.join(names)}"
