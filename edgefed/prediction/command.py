"""The command ``predict`` of both programs: predict images and arrays, and print the answers."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgefed.errors import PartlyDoneError, UnknownNameError, UsageError
from edgefed.learn.modeling.model_file_reader import BEST_FILE, MODEL_FILE
from edgefed.prediction.answers import PredictionAnswer, answers
from edgefed.prediction.inputs_found import Found, find_inputs
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import LoadedModel
from edgefed.prediction.predictions import class_results
from edgefed.terminal.console import columns, data, hide_progress, json_out, show_progress, talk
from edgefed.terminal.units import counted

SHOWN = 10
"""Files that cannot be read and are named at the end."""


@dataclass(frozen=True)
class PredictRequest:
    """The arguments of the command.

    Attributes:
        source: a model file, or a run's folder.
        inputs: images, folders and NPZ files.
        top: number of classes shown.
        form: output format.
        quiet: print no notes.
        model: the only model of the file to use; empty for all.
        best: use the weights of the best round.
        user_models: allow a user's own code.
        device: the processor; empty for a GPU if there is one.
    """

    source: Path
    inputs: Sequence[Path]
    top: int = 1
    form: Form = "text"
    quiet: bool = False
    model: str = ""
    best: bool = False
    user_models: bool = False
    device: str = ""


def form_of(as_json: bool, as_csv: bool) -> Form:
    """Return the output format.

    Raises:
        UsageError: both formats are requested.
    """
    if as_json and as_csv:
        raise UsageError("Answers are printed as JSON or as CSV, not both.")
    return "json" if as_json else "csv" if as_csv else "text"


def model_path(source: Path, best: bool) -> Path:
    """Return the model file of a source.

    Raises:
        UnknownNameError: ``model.none``: the run's folder has no such file.
        UsageError: ``--best`` with a file.
    """
    if not source.is_dir():
        if best:
            raise UsageError("--best chooses a file of a run, and a file is already given.")
        return source
    path = source / (BEST_FILE if best else MODEL_FILE)
    if not path.is_file():
        raise UnknownNameError(
            f"{source} has no {path.name}.",
            code="model.none",
            hint="leave --best out" if best else "a run writes its model when it ends",
        )
    return path


def predict_and_print(request: PredictRequest) -> None:
    """Predict all inputs, and print an answer for each.

    Raises:
        PartlyDoneError: ``predict.unreadable``: images cannot be read; the others are predicted.
        EdgeFedError: the model or an input cannot be used.
    """
    model = load_model(
        model_path(request.source, request.best),
        model=request.model,
        user_models=request.user_models,
        device=request.device or None,
    )
    inputs = find_inputs(request.inputs, model.labels)
    if not request.quiet:
        for remark in inputs.remarks:
            talk(f"! {remark}")
    printer = _AnswerPrinter(request, model, inputs)
    for part in answers(model, inputs):
        printer.take(part)
    printer.end()


class _AnswerPrinter:
    """Prints answers when they come, and counts them."""

    def __init__(self, request: PredictRequest, model: LoadedModel, inputs: Found) -> None:
        names = [len(str(image.path)) for image in inputs.images]
        names += [len(f"{archive.path}[{len(archive.inputs)}]") for archive in inputs.archives]
        width = max(names, default=0)
        self._lines = AnswerLines(model.labels, model.description.outputs, request.top, width)
        self._labels = model.labels
        self._request = request
        self._count_of_all = inputs.count
        self._done = 0
        self._pairs: Counter[tuple[str, str]] = Counter()
        self._unread: list[PredictionAnswer] = []
        if request.form == "csv":
            data(self._lines.csv_head())

    def take(self, part: Sequence[PredictionAnswer]) -> None:
        """Print answers."""
        for answer in part:
            self._print(answer)
            self._count(answer)
        self._done += len(part)
        if not self._request.quiet:
            show_progress("predicting", self._done, self._count_of_all)

    def end(self) -> None:
        """Print the summary of all answers.

        Raises:
            PartlyDoneError: some images cannot be read.
        """
        hide_progress()
        summary = self._summary()
        if self._request.form == "json":
            json_out({"summary": summary})
        elif "accuracy" in summary:
            line = f"accuracy {summary['accuracy']:.4f} ({self._right} of {summary['labelled']})"
            text = f"{self._table()}\n{line}"
            talk(text) if self._request.form == "csv" else data(f"\n{text}")
        if self._unread:
            raise _unreadable(self._unread, self._done)

    def _print(self, answer: PredictionAnswer) -> None:
        if self._request.form == "json":
            json_out(self._lines.json(answer))
        elif self._request.form == "csv":
            data(self._lines.csv(answer))
        elif answer.outputs is not None:
            data(self._lines.text(answer))

    def _count(self, answer: PredictionAnswer) -> None:
        if answer.outputs is None:
            self._unread.append(answer)
        elif answer.expected:
            self._pairs[answer.expected, answer.predictions(self._labels).labels[0]] += 1

    def _summary(self) -> dict[str, Any]:
        labelled = self._pairs.total()
        counts = {"inputs": self._done, "unreadable": len(self._unread), "labelled": labelled}
        if not labelled:
            return counts
        classes = [
            class_result.to_json() for class_result in class_results(self._pairs, self._labels)
        ]
        return {**counts, "accuracy": self._right / labelled, "classes": classes}

    @property
    def _right(self) -> int:
        return sum(count for (own, predicted), count in self._pairs.items() if own == predicted)

    def _table(self) -> str:
        """Return the recall and the precision of each class as columns."""
        rows = [("CLASS", "INPUTS", "RECALL", "PRECISION")]
        for class_result in class_results(self._pairs, self._labels):
            recall, precision = map(_share, (class_result.recall, class_result.precision))
            rows.append((class_result.label, str(class_result.samples), recall, precision))
        return columns(rows)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _unreadable(unread: Sequence[PredictionAnswer], total: int) -> PartlyDoneError:
    reasons = [answer.error for answer in unread[:SHOWN]]
    if len(unread) > SHOWN:
        reasons.append(f"and {len(unread) - SHOWN} more")
    return PartlyDoneError(
        "\n".join([f"{len(unread)} of {counted(total, 'input')} cannot be read:", *reasons]),
        code="predict.unreadable",
        hint="copy the files again, or remove them; the others are predicted",
    )


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

    def text(self, answer: PredictionAnswer) -> str:
        """Return a line for people."""
        name = answer.name.ljust(self._width)
        if answer.outputs is None:
            return f"{name}  not read"
        if not self._labels:
            return f"{name}  {'  '.join(f'{value:.6g}' for value in answer.outputs)}"
        guesses = answer.predictions(self._labels).top(self._top)[0]
        shown = [
            f"{guess.label.ljust(self._label_width)}  {guess.probability:.4f}" for guess in guesses
        ]
        is_wrong = answer.expected and answer.expected != guesses[0].label
        wrong = [f"expected {answer.expected}"] if is_wrong else []
        return "  ".join([name, *shown, *wrong])

    def json(self, answer: PredictionAnswer) -> dict[str, Any]:
        """Return an object for programs."""
        row = {} if answer.row is None else {"row": answer.row}
        record: dict[str, Any] = {"input": str(answer.path), **row}
        if answer.expected:
            record["expected"] = answer.expected
        if answer.outputs is None:
            return {**record, "error": answer.error}
        if not self._labels:
            return {**record, "outputs": [float(value) for value in answer.outputs]}
        guesses = answer.predictions(self._labels).top(self._top)[0]
        top = [{"label": guess.label, "probability": guess.probability} for guess in guesses]
        return {**record, **top[0], "top": top}

    def csv_head(self) -> str:
        """Return the names of the columns."""
        if not self._labels:
            shown = [f"output_{number + 1}" for number in range(self._outputs)]
        else:
            ends = ["", *(f"_{number}" for number in range(2, self._top + 1))]
            shown = [f"{word}{end}" for end in ends for word in ("label", "probability")]
        return _csv_line(["input", "row", "expected", "error", *shown])

    def csv(self, answer: PredictionAnswer) -> str:
        """Return a line of a table."""
        row = "" if answer.row is None else answer.row
        cells: list[Any] = [answer.path, row, answer.expected, answer.error]
        if answer.outputs is None:
            return _csv_line(cells)
        if not self._labels:
            return _csv_line([*cells, *map(float, answer.outputs)])
        guesses = answer.predictions(self._labels).top(self._top)[0]
        shown = [value for guess in guesses for value in (guess.label, guess.probability)]
        return _csv_line([*cells, *shown])


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()
