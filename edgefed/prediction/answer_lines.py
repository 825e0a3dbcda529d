"""Answers as lines of text, JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any, Literal

from edgefed.prediction.answers import Answer

Form = Literal["text", "json", "csv"]


class AnswerLines:
    """Formats answers, one line each.

    Args:
        labels: names of the model's classes; empty for a model that predicts numbers.
        outputs: number of outputs of a model without classes.
        top: number of classes shown.
        width: of the longest name, in text.
    """

    def __init__(self, labels: tuple[str, ...], outputs: int, top: int, width: int) -> None:
        self._labels = labels
        self._outputs = outputs
        self._top = min(top, len(labels)) if labels else 0
        self._width = width
        self._label_width = max(map(len, labels), default=0)

    def text(self, answer: Answer) -> str:
        """Return a line for people."""
        name = answer.name.ljust(self._width)
        if answer.outputs is None:
            return f"{name}  not read"
        if not self._labels:
            return f"{name}  {'  '.join(f'{value:.6g}' for value in answer.outputs)}"
        guesses = answer.predictions(self._labels).top(self._top)[0]
        shown = [
            f"{each.label.ljust(self._label_width)}  {each.probability:.4f}" for each in guesses
        ]
        is_wrong = answer.expected and answer.expected != guesses[0].label
        wrong = [f"expected {answer.expected}"] if is_wrong else []
        return "  ".join([name, *shown, *wrong])

    def json(self, answer: Answer) -> dict[str, Any]:
        """Return an object for programs."""
        row = {} if answer.row is None else {"row": answer.row}
        told: dict[str, Any] = {"input": str(answer.path), **row}
        if answer.expected:
            told["expected"] = answer.expected
        if answer.outputs is None:
            return {**told, "error": answer.error}
        if not self._labels:
            return {**told, "outputs": [float(value) for value in answer.outputs]}
        guesses = answer.predictions(self._labels).top(self._top)[0]
        top = [{"label": each.label, "probability": each.probability} for each in guesses]
        return {**told, **top[0], "top": top}

    def csv_head(self) -> str:
        """Return the names of the columns."""
        if not self._labels:
            shown = [f"output_{number + 1}" for number in range(self._outputs)]
        else:
            ends = ["", *(f"_{number}" for number in range(2, self._top + 1))]
            shown = [f"{word}{end}" for end in ends for word in ("label", "probability")]
        return _csv_line(["input", "row", "expected", "error", *shown])

    def csv(self, answer: Answer) -> str:
        """Return a line of a table."""
        row = "" if answer.row is None else answer.row
        cells: list[Any] = [answer.path, row, answer.expected, answer.error]
        if answer.outputs is None:
            return _csv_line(cells)
        if not self._labels:
            return _csv_line([*cells, *map(float, answer.outputs)])
        guesses = answer.predictions(self._labels).top(self._top)[0]
        shown = [value for each in guesses for value in (each.label, each.probability)]
        return _csv_line([*cells, *shown])


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
