"""Algorithms of installed packages, offered through the entry point ``edgefed.algorithms``.

A package names its class in its ``pyproject.toml``; installing the package is the consent to run
its code::

    [project.entry-points."edgefed.algorithms"]
    scaffold = "example_scaffold.algorithm:Scaffold"

A class is imported when its algorithm is requested, not before. A package that fails to import, or
that offers a name which is already taken, is reported and does not hide other algorithms.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from edgefed.algorithms.base import Algorithm
from edgefed.errors import UsageError

GROUP = "edgefed.algorithms"


@dataclass(frozen=True)
class Offers:
    """What installed packages offer.

    Attributes:
        usable: entry points by algorithm name, not yet imported.
        refused: why a name is not used, by name.
    """

    usable: Mapping[str, EntryPoint] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def offers(built_in: Collection[str], found: Collection[EntryPoint] | None = None) -> Offers:
    """Return what packages offer beside what is built in; nothing is imported.

    Args:
        built_in: names that no package may take.
        found: entry points; None for those of the installed packages.
    """
    by_name: defaultdict[str, list[EntryPoint]] = defaultdict(list)
    for point in entry_points(group=GROUP) if found is None else found:
        if point.value not in {other.value for other in by_name[point.name]}:
            by_name[point.name].append(point)
    usable: dict[str, EntryPoint] = {}
    refused: dict[str, str] = {}
    for name, points in sorted(by_name.items()):
        if name in built_in:
            refused[name] = f"{_packages(points)} offers it, but EdgeFed has an algorithm '{name}'"
        elif len(points) > 1:
            refused[name] = f"several packages offer it: {_packages(points)}"
        else:
            usable[name] = points[0]
    return Offers(usable, refused)


def load(point: EntryPoint) -> type[Algorithm[Any]]:
    """Import an algorithm of a package.

    Raises:
        UsageError: ``algorithm.plugin``: the import fails, or what it names is no algorithm of that
            name.
    """
    try:
        member = point.load()
    except (Exception, SystemExit) as error:  # whatever the package does, the others work
        raise _broken(point, f"{type(error).__name__}: {error}") from error
    if not (inspect.isclass(member) and issubclass(member, Algorithm)):
        raise _broken(point, f"{point.value} is no subclass of edgefed.algorithms.base.Algorithm")
    if inspect.isabstract(member):
        missing = ", ".join(sorted(member.__abstractmethods__))
        raise _broken(point, f"{point.value} does not define {missing}")
    if getattr(member, "name", "") != point.name:
        raise _broken(point, f"{point.value} has the name '{getattr(member, 'name', '')}'")
    return member


def _broken(point: EntryPoint, why: str) -> UsageError:
    return UsageError(
        f"The algorithm '{point.name}' of {_packages([point])} cannot be used: "
        f"{' '.join(why.split())[:500]}.",
        code="algorithm.plugin",
        hint="repair or uninstall that package",
    )


def _packages(points: Collection[EntryPoint]) -> str:
    names = (point.dist.name if point.dist is not None else point.value for point in points)
    return ", ".join(f"package {name}" for name in sorted(names))
