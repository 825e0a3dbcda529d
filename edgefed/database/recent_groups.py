"""A bounded memory of values for the groups that were used last."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

MOST = 32
"""Groups that are remembered. A run has a few, and its database any number of runs."""

Group = tuple[str, str]
"""A table's name, and the value of its group column."""

Value = TypeVar("Value")


class RecentGroups(Generic[Value]):
    """A value for each of the groups that were used last; the oldest is forgotten for a new one."""

    def __init__(self) -> None:
        self._values: OrderedDict[Group, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, group: Group) -> Value | None:
        """Return a group's value, which counts as a use; None when there is none."""
        value = self._values.get(group)
        if value is not None:
            self._values.move_to_end(group)
        return value

    def put(self, group: Group, value: Value) -> None:
        """Remember a value."""
        self._values[group] = value
        self._values.move_to_end(group)
        if len(self._values) > MOST:
            self._values.popitem(last=False)

    def drop(self, group: Group) -> None:
        """Forget a group."""
        self._values.pop(group, None)
