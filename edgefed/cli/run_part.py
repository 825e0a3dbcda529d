"""Print one part of a run, such as its experts: as text, as JSON values or as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefed.console import data, json_out, talk


@dataclass(frozen=True)
class RunPart:
    """A part of a run.

    Attributes:
        missing: why the run has no such part, in a line; empty if it has one.
        code: of the error if a picture is wanted of a missing part.
        values: returns it as JSON values; of a missing part too.
        text: returns it as text.
        picture: returns it as an SVG file.
    """

    missing: str
    code: str
    values: Callable[[], Mapping[str, Any]]
    text: Callable[[], str]
    picture: Callable[[], str]


def put_part(part: RunPart, svg: Path | None, as_json: bool) -> None:
    """Print a part of a run, or draw it into a file and print the file's path.

    Raises:
        UsageError: a picture is wanted of a missing part.
        StorageError: the file cannot be written.
    """
    from edgefed.errors import UsageError
    from edgefed.files import write_output

    file = svg.expanduser().absolute() if svg is not None else None
    if file is not None:
        if part.missing:
            raise UsageError(part.missing, code=part.code, hint="omit --svg")
        write_output(file, part.picture().encode())
    if as_json:
        drawn = {} if file is None else {"file": str(file)}
        json_out({**part.values(), **drawn})
    elif file is not None:
        data(str(file))
    elif part.missing:
        talk(part.missing)
    else:
        data(part.text())
