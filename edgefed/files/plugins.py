"""Plug-ins: objects that installed packages offer through entry points, kind by kind.

A package names its objects in its ``pyproject.toml``; installing the package is the consent to run
its code::

    [project.entry-points."edgefed.algorithms"]
    example_scaffold = "example_scaffold.algorithm:Scaffold"

An object is imported when its name is requested, not before. A package that fails to import, or
that offers a name which is already taken, is reported and does not affect others.

A simulation also takes objects by their path, ``package.module:Class``, without a package.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import FunctionType
from typing import Generic, TypeVar

from edgefed.errors import PluginError, RecipeError
from edgefed.files.user_code import (
    OwnCode,
    are_classes_allowed,
    class_refused,
    is_own_class,
    located,
    note_own_code,
    with_article,
)

Member = TypeVar("Member")

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""The pattern of a plug-in's name."""

MAX_PATH = 128
"""Most characters of the path of a user's own class: a task carries it."""

SHOWN = 500
"""Most characters of a package's own error that are shown."""

CODES: dict[str, tuple[str, str]] = {}
"""The kind of plug-ins and the code of their errors, by the group of their entry points."""

NOT_OWN = frozenset({"edgefed", *sys.stdlib_module_names})
"""Modules that hold no code of a plug-in."""


@dataclass(frozen=True)
class Offers:
    """The plug-ins of one kind that installed packages offer.

    Attributes:
        usable: entry points by name, not yet imported.
        refused: reasons why a name is not used, by name.
    """

    usable: Mapping[str, EntryPoint] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listed:
    """A plug-in as lists show it.

    Attributes:
        kind: ``algorithm``, ``model``, ``data set`` or ``partition``.
        package: names of the packages that offer it.
        problem: why it cannot be used; empty if it can.
    """

    kind: str
    name: str
    package: str
    problem: str = ""


@cache
def installed() -> tuple[EntryPoint, ...]:
    """Return the entry points of EdgeFed's groups; packages are searched once."""
    points = entry_points()
    groups = sorted(group for group in points.groups if group.startswith("edgefed."))
    return tuple(point for group in groups for point in points.select(group=group))


class Plugins(Generic[Member]):
    """The plug-ins of one kind.

    Args:
        kind: noun for one of them.
        group: of their entry points.
        built_in: returns the names that no package may take.
        check: given a name and the object that a package offers under it, returns it as a plug-in;
            raises ValueError with the reason if it is not one.
        code: of errors about them.
        in_modules: whether a recipe of a simulation may name one as ``package.module:Name``.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        built_in: Callable[[], Collection[str]],
        check: Callable[[str, object], Member],
        *,
        code: str,
        in_modules: bool = True,
    ) -> None:
        self.kind = kind
        self._in_modules = in_modules
        self.group = group
        self.code = code
        self._built_in = built_in
        self._check = check
        self._added: dict[str, Member] = {}
        self._modules: dict[str, tuple[str, ...]] = {}
        CODES[group] = (kind, code)

    def offers(self, candidates: Iterable[EntryPoint] | None = None) -> Offers:
        """Return the offers of packages; nothing is imported.

        Args:
            candidates: entry points; None for those of the installed packages.
        """
        by_name: defaultdict[str, list[EntryPoint]] = defaultdict(list)
        for point in installed() if candidates is None else candidates:
            seen = {other.value for other in by_name.get(point.name, ())}
            if point.group == self.group and point.value not in seen:
                by_name[point.name].append(point)
        built_in = self._built_in() if by_name else ()
        usable: dict[str, EntryPoint] = {}
        refused: dict[str, str] = {}
        for name, points in sorted(by_name.items()):
            reason = self._refusal(name, points, built_in)
            if reason:
                refused[name] = reason
            else:
                usable[name] = points[0]
        return Offers(usable, refused)

    def find(self, name: str) -> Member | None:
        """Return the plug-in of a name, imported; None if no package offers one.

        Raises:
            PluginError: a package offers it, but it cannot be used; or ``code.refused``: it is a
                class of the user's own, and this is no simulation.
        """
        if name in self._added:
            return self._added[name]
        if self._is_own(name):
            return self._own(name)
        offered = self.offers()
        if name in offered.refused:
            raise self._error(
                f"The {self.kind} '{name}' cannot be used: {offered.refused[name]}.",
                "uninstall all but one of the packages that offer it, or rename theirs",
            )
        return self.load(offered.usable[name]) if name in offered.usable else None

    @contextmanager
    def added(self, name: str, member: object) -> Iterator[None]:
        """Offer an object within a block, in this process, as if it were installed.

        Raises:
            ValueError: it cannot be offered.
        """
        if name in self._built_in():
            raise ValueError(f"EdgeFed has {with_article(self.kind)} '{name}'")
        before = dict(self._added), dict(self._modules)
        self._added[name], self._modules[name] = self._check(name, member), _modules_of(member)
        self._note(name, member)
        try:
            yield
        finally:
            self._added, self._modules = before

    def _own(self, name: str) -> Member:
        """Return the object of a user's own module.

        Raises:
            PluginError: it may not be imported here, or cannot be used.
        """
        if not are_classes_allowed():
            raise class_refused(self.kind, name)
        try:
            value = located(self.kind, name)
            member = self._check(name, value)
        except RecipeError as error:
            raise self._error(error.message, error.hint) from error
        except ValueError as error:
            raise self.unusable(name, error) from error
        self._note(name, value)
        return member

    def _is_own(self, name: str) -> bool:
        """Return whether a name is the path of a user's own object of this kind."""
        return self._in_modules and is_own_class(name)

    def _note(self, name: str, member: object) -> None:
        if is_own_class(name):
            kind = member if isinstance(member, type) else None
            for module in _modules_of(member):
                note_own_code(module, OwnCode(self.kind, name, self.code, kind))

    def unusable(self, name: str, why: ValueError) -> PluginError:
        """Return the error of a user's own object that is no such plug-in."""
        return self._error(
            f"The {self.kind} {name} cannot be used: it {why}.",
            f"correct it; docs/extensions.md shows {with_article(self.kind)}",
        )

    def given(self, name: str) -> Member | None:
        """Return the object that was added under a name; None for other names."""
        return self._added.get(name)

    def origin(self, name: str) -> EntryPoint | tuple[str, ...] | None:
        """Return where the code of a name comes from.

        Returns:
            An entry point, the modules of an object that was added, or None for no plug-in.
        """
        if name in self._added:
            return self._modules[name]
        if self._is_own(name):
            return (name.partition(":")[0],)
        return self.offers().usable.get(name)

    def load(self, point: EntryPoint) -> Member:
        """Import a plug-in.

        Raises:
            PluginError: the import fails, or the object is not such a plug-in.
        """
        try:
            with redirect_stdout(sys.stderr):  # stdout is data
                member = point.load()
        except (Exception, SystemExit) as error:  # whatever the package does, the others work
            raise self.broken(point.name, [point], f"{type(error).__name__}: {error}") from error
        try:
            return self._check(point.name, member)
        except ValueError as error:
            raise self.broken(point.name, [point], f"{point.value} {error}") from error

    def names(self) -> tuple[str, ...]:
        """Return the names that packages offer, whether or not their import will succeed."""
        return tuple(self.offers().usable)

    def loaded(self) -> dict[str, Member]:
        """Return all plug-ins that can be used, by name; they are imported."""
        members = {}
        for name, point in self.offers().usable.items():
            try:
                members[name] = self.load(point)
            except PluginError:
                continue
        return members

    def problems(self) -> dict[str, str]:
        """Return why plug-ins cannot be used, by name; all are imported."""
        return {plugin.name: plugin.problem for plugin in self.listed() if plugin.problem}

    def listed(self) -> list[Listed]:
        """Return all plug-ins, those that cannot be used too; they are imported."""
        plugins = []
        for name in sorted({point.name for point in installed() if point.group == self.group}):
            points = [
                point for point in installed() if (point.group, point.name) == (self.group, name)
            ]
            problem = ""
            try:
                self.find(name)
            except PluginError as error:
                problem = error.message
            plugins.append(Listed(self.kind, name, ", ".join(_names(points)), problem))
        return plugins

    def package(self, name: str) -> str:
        """Return the package or module that a name comes from, as errors show it."""
        if is_own_class(name):
            return f"module {name.partition(':')[0]}"
        point = self.offers().usable.get(name)
        return packages([point]) if point is not None else "EdgeFed"

    def broken(self, name: str, points: Collection[EntryPoint], why: str) -> PluginError:
        """Return the error of a plug-in that cannot be used."""
        return self._error(
            f"The {self.kind} '{name}' of {packages(points)} cannot be used: "
            f"{' '.join(why.split())[:SHOWN].rstrip('.')}.",
            "repair or uninstall that package",
        )

    def _refusal(self, name: str, points: Collection[EntryPoint], built_in: Collection[str]) -> str:
        if name in built_in:
            has = f"but EdgeFed has {with_article(self.kind)} '{name}'"
            return f"{packages(points)} offers it, {has}"
        if len(points) > 1:
            return f"several packages offer it: {packages(points)}"
        if not NAME.fullmatch(name):
            return (
                f"{packages(points)} offers it, but names are lower-case letters, digits,"
                " hyphens and underscores, at most 64"
            )
        return ""

    def _error(self, message: str, hint: str) -> PluginError:
        return PluginError(message, code=self.code, hint=hint)


def check_name(name: str, member: type) -> None:
    """Check that a class has the name under which it is offered; one of a user's own has any.

    Raises:
        ValueError: it has another, or its path is too long for a message.
    """
    own = getattr(member, "name", "")
    if len(name) > MAX_PATH:
        raise ValueError(f"has a path of more than {MAX_PATH} characters")
    if is_own_class(name) and not (isinstance(own, str) and own):
        raise ValueError('has no name; add a line such as name = "mine"')
    if own != name and not is_own_class(name):
        raise ValueError(f"has the name '{own}'")


def packages(points: Collection[EntryPoint]) -> str:
    """Return the packages that entry points come from, in words."""
    return ", ".join(f"package {name}" for name in _names(points))


def _names(points: Collection[EntryPoint]) -> list[str]:
    return sorted({point.dist.name if point.dist else point.value for point in points})


def _modules_of(member: object) -> tuple[str, ...]:
    """Return the modules that define a class and its bases, or the functions of an object."""
    parts = member.__mro__ if isinstance(member, type) else (member, *vars(member).values())
    modules = {part.__module__ for part in parts if isinstance(part, (type, FunctionType))}
    own = (module for module in modules if module.partition(".")[0] not in NOT_OWN)
    return tuple(sorted(own))
