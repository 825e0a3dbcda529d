"""The versions of the code that made a result: EdgeFed's, torch's, and those of users' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

SHOWN_DIGITS = 12
"""Characters of a digest that are shown."""


@dataclass(frozen=True)
class CodeSource:
    """A package of plug-ins, or a module that a recipe names.

    Attributes:
        name: of the distribution, or of the module.
        version: of the distribution; empty for a module.
        digest: of its sources; empty where they cannot be read.
    """

    name: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """Return name and version, and the digest where there is one."""
        named = " ".join(filter(None, (self.name, self.version)))
        return f"{named} ({self.digest[:SHOWN_DIGITS] or 'sources unknown'})"


@dataclass(frozen=True)
class CodeVersions:
    """The versions of the code that made a result.

    Attributes:
        edgefed, torch: their versions; empty where they are unknown.
        packages: of the plug-ins that the recipe uses.
        modules: users' own modules that the recipe names.
    """

    edgefed: str = ""
    torch: str = ""
    packages: tuple[CodeSource, ...] = ()
    modules: tuple[CodeSource, ...] = ()

    @property
    def sources(self) -> tuple[CodeSource, ...]:
        """Packages and modules."""
        return (*self.packages, *self.modules)

    @property
    def release(self) -> str:
        """The versions of EdgeFed and torch in words."""
        if not self.edgefed:
            return "an unknown version of EdgeFed"
        return f"EdgeFed {self.edgefed} with torch {self.torch}"

    def __str__(self) -> str:
        """Return the versions in a line; empty where they are unknown."""
        return ", ".join(map(str, (self.release, *self.sources))) if self.edgefed else ""


UNKNOWN_VERSIONS = CodeVersions()
"""Those of results of releases that did not write any."""

_ADAPTER = TypeAdapter(CodeVersions)


def read_versions(value: Any) -> CodeVersions:
    """Return the versions in a JSON value; None for unknown ones.

    Raises:
        ValueError: it does not hold versions.
    """
    return UNKNOWN_VERSIONS if value is None else _ADAPTER.validate_python(value)
