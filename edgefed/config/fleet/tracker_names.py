"""The names of trackers: EdgeFed's own, and those that installed packages offer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from edgefed.files.plugins import Plugins

BUILT_IN = ("tensorboard", "mlflow", "wandb")
METHODS = ("begin", "round", "end")


def _checked(name: str, member: object) -> Callable[[Path], Any]:
    """Return a package's object as a class of trackers.

    Raises:
        ValueError: it is not one.
    """
    del name
    if not isinstance(member, type):
        raise ValueError("is no class")
    for method in METHODS:
        if not callable(getattr(member, method, None)):
            raise ValueError(f"has no method {method}")
    return member


TRACKER_PLUGINS = Plugins(
    "tracker", "edgefed.trackers", lambda: BUILT_IN, _checked, code="tracker.plugin"
)
"""The trackers of installed packages: classes that are called with a folder for their files."""


def _known(name: str) -> str:
    """Return the name of a tracker, whether or not it can be used."""
    names = (*BUILT_IN, *TRACKER_PLUGINS.names()) if name not in BUILT_IN else BUILT_IN
    if name in names or name in TRACKER_PLUGINS.offers().refused:
        return name
    quoted = [repr(name) for name in names]
    expected = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    raise PydanticCustomError("literal_error", "must be {expected}", {"expected": expected})


TrackerName = Annotated[str, AfterValidator(_known)]
