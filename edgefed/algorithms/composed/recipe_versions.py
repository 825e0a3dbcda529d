"""The versions of the code that a recipe uses: EdgeFed, torch, plug-ins and users' own modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import torch

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.partitioners.registry import PARTITION_PLUGINS
from edgefed.data.sets.datasets import DATASET_PLUGINS
from edgefed.errors import StorageError
from edgefed.files.code_versions import CodeSource, CodeVersions
from edgefed.files.plugins import Plugins
from edgefed.files.source_digest import is_interactive, module_digest, package_digest
from edgefed.files.typed_code import typed_digest
from edgefed.learn.modeling.model_building import NETWORK_PLUGINS
from edgefed.learn.modeling.user_models import is_user_model
from edgefed.learn.training.user_losses import is_user_loss
from edgefed.version import VERSION


def running_versions() -> CodeVersions:
    """Return the versions of EdgeFed and torch in this process."""
    return CodeVersions(VERSION, str(torch.__version__))


def recipe_versions(recipe: Recipe, *, readable: bool = False) -> CodeVersions:
    """Return the versions of the code that a recipe uses.

    Args:
        recipe: of which plug-ins are looked up, and no user's module is imported.
        readable: whether all sources must be known.

    Raises:
        StorageError: ``source.unreadable``: they are not. Otherwise, their digest is empty.
    """
    packages: dict[str, CodeSource] = {}
    modules: dict[str, Callable[[], str]] = {}
    for name in _user_names(recipe):
        modules |= _own(name.partition(":")[0], name)
    for plugins, name in _plugin_names(recipe):
        origin = plugins.origin(name)
        if isinstance(origin, EntryPoint) and origin.dist is not None:
            package = origin.dist.name
            digest = _digest(partial(package_digest, package), readable)
            packages[package] = CodeSource(package, origin.dist.version, digest)
        elif isinstance(origin, EntryPoint):
            modules |= _own(origin.module, name)
        elif origin is not None:
            for module in origin or (f"of the {plugins.kind} '{name}'",):  # there is none
                modules |= _own(module, name, plugins.given(name))
    here = running_versions()
    return CodeVersions(
        here.edgefed,
        here.torch,
        tuple(packages[name] for name in sorted(packages)),
        tuple(
            CodeSource(name, digest=_digest(modules[name], readable)) for name in sorted(modules)
        ),
    )


def _own(module: str, name: str, given: object = None) -> dict[str, Callable[[], str]]:
    """Return the digest function of a module, by its name; of typed code, by its path."""
    if module == "__main__" and is_interactive():
        return {name: partial(typed_digest, name, given)}
    return {module: partial(module_digest, module)}


def _digest(digest_of: Callable[[], str], readable: bool) -> str:
    try:
        return digest_of()
    except StorageError:
        if readable:
            raise
        return ""


def _plugin_names(recipe: Recipe) -> Iterator[tuple[Plugins[Any], str]]:
    """Yield the names in a recipe that can be those of plug-ins."""
    yield PLUGINS, recipe.algorithm.name
    yield NETWORK_PLUGINS, recipe.model.name
    yield DATASET_PLUGINS, recipe.data.name
    yield PARTITION_PLUGINS, recipe.data.partition
    yield SELECTOR_PLUGINS, recipe.selection.name


def _user_names(recipe: Recipe) -> Iterator[str]:
    """Yield the users' own functions that a recipe names."""
    yield from recipe.evaluation.metrics
    yield from (name for name in (recipe.model.name,) if is_user_model(name))
    yield from (name for name in (recipe.training.loss,) if is_user_loss(name))
