"""Users' own code: import ``package.module:name``, and report its errors in one line.

Importing a module runs its code, so each program decides whether it imports the names of a recipe
or a task (``user_models`` of its settings). Algorithms, data sets, partitions and selectors of a
user's own are imported by simulations only.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from edgefed.errors import DataError, PluginError, RecipeError

Kind = Literal["model", "loss", "metric"]
"""The purpose of users' code."""

SHOWN = 300
"""Most characters of somebody else's error that are shown."""

FAILED = (Exception, SystemExit)
"""How somebody else's code fails; code that ends the program must not end ours."""

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True)
class OwnCode:
    """A user's own code that was imported or given.

    Attributes:
        kind: noun for its purpose.
        name: as recipes have it.
        code: of the error after it failed.
        member: the class; None for a function.
    """

    kind: str
    name: str
    code: str
    member: type | None = None


_noted: dict[str, dict[str, OwnCode]] = {}
"""The own code of each module by name, the last used at the end."""


def note_own_code(module: str, code: OwnCode) -> None:
    """Note that a module defines code of a user's own, so that its failures are known."""
    names = _noted.setdefault(module, {})
    names.pop(code.name, None)
    names[code.name] = code


def own_code_of(module: str) -> tuple[OwnCode, ...]:
    """Return the own code of a module, the last used at the end; none of other modules."""
    return tuple(_noted.get(module, {}).values())


_classes_allowed: ContextVar[bool] = ContextVar("classes_allowed", default=False)
"""Whether this thread, and the processes that it forks, import classes that a recipe names."""


def is_own_class(name: str) -> bool:
    """Return whether the name of an algorithm, data set, partition or selector is a user's code."""
    return ":" in name


@contextmanager
def classes_allowed(allowed: bool = True) -> Iterator[None]:
    """Let a simulation import the classes that its recipe names, within a ``with`` block."""
    before = _classes_allowed.set(allowed)
    try:
        yield
    finally:
        _classes_allowed.reset(before)


def are_classes_allowed() -> bool:
    """Return whether classes that a recipe names may be imported now."""
    return _classes_allowed.get()


def class_refused(kind: str, name: str) -> PluginError:
    """Return the error of a program that imports no class of a user's own.

    Args:
        kind: noun for one of them, such as ``algorithm``.
        name: as the recipe has it.
    """
    return PluginError(
        f"The {kind} {name} is user code, which only simulations run, and only where it is"
        " allowed.",
        code="code.refused",
        hint="edgefed sim run RECIPE; for a fleet, install it as a plug-in (docs/extensions.md)",
    )


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
    value = located(kind, name)
    if not callable(value):
        raise _not_callable(kind, name, value)
    function: Callable[..., Any] = value
    if kind == "model":  # losses and metrics are called in one place, which names them
        note_own_code(name.partition(":")[0], OwnCode(kind, name, code="model.failed"))
    return function


def located(kind: str, name: str) -> Any:
    """Return the object of a name, whatever it is.

    Args:
        kind: noun for its purpose.
        name: ``package.module:name``.

    Raises:
        RecipeError: there is none, or importing it fails.
    """
    what = {"model": "factory", "loss": "function", "metric": "function"}.get(kind, "Class")
    if not NAME.fullmatch(name):
        raise RecipeError(
            f"{name!r} does not name {with_article(kind)} of your own.",
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
    return value


def _not_callable(kind: Kind, name: str, value: object) -> RecipeError:
    problem = f"The {kind} {name} is {type(value).__name__}, which cannot be called."
    if kind == "model":
        hint = "name a function or a class that creates the module"
        return RecipeError(problem, code="model.factory", hint=hint)
    return RecipeError(problem, code=f"{kind}.import", hint="name a function")


def _module(kind: str, name: str, module_name: str) -> object:
    """Return the module of that name."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        # A module that is there may itself import one that is not
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _import_failed(kind, name, error) from error
        raise RecipeError(
            f"The {kind} {name} cannot be found: there is no module {missing!r}.",
            code=f"{kind}.import",
            hint="install its package, or add its folder to PYTHONPATH, on each machine;"
            " PYTHONPATH=. is the current folder",
        ) from error
    except FAILED as error:
        raise _import_failed(kind, name, error) from error


def _import_failed(kind: str, name: str, error: BaseException) -> RecipeError:
    return RecipeError(
        f"The {kind} {name} cannot be imported: {error_line(error)}.",
        code=f"{kind}.import",
        hint="import the module in a Python shell to see where it fails",
    )


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def error_line(error: BaseException) -> str:
    """Return an error of users' code in one line, without a full stop."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:SHOWN].rstrip(".: ")
