"""The only module that prints: data on stdout, everything else on stderr."""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn, TextIO

import typer

from edgefed.errors import EdgeFedError, InterruptedRunError, UsageError
from edgefed.process.clock import SystemClock
from edgefed.process.ctrl_c import end_at_once_on_ctrl_c
from edgefed.process.stop_signals import interruptible
from edgefed.terminal.printable import harmless, harmless_json, printable
from edgefed.terminal.progress import tell_progress_to
from edgefed.terminal.progress_bar import ProgressBar
from edgefed.terminal.terminals import can_colour

_INSTALLED_BY = {
    **dict.fromkeys(("jinja2", "segno"), "'edgefed[coordinator]'"),
    **dict.fromkeys(("platformdirs", "textual"), "'edgefed[ui]'"),
    **dict.fromkeys(("torch", "torchvision"), "torch torchvision"),
}
"""The words for pip where a package is missing: an agent does without those of other roles, and the
Debian package installs no torch."""


class _Progress:
    """The bar of the command that runs; there is one terminal, and so one bar.

    Attributes:
        bar: None before a command has begun.
    """

    bar: ProgressBar | None = None

    def clear(self) -> None:
        if self.bar is not None:
            self.bar.clear()


_progress = _Progress()

_NEW_OBJECTS = 10_000
"""New objects after which Python searches for cycles.

By default it searches after 700, hundreds of times while torch is imported, whose objects all stay.
"""


def data(text: str) -> None:
    """Print a part of the answer on stdout.

    Raises:
        typer.Exit: the reader of stdout has closed it, as ``head`` does.
    """
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        _silence(sys.stdout)
        raise typer.Exit(0) from None


def talk(text: str) -> None:
    """Print a note on stderr; it is not part of the answer."""
    try:
        _write(sys.stderr, text)
    except BrokenPipeError:
        _silence(sys.stderr)


def json_out(value: Any) -> None:
    """Print one JSON value on a line of stdout; numbers that JSON lacks become null."""
    data(_json(value))


def fail(error: EdgeFedError, as_json: bool = False) -> NoReturn:
    """Print an error on stderr and end the command with the error's exit code."""
    if as_json:
        talk(_json(error.to_json()))
    else:
        first, *others = error.message.split("\n")
        talk("\n".join([f"edgefed: error: {first}  [{error.code}]", *(f"  {o}" for o in others)]))
        if error.hint:
            talk(f"  try: {error.hint}")
    raise typer.Exit(error.exit_code)


@contextmanager
def reported(as_json: bool = False) -> Iterator[None]:
    """Turn an error of ours, or Ctrl-C, inside a ``with`` block into its message and exit code.

    On a terminal, long preparations inside the block draw a bar on stderr.
    """
    _progress.bar = ProgressBar(sys.stderr, SystemClock(), quiet=as_json)
    if _progress.bar.is_shown:
        tell_progress_to(_tell)
    with interruptible():
        try:
            yield
        except EdgeFedError as error:
            fail(error, as_json)
        except KeyboardInterrupt:
            fail(InterruptedRunError("Interrupted."), as_json)
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise
        except Exception as error:
            from edgefed.files.plugin_failures import plugin_failure

            failure = _without_role(error) or plugin_failure(error)
            if failure is None:
                raise
            fail(failure, as_json)
        finally:
            _progress.clear()


def show_progress(what: str, done: float, total: int, note: str = "") -> bool:
    """Draw the progress of a command on stderr, if that is a terminal; see ``ProgressBar.show``.

    Other output of the command appears above the bar, which vanishes when the command ends.

    Returns:
        Whether there is a terminal.
    """
    bar = _progress.bar
    if bar is not None:
        bar.show(what, done, total, note)
    return bar is not None and bar.is_shown


def hide_progress() -> None:
    """Remove the bar; ``show_progress`` draws it again."""
    _progress.clear()


def _tell(what: str, done: int, total: int) -> None:
    """Draw how far a preparation is; nothing is left of one that is done."""
    show_progress(what, done, total)
    if done >= total:
        hide_progress()


def _without_role(error: Exception) -> EdgeFedError | None:
    """Return an error that tells how to install a package that may be missing."""
    module = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    words = _INSTALLED_BY.get(module.partition(".")[0])
    if words is None:
        return None
    return UsageError(
        f"This command needs {module}, which is not installed.",
        code="role.missing",
        hint=f"pip install {words}",
    )


def start(app: typer.Typer) -> None:
    """Run a command line; Ctrl-C has the same effect before and after its command begins."""
    end_at_once_on_ctrl_c()
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(_freeze)
    try:
        app()
    except KeyboardInterrupt:
        error = InterruptedRunError("Interrupted.")
        talk(f"edgefed: error: {error.message}  [{error.code}]")
        sys.exit(error.exit_code)


def collect_at_end() -> None:
    """Let Python search for cycles at the end after all.

    Some packages of torch's exporters complain on stderr about objects that are left.
    """
    atexit.unregister(_freeze)


def _freeze() -> None:
    """Keep Python from searching torch's hundreds of thousands of objects for cycles at its end.

    That saves half a second. Triton, which some parts of torch load, would report on stderr the
    objects that are left.
    """
    if "triton._C.libtriton" not in sys.modules:
        gc.freeze()


Colour = Literal["red", "green", "yellow", "cyan", "magenta", "dim"]
"""A colour of the terminal's own palette, which suits its background."""

_CODES: Mapping[Colour, int] = {
    "dim": 2,
    "red": 31,
    "green": 32,
    "yellow": 33,
    "magenta": 35,
    "cyan": 36,
}

_CHECK_COLOURS: Mapping[str, Colour] = {"✓": "green", "!": "yellow", "✗": "red"}


class Coloured(str):
    """A cell of a table that has a colour on terminals that show colours.

    Attributes:
        colour: its colour.
    """

    __slots__ = ("colour",)
    colour: Colour

    def __new__(cls, text: str, colour: Colour) -> Coloured:
        """Return a text with a colour."""
        made = super().__new__(cls, text)
        made.colour = colour
        return made


def checks(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the lines of a check, whose first cells are ✓, ! or ✗, as a table in colours."""
    marked = [
        (Coloured(row[0], _CHECK_COLOURS[row[0]]) if row[0] in _CHECK_COLOURS else row[0], *row[1:])
        for row in rows
    ]
    return columns(marked)


LEAST_WRAPPED = 20
"""Characters below which the last column of a table is not wrapped; the terminal cuts it then."""


def columns(rows: Sequence[tuple[str, ...]], width: int | None = None) -> str:
    """Return rows as text, each column as wide as its widest cell.

    Args:
        rows: cells, as many in each row.
        width: wraps the last column at words, to lines of so many characters; by default the width
            of the terminal, without wrapping where stdout is not one.
    """
    if not rows:
        return ""
    rows = [tuple(map(_shown, row)) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    width = _terminal_width() if width is None else width
    before = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = widths[-1] if width is None else max(width - before, LEAST_WRAPPED)
    lines = []
    for row in rows:
        head = "".join(
            f"{_painted(cell)}{' ' * (size - len(cell))}  "
            for cell, size in zip(row[:-1], widths, strict=False)
        )
        is_long = len(row[-1]) > room
        wrapped = textwrap.wrap(row[-1], room) if is_long else [_painted(row[-1])]
        lines += [f"{head}{wrapped[0]}", *(f"{'':{before}}{more}" for more in wrapped[1:])]
    return "\n".join(line.rstrip() for line in lines)


def _shown(cell: str) -> str:
    """Return a cell with ``?`` for unprintable characters, since devices write many cells."""
    text = printable(cell, "?")
    return Coloured(text, cell.colour) if isinstance(cell, Coloured) else text


def _painted(cell: str) -> str:
    """Return a cell in its colour, where stdout shows colours."""
    if not isinstance(cell, Coloured) or not can_colour(sys.stdout):
        return cell
    return f"\x1b[{_CODES[cell.colour]}m{cell}\x1b[0m"


def _terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _write(stream: TextIO, text: str) -> None:
    """Write a line, with ``?`` for control characters and those that its encoding lacks."""
    _progress.clear()
    encoding = stream.encoding or "utf-8"
    stream.write(harmless(text).encode(encoding, errors="replace").decode(encoding) + "\n")
    stream.flush()


def _silence(stream: TextIO) -> None:
    """Point a stream whose reader has gone at nothing, so that closing it later does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _json(value: Any) -> str:
    """Return a value as JSON on one line."""
    return harmless_json(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return a value made of JSON's types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def confirm(action: str, question: str, *, yes: bool) -> None:
    """Ask before an action that cannot be undone; the answer no ends the program.

    Args:
        action: the action, as the beginning of a sentence.
        question: the question.
        yes: whether ``--yes`` was given, which answers it.

    Raises:
        UsageError: ``usage.confirm``: stdin is not a terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{action} needs a confirmation.", code="usage.confirm", hint="add --yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(0)
