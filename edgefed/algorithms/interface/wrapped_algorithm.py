"""An algorithm that delegates to another one; a subclass changes some of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import CAPABILITIES, Algorithm, State
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView, Result, Work
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm, DeviceTests
from edgefed.learn.base.types import Tensors

Kind = TypeVar("Kind", bound=type[CompleteAlgorithm[Any]])

ATTRIBUTES = (
    "name",
    "summary",
    "paper",
    "late_problem",
    "keeps_if_accepted",
    "keeps_lost_work",
    *DeviceTests.__annotations__,
    *CAPABILITIES,
)
"""What a wrapper takes over from the algorithm inside, if that has it."""


def _delegated(name: str) -> Callable[..., Any]:
    """Return a method that calls the one of ``inner``, or the default if ``inner`` has none."""
    default = getattr(CompleteAlgorithm, name)

    @wraps(default)
    def method(self: WrappedAlgorithm, *arguments: Any, **named: Any) -> Any:
        own = getattr(self.inner, name, None)
        return default(self, *arguments, **named) if own is None else own(*arguments, **named)

    return method


def delegating(kind: Kind) -> Kind:
    """Let a class call the methods of ``inner`` for all that it does not define itself."""
    for name, _ in inspect.getmembers(CompleteAlgorithm, inspect.isfunction):
        if not name.startswith("_") and name not in vars(kind):
            setattr(kind, name, _delegated(name))
    return kind


@delegating
class WrappedAlgorithm(CompleteAlgorithm[Any]):
    """Every method calls the same one of ``inner``.

    Args:
        inner: the algorithm, with its parts.
    """

    def __init__(self, inner: CompleteAlgorithm[Any]) -> None:
        super().__init__(inner.settings, inner.training, inner.planned_rounds, inner.images)
        for name in ATTRIBUTES:
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        self.inner = inner

    def start(self, weights: Tensors, roster: Roster, seed: int) -> State:
        """Return the state before the first round."""
        return self.inner.start(weights, roster, seed)

    def plan(self, state: State, roster: Roster, seed: int) -> Exchange | Finished:
        """Return the next exchange."""
        return self.inner.plan(state, roster, seed)

    def merge(self, state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
        """Return the state after the answers."""
        return self.inner.merge(state, exchange, answers)

    def prepare(self, task: DeviceTask, device: DeviceView) -> Work | Answer:
        """Return the work that the task requires, or the answer at once."""
        return self.inner.prepare(task, device)

    def answer(self, task: DeviceTask, device: DeviceView, result: Result) -> Answer:
        """Return the answer from the finished work."""
        return self.inner.answer(task, device, result)


def complete(algorithm: Algorithm[Any]) -> CompleteAlgorithm[Any]:
    """Return an algorithm with every optional interface: its own, and defaults for the others."""
    if isinstance(algorithm, CompleteAlgorithm):
        return algorithm
    # Delegation finds the methods that it has, whatever it inherits them from.
    return WrappedAlgorithm(cast("CompleteAlgorithm[Any]", algorithm))
