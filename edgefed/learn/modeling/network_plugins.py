"""Networks of installed packages, offered through the entry point ``edgefed.models``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from torch import nn

from edgefed.files.plugins import Plugins
from edgefed.learn.modeling.user_models import checked_module
from edgefed.learn.networks.base import Network, NetworkSettings, Shape


def network_plugins(built_in: Callable[[], Collection[str]]) -> Plugins[Network]:
    """Return the networks that packages offer beside those that are built in."""
    return Plugins("model", "edgefed.models", built_in, _checked, code="model.plugin")


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
