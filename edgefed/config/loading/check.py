"""Find every problem of one file without loading anything else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgefed.config.loading.schema import KINDS, Kind, SettingsFile
from edgefed.config.loading.validate import validate
from edgefed.config.values.layers import Origin, ValueLayer, document_layer
from edgefed.config.values.problems import Problem
from edgefed.config.values.toml import Mistake, read_text, try_toml


@dataclass(frozen=True)
class Checked:
    """The result of checking a file.

    Attributes:
        kind: of the file.
        problems: all problems, except those of the further keys of open tables.
        layer: its values, with their places; None if it is not TOML.
    """

    kind: Kind
    problems: list[Problem]
    layer: ValueLayer | None


def check_file(path: Path, kind: Kind | None = None) -> Checked:
    """Check one file; without ``kind``, its name and its keys determine the kind.

    Raises:
        RecipeError: the file cannot be read.
    """
    document = try_toml(read_text(path, str(path)), str(path))
    if isinstance(document, Mistake):
        origin = Origin("file", str(path), document.line)
        column = f" (column {document.column})" if document.column else ""
        problem = Problem(origin, "", document.what + column, document.code)
        return Checked(kind or _guess(path, ()), [problem], None)
    kind = kind or _guess(path, document.values)
    layer = document_layer(document)
    _, problems = validate(KINDS[kind], layer.values, layer)
    return Checked(kind, problems, layer)


def _guess(path: Path, keys: Iterable[str]) -> Kind:
    """Return the kind of file that this most probably is."""
    if path.name.startswith("edgefed-agent"):
        return "agent"
    named = path.name in ("edgefed.toml", "config.toml")
    return "settings" if named or set(SettingsFile.model_fields) & set(keys) else "recipe"
