"""Users' own code: import ``package.module:name``, and report its errors in one line.

Importing a module runs its code, so each program decides whether it imports the names of a recipe
or a task (``user_models`` of its settings).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Literal

from edgefed.errors import DataError, RecipeError
from edgefed.files.plugin_failures import note_user_model

Kind = Literal["model", "loss", "metric"]
"""The purpose of users' code."""

SHOWN = 300
"""Most characters of somebody else's error that are shown."""

FAILED = (Exception, SystemExit)
"""How somebody else's code fails; code that ends the program must not end ours."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def refused(kind: Kind, name: str) -> DataError:
    """Return the error of a program that runs no user code."""
    return DataError(
        f"The {kind} {name} is user code, which is not allowed here.",
        code=f"{kind}.refused",
        hint="to allow it, set user_models = true in the settings of this program",
    )


def imported(kind: Kind, name: str) -> Callable[..., Any]:
    """Return the function or class of a name.

    Raises:
        RecipeError: there is none, or importing it fails.
    """
    what = "factory" if kind == "model" else "function"
    if not NAME.fullmatch(name):
        raise RecipeError(
            f"{name!r} does not name a {kind} of your own.",
            code=f"{kind}.unknown",
            hint=f"write package.module:{what}",
        )
    module_name, _, path = name.partition(":")
    value: Any = _module(kind, name, module_name)
    for attribute in path.split("."):
        try:
            value = getattr(value, attribute)
        except AttributeError as error:
            raise RecipeError(
                f"The {kind} {name} cannot be found: {module_name} has no {path}.",
                code=f"{kind}.import",
                hint=f"define {path} in {module_name}, at the top level",
            ) from error
    if not callable(value):
        raise _not_callable(kind, name, value)
    function: Callable[..., Any] = value
    if kind == "model":  # losses and metrics are called in one place, which names them
        note_user_model(module_name, name)
    return function


def _not_callable(kind: Kind, name: str, value: object) -> RecipeError:
    problem = f"The {kind} {name} is {type(value).__name__}, which cannot be called."
    if kind == "model":
        hint = "name a function or a class that creates the module"
        return RecipeError(problem, code="model.factory", hint=hint)
    return RecipeError(problem, code=f"{kind}.import", hint="name a function")


def _module(kind: Kind, name: str, module_name: str) -> object:
    """Return the module of that name."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _import_failed(kind, name, error) from error
        raise RecipeError(
            f"The {kind} {name} cannot be found: there is no module {missing!r}.",
            code=f"{kind}.import",
            hint="install its package, or add its folder to PYTHONPATH, on each machine",
        ) from error
    except FAILED as error:
        raise _import_failed(kind, name, error) from error


def _import_failed(kind: Kind, name: str, error: BaseException) -> RecipeError:
    return RecipeError(
        f"The {kind} {name} cannot be imported: {told(error)}.",
        code=f"{kind}.import",
        hint="import the module in a Python shell to see where it fails",
    )


def told(error: BaseException) -> str:
    """Return an error of users' code in one line, without a full stop."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:SHOWN].rstrip(".: ")
