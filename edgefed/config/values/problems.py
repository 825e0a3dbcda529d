"""All problems with values, each with the place where the value was set, as one error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgefed.config.values.layers import Origin
from edgefed.config.values.toml_positions import KeyPath
from edgefed.errors import RecipeError

UNKNOWN_KEY = "recipe.unknown_key"
BAD_VALUE = "recipe.value"
MISSING_KEY = "recipe.missing_key"


@dataclass(frozen=True)
class Problem:
    """One problem of one value.

    Attributes:
        origin: the place where it was written.
        key: its dotted key.
        text: description of the problem.
        code: of the error.
        nearest: the known name that was probably meant; empty if none.
        hint: advice, where the text gives none.
    """

    origin: Origin
    key: str
    text: str
    code: str = BAD_VALUE
    nearest: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = self.origin.locate(self.key)
        return f"{place}: {self.text}" if place else self.text

    def to_json(self) -> dict[str, str | int]:
        """Return the object that ``--json`` prints."""
        return {
            **self.origin.to_json(),
            "key": self.key,
            "code": self.code,
            "message": self.text,
            "nearest": self.nearest,
        }


class ProblemsError(RecipeError):
    """The problems of values, one a line.

    Attributes:
        problems: all of them, in the order of their places.
    """

    def __init__(self, problems: Sequence[Problem], hint: str = "") -> None:
        lines = list(dict.fromkeys(str(problem) for problem in problems))
        hints = (problem.hint for problem in problems if problem.hint)
        hint = hint or next(hints, "")
        super().__init__("\n".join(lines), code=problems[0].code, hint=hint)
        self.problems = tuple(problems)


def dotted(path: KeyPath) -> str:
    """Return a key path in the usual notation: ``training.epochs``, ``stages[2].width``."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def text_problem(text: str, origin: Origin, path: KeyPath) -> list[Problem]:
    """Return a problem if the typed value is not valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return [Problem(origin, dotted(path), "must be UTF-8 text")]
    return []


def problems_error(problems: Sequence[Problem], hint: str = "") -> ProblemsError:
    """Return one error that lists every problem, one a line, with the code of the first."""
    ordered = sorted(problems, key=lambda problem: (problem.origin.name, problem.origin.line))
    return ProblemsError(ordered, hint)
