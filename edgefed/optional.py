"""Import optional packages when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from edgefed.errors import UsageError


def wanted(module: str, extra: str, code: str) -> Any:
    """Return a module of a package that is installed with an extra of ours.

    Args:
        module: its name.
        extra: what the package and the extra are called.
        code: of the error.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"The package {extra} is not installed.",
            code=code,
            hint=f"pip install 'edgefed[{extra}]'",
        ) from error
