"""Failures of plug-ins and of users' own code, found by the frames of an exception.

Every call into them is covered, whatever its path: methods, objectives, modules of torch, functions
that they returned earlier. The last function of theirs that other code called is the one that
failed.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from importlib.metadata import EntryPoint
from traceback import walk_tb
from types import FrameType

from edgefed.errors import DataError, EdgeFedError, PluginFailedError
from edgefed.files.plugins import CODES, NOT_OWN, SHOWN, installed, packages
from edgefed.files.user_code import own_code_of

log = logging.getLogger(__name__)


@contextmanager
def plugin_errors() -> Iterator[None]:
    """Turn the failure of a plug-in or a user's code inside a ``with`` block into an error.

    Raises:
        PluginFailedError, DataError: as ``plugin_failure`` returns them.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        failure = plugin_failure(error)
        if failure is None:
            raise
        raise failure from error


def plugin_failure(error: BaseException) -> EdgeFedError | None:
    """Return the error that names the code in which an exception was raised; its trace is logged.

    Returns:
        A ``PluginFailedError``; a ``DataError`` with the code ``model.failed``; or None for an
        error of EdgeFed, or of no such code.
    """
    if isinstance(error, EdgeFedError) or _top(type(error).__module__) == "edgefed":
        return None  # the others are orders, such as to end a run
    failed, before = None, ""
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        owner = _owner(module)
        # The last change of owner decides: it is the code nearest to the error
        if owner and owner != before:
            failed = (
                _of_package(owner, frame, error)
                if owner in _offered()
                else _of_user(module, frame, error)
            )
        before = owner
    if failed is not None:
        log.debug("%s", failed.message, exc_info=error)
    return failed


def _owner(module: str) -> str:
    """Return the outermost package of plug-ins, or the module of a user's code; or nothing."""
    top = _top(module)
    if top in _offered():
        return top
    return module if own_code_of(module) else ""


def _offered() -> set[str]:
    """Return the outermost packages that offer plug-ins."""
    return {_top(point.module) for point in installed()} - NOT_OWN


def _top(module: str) -> str:
    return module.partition(".")[0]


def _of_package(top: str, frame: FrameType, error: BaseException) -> PluginFailedError:
    """Return the error of a package; of one plug-in, where it is known which one failed."""
    points = [point for point in installed() if _top(point.module) == top]
    owner = frame.f_locals.get("self")
    own = [point for point in points if isinstance(owner, _class_of(point))] or points
    named, code = f"Code of {packages(own)}", PluginFailedError.default_code
    if len(own) == 1:
        kind, code = CODES.get(own[0].group, ("plug-in", code))
        named = f"The {kind} '{own[0].name}' of {packages(own)}"
    return PluginFailedError(
        f"{named} failed in {_failed(frame, error)}",
        code=code,
        hint="report this to the authors of that package; --verbose shows where it failed",
    )


def _class_of(point: EntryPoint) -> type | tuple[()]:
    """Return the class that a package offers; nothing for one of another kind, or not imported."""
    module = sys.modules.get(point.module)
    value = reduce(lambda part, name: getattr(part, name, None), point.attr.split("."), module)
    return value if isinstance(value, type) else ()


def _of_user(module: str, frame: FrameType, error: BaseException) -> EdgeFedError:
    """Return the error of a user's module; of one class or model, where it is known which."""
    noted, owner = own_code_of(module), frame.f_locals.get("self")
    of_owner = [
        failure for failure in noted if failure.member and isinstance(owner, failure.member)
    ]
    own = (of_owner or noted)[-1]
    named, code, where = f"The {own.kind} {own.name}", own.code, _failed(frame, error)
    if len({failure.kind for failure in of_owner or noted}) > 1:
        named, code = f"Code of module {module}", PluginFailedError.default_code
    kind = DataError if code == "model.failed" else PluginFailedError
    hint = "correct the code; --verbose shows where it failed"
    return kind(f"{named} failed in {where}", code=code, hint=hint)


def _failed(frame: FrameType, error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN].rstrip(".: ")
    return f"{frame.f_code.co_name}: {text}."
