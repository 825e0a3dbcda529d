"""Classes and functions that a Python program passes in place of names in a recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from edgefed.algorithms.composed.registry import PLUGINS
from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.selection.base import Selector
from edgefed.algorithms.selection.registry import SELECTOR_PLUGINS
from edgefed.config.fleet.tracker_names import METHODS
from edgefed.coordinator.trackers.base import Tracker
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.registry import PARTITION_PLUGINS, Partitioner, PartitionRequest
from edgefed.errors import UsageError
from edgefed.files.plugins import Plugins
from edgefed.files.user_code import class_refused

PartitionSource = Partitioner | Callable[[PartitionRequest, Any], Parts]
"""A partition, or the function that splits: a request and a generator to the parts."""

Over = dict[str, Any]
"""Tables of a recipe."""


@contextmanager
def given_code(
    algorithm: type[Algorithm[Any]] | None,
    partition: PartitionSource | None,
    selection: type[Selector[Any]] | None,
    *,
    allowed: bool,
) -> Iterator[Over]:
    """Offer objects to recipes within a ``with`` block, and yield the tables that name them.

    Args:
        algorithm: None for that of the recipe.
        partition: likewise.
        selection: likewise.
        allowed: whether users' own code may be run.

    Raises:
        PluginError: one of them cannot be used, or ``code.refused``.
    """
    given: tuple[tuple[Plugins[Any], object, str, str], ...] = (
        (PLUGINS, algorithm, "algorithm", "name"),
        (PARTITION_PLUGINS, partition, "data", "partition"),
        (SELECTOR_PLUGINS, selection, "selection", "name"),
    )
    over: Over = {}
    with ExitStack() as offered:
        for plugins, member, table, key in given:
            if member is None:
                continue
            name = path_of(member)
            if not allowed:
                raise class_refused(plugins.kind, name)
            try:
                offered.enter_context(plugins.added(name, member))
            except ValueError as error:
                raise plugins.unusable(name, error) from error
            over[table] = {key: name}
        yield over


def path_of(member: object) -> str:
    """Return the path of an object, ``module:name``; of a partition, it is that of a variable.

    A partition that no variable of its module holds has the path of its function.
    """
    if isinstance(member, Partitioner):
        module = getattr(member.split, "__module__", "")
        variables = vars(sys.modules.get(module, member.split))
        named = (name for name, value in variables.items() if value is member)
        name = next(named, "")
        return f"{module}:{name}" if name else path_of(member.split)
    owner = member if hasattr(member, "__qualname__") else type(member)
    return f"{owner.__module__}:{getattr(owner, '__qualname__', '')}"


def listed(name: str, value: object, example: str) -> tuple[Any, ...]:
    """Return the elements of a list that a program passes as the argument ``name``.

    Raises:
        UsageError: it is a text, or no list at all; the hint has the example.
    """
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
        return tuple(value)
    raise UsageError(f"{name} is a list, not {value!r:.80}.", hint=f"such as {example}")


def checked_trackers(trackers: Tracker | Sequence[Tracker]) -> tuple[Tracker, ...]:
    """Return the trackers, or the one.

    Raises:
        UsageError: an object among them is none.
    """
    given = tuple(trackers) if isinstance(trackers, Iterable) else (trackers,)
    for tracker in given:
        methods = (getattr(tracker, name, None) for name in METHODS)
        named = isinstance(getattr(tracker, "name", None), str)
        if isinstance(tracker, type) or not named or not all(map(callable, methods)):
            raise UsageError(
                f"trackers: {tracker!r:.80} is no tracker.",
                hint="a tracker is an object with a name and the methods begin, round and end",
            )
    return given
