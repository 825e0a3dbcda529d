"""The permutation groups of a recipe's model, and the same model with other widths."""

from __future__ import annotations

from collections.abc import Mapping

from edgefed.config.recipes.recipe import ModelSection
from edgefed.errors import RecipeError
from edgefed.learn.base.permutation_groups import PermutationGroups
from edgefed.learn.modeling.model_building import (
    NETWORK_PLUGINS,
    NETWORKS,
    complete_model,
    network_settings,
)
from edgefed.learn.networks.base import Network, Shape


def permutation_groups(section: ModelSection, shape: Shape, classes: int) -> PermutationGroups:
    """Return the permutation groups of a model.

    Args:
        section: the recipe's ``[model]`` table.
        shape: shape of one input.
        classes: number of labels.

    Raises:
        RecipeError: ``model.groups``: its units cannot be matched.
    """
    network = _known(section)
    assert network.groups is not None
    return network.groups(network_settings(section), shape, classes)


def resized(section: ModelSection, widths: Mapping[str, int]) -> ModelSection:
    """Return the section of the same model with other widths, every setting written out.

    Args:
        section: the recipe's ``[model]`` table.
        widths: units of every permutation group.

    Raises:
        RecipeError: ``model.groups``: its units cannot be matched.
    """
    network = _known(section)
    assert network.resized is not None
    settings = network.resized(network_settings(section), widths)
    return complete_model(ModelSection(name=section.name, **settings.model_dump(mode="json")))


def _known(section: ModelSection) -> Network:
    """Return the network of a section, which has groups."""
    network = NETWORKS.get(section.name) or NETWORK_PLUGINS.find(section.name)
    if network is None or network.groups is None:
        known = sorted(name for name, other in NETWORKS.items() if other.groups is not None)
        raise RecipeError(
            f"The units of the model {section.name} cannot be matched: nothing says which of its"
            " weights are permuted together.",
            code="model.groups",
            hint=f"choose one of {', '.join(known)}, or another algorithm",
        )
    if section.train != "all":
        raise RecipeError(
            f"The units of the model {section.name} cannot be matched: some weights are frozen.",
            code="model.groups",
            hint='set model.train = "all", or choose another algorithm',
        )
    return network
