"""Common code of the contract tests: assertions, purity, and the rules of settings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen
from pydantic import BaseModel, ValidationError

from edgefed.testing.play import bits

Made = TypeVar("Made")


def require(holds: bool, otherwise: str) -> None:
    """Raise an AssertionError with this text unless a condition holds."""
    if not holds:
        raise AssertionError(otherwise)


def called(what: str, call: Callable[..., Made], *arguments: Any) -> Made:
    """Return the result of a call; an error of it fails the test, with ``what`` before it.

    Raises:
        AssertionError: the call raised an exception.
    """
    try:
        return call(*arguments)
    except AssertionError:
        raise
    except (Exception, SystemExit) as error:
        raise AssertionError(f"{what} raises {type(error).__name__}: {error}") from error


@contextmanager
def pure(what: str, given: Mapping[str, Any]) -> Iterator[None]:
    """Check that a block changes none of its arguments, and draws from no global generator.

    Raises:
        AssertionError: it does.
    """
    before, drawn = {name: bits(value) for name, value in given.items()}, _global_generators()
    yield
    for name, value in given.items():
        require(bits(value) == before[name], f"{what} changes {name}, which it must only read")
    for name, state in _global_generators().items():
        require(
            state == drawn[name],
            f"{what} draws from the global generator of {name}; draw from a seed that is given",
        )


@contextmanager
def other_global_seeds() -> Iterator[None]:
    """Seed the global generators differently, and restore them at the end."""
    python, numbers, tensors = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(1_234_567)
    np.random.seed(1_234_567)
    torch.manual_seed(1_234_567)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        torch.set_rng_state(tensors)


def check_settings(settings: type[BaseModel], values: Mapping[str, Any], where: str) -> None:
    """Check the model of a plug-in's own keys of a recipe.

    Args:
        settings: the model.
        values: keys without a default.
        where: owner of the keys, for messages.

    Raises:
        AssertionError: keys are not described, not ranged, not frozen, or not plain values.
    """
    made = called(f"{where}: making its settings of {dict(values)}", lambda: settings(**values))
    for key, info in settings.model_fields.items():
        require(bool(info.description), f"{where}: the setting '{key}' has no docstring")
        if info.annotation in (int, float):
            ranged = any(isinstance(constraint, (Ge, Gt, Le, Lt)) for constraint in info.metadata)
            require(ranged, f"{where}: the number '{key}' has no range, such as Field(ge=0)")
        if info.annotation is str:
            bounded = any(isinstance(constraint, (Len, MaxLen)) for constraint in info.metadata)
            bounded = bounded or any(hasattr(constraint, "pattern") for constraint in info.metadata)
            require(bounded or not _is_wire(settings), f"{where}: the text '{key}' has no bound")
    require(settings.model_config.get("frozen", False), f"{where}: settings are not frozen")
    _check_closed(settings, values, where)
    plain = made.model_dump(mode="json")
    again = called(
        f"{where}: reading its settings back from JSON",
        lambda: settings.model_validate(json.loads(json.dumps(plain))),
    )
    require(again == made, f"{where}: settings change on their way through JSON")


def _is_wire(settings: type[BaseModel]) -> bool:
    """Return whether tasks carry the settings, so that every text needs a bound."""
    from edgefed.algorithms.interface.base import AlgorithmSettings

    return issubclass(settings, AlgorithmSettings)


def _check_closed(settings: type[BaseModel], values: Mapping[str, Any], where: str) -> None:
    try:
        settings(**{**values, "no_such_setting": 1})
    except ValidationError:
        return
    raise AssertionError(f"{where}: settings take unknown keys; set extra='forbid'")


def _global_generators() -> dict[str, Any]:
    return {
        "random": random.getstate(),
        "numpy": bits(np.random.get_state()),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
