"""Questions about where the product does something, for somebody who sees only its file names.

The answers of ``questions.json`` are qualified names of classes, methods and functions, so that
they stay right when files move. Without options the questions and the list of product files are
printed. ``--answers FILE`` marks a JSON list of objects with ``number``, ``path`` and
``confidence`` (0 to 1): an answer is right if the file defines one of the question's names.

    python -m benchmarks.questions [--answers FILE] [--questions FILE]
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from benchmarks.house import source_files
from benchmarks.update_walk import PRODUCT

QUESTIONS = Path(__file__).with_name("questions.json")


class Question(BaseModel):
    """A question.

    Attributes:
        question: a sentence; asked is the file where it is done.
        answers: qualified names, any of which is right.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    answers: tuple[str, ...] = Field(min_length=1)


class Guess(BaseModel):
    """An answer to the question of a number, counted from 1."""

    model_config = ConfigDict(frozen=True)

    number: int = Field(ge=1)
    path: str
    confidence: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class Marked:
    """A question with its guess.

    Attributes:
        right: paths of the files that define the question's names.
    """

    question: Question
    guess: Guess | None
    right: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the guess names one of the files."""
        return self.guess is not None and self.guess.path in self.right


def read_questions(path: Path = QUESTIONS) -> tuple[Question, ...]:
    """Return the questions of a file."""
    return TypeAdapter(tuple[Question, ...]).validate_json(path.read_bytes())


def read_guesses(path: Path) -> tuple[Guess, ...]:
    """Return the answers that somebody gave."""
    return TypeAdapter(tuple[Guess, ...]).validate_json(path.read_bytes())


@cache
def definitions() -> dict[str, tuple[str, ...]]:
    """Return the paths of the product files that define a qualified name, by that name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in source_files(PRODUCT):
        for name in qualified_names(file.tree):
            found[name].append(file.path)
    return {name: tuple(paths) for name, paths in found.items()}


def qualified_names(tree: ast.Module) -> Iterator[str]:
    """Yield the functions and classes of a module, and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            yield from (f"{node.name}.{method.name}" for method in methods)


def marked(questions: Sequence[Question], guesses: Sequence[Guess]) -> list[Marked]:
    """Return each question with its guess.

    Raises:
        LookupError: the product does not define one of the names, or defines it twice.
    """
    defined = definitions()
    for name in (name for question in questions for name in question.answers):
        if len(defined.get(name, ())) != 1:
            raise LookupError(f"{name} is defined in {len(defined.get(name, ()))} files")
    by_number = {guess.number: guess for guess in guesses}
    return [
        Marked(
            question, by_number.get(number), tuple(defined[name][0] for name in question.answers)
        )
        for number, question in enumerate(questions, 1)
    ]


def report(found: Sequence[Marked]) -> str:
    """Return the marks as text."""
    lines = [
        f"{number:2} {'right' if each.is_right else 'WRONG'}  {each.question.question}"
        f"\n   {each.guess.path if each.guess else '-'}; right: {', '.join(each.right)}"
        for number, each in enumerate(found, 1)
    ]
    confidence = mean(each.guess.confidence if each.guess else 0.0 for each in found)
    right = sum(each.is_right for each in found)
    return "\n".join([*lines, f"{right} of {len(found)} right, mean confidence {confidence:.2f}"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the questions, or mark answers."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.questions", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--answers", type=Path, metavar="FILE", help="mark these answers")
    parser.add_argument("--questions", type=Path, metavar="FILE", default=QUESTIONS)
    options = parser.parse_args(arguments)
    questions = read_questions(options.questions)
    if options.answers:
        print(report(marked(questions, read_guesses(options.answers))))
        return 0
    print("In which file?")
    for number, each in enumerate(questions, 1):
        print(f"{number:2}. {each.question}")
    print("\n".join(["", *(file.path for file in source_files(PRODUCT))]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
