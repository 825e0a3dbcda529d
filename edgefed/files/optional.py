"""Import optional packages when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from edgefed.errors import UsageError


def wanted(module: str, extra: str, code: str, *, package: str = "") -> Any:
    """Return a module of a package that an EdgeFed extra installs.

    Args:
        module: its name.
        extra: name of the extra.
        code: of the error.
        package: name of the package; by default that of the extra.

    Raises:
        UsageError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"The package {package or extra} is not installed.",
            code=code,
            hint=f"pip install 'edgefed[{extra}]'",
        ) from error
