"""What benchmarks share: options, measurements in turn, tables and JSON."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from edgefed.simulator.sweep.statistics import Spread

ROOT = Path(__file__).resolve().parents[2]

Rows = Sequence[Mapping[str, Any]]
Figures = Rows | Mapping[str, Any]
First = TypeVar("First")
Second = TypeVar("Second")


# -- options --------------------------------------------------------------------------------------


def parser(name: str, doc: str | None, **options: object) -> ArgumentParser:
    """Return a parser with ``--json`` and other options.

    Args:
        name: of the command ``python -m benchmarks.NAME``.
        doc: the module's docstring; its first line describes the command.
        options: by name. A type makes a required option of this type, and a number, a word or a
            path is a default. A collection of words makes an option that takes some of them, by
            default all.
    """
    made = ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=(doc or "").split("\n", 1)[0]
    )
    for key, value in options.items():
        flag = f"--{key.replace('_', '-')}"
        if isinstance(value, type):
            made.add_argument(flag, type=value, required=True)
        elif isinstance(value, Collection) and not isinstance(value, str):
            words = list(value)
            made.add_argument(flag, nargs="+", choices=words, default=words)
        else:
            made.add_argument(flag, type=type(value), default=value)
    made.add_argument("--json", action="store_true", help="print JSON and not a table")
    return made


# -- measurements ---------------------------------------------------------------------------------


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time that a call takes in this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def in_turn(
    variants: Mapping[str, Callable[[], float]], repeats: int, warm: int = 0
) -> dict[str, list[float]]:
    """Return measurements of variants that take turns, so that a busy machine slows all of them.

    Args:
        variants: by name; each returns a measurement.
        repeats: measurements of each.
        warm: measurements of each before these, which do not count.
    """
    found: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(warm + repeats):
        for name, measure in variants.items():
            found[name].append(measure())
    return {name: each[warm:] for name, each in found.items()}


def pairs(
    first: Callable[[], First], second: Callable[[], Second], count: int
) -> Iterator[tuple[First, Second]]:
    """Yield results of two calls side by side; the call that begins a pair alternates."""
    for number in range(count):
        if number % 2:
            late, early = second(), first()
        else:
            early, late = first(), second()
        yield early, late


def median_ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios of neighbours in time, which a changing load alters less."""
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def printed_by(
    name: str,
    *words: str,
    program: str = sys.executable,
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return what a benchmark prints in a process of its own.

    Args:
        name: of the command ``python -m benchmarks.NAME``.
        words: its arguments.
        program: the interpreter.
        folder: the checkout.
        environment: variables beside those of this process.

    Raises:
        CalledProcessError: it failed.
    """
    command = [program, "-m", f"benchmarks.{name}", *words]
    known = {**os.environ, **(environment or {})}
    done = subprocess.run(
        command, cwd=folder, env=known, capture_output=True, text=True, check=True
    )
    return done.stdout


# -- output ---------------------------------------------------------------------------------------


def show(options: Namespace, found: Figures, text: str = "", indent: int | None = None) -> None:
    """Print what was found, as JSON or for people.

    Args:
        options: of the parser.
        found: figures, or rows of them; JSON has the attributes of what it does not know.
        text: the same for people; by default as of ``told``.
        indent: spaces before a nested line of JSON; by default JSON is one line.
    """
    print(json.dumps(found, indent=indent, default=vars) if options.json else text or told(found))


def told(found: Figures) -> str:
    """Return figures for people: rows as a table, and every other figure on a line of its own."""
    if not isinstance(found, Mapping):
        return table(found)
    lines, tables = [], []
    for key, value in found.items():
        if isinstance(value, Mapping) and all(isinstance(row, Mapping) for row in value.values()):
            tables.append(table([{key: name, **row} for name, row in value.items()]))
        elif isinstance(value, list) and all(isinstance(row, Mapping) for row in value):
            tables.append(table(value))
        else:
            lines.append({"": key, " ": _shown(value)})
    return "\n\n".join([*([table(lines)] if lines else []), *tables])


def table(rows: Rows, without: Collection[str] = ()) -> str:
    """Return rows as text, with numbers to the right; the heads are the keys.

    Args:
        rows: figures by key; a row may lack some.
        without: keys that are left out.
    """
    keys = [key for key in dict.fromkeys(itertools.chain(*rows)) if key not in without]
    columns = []
    for key in keys:
        cells = [key, *(_shown(row.get(key)) for row in rows)]
        are_words = all(isinstance(row.get(key, ""), (str, Mapping)) for row in rows)
        width = max(map(len, cells))
        columns.append([each.ljust(width) if are_words else each.rjust(width) for each in cells])
    lines = ("  ".join(line).rstrip() for line in zip(*columns, strict=True))
    return "\n".join(line for line in lines if line)


def _shown(value: object) -> str:
    """Return a figure as people read it, with four digits or two decimals."""
    if isinstance(value, Spread):
        return " ± ".join(
            _shown(each) for each in (value.mean, value.deviation) if each is not None
        )
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(_shown, value))
    return "" if value is None else str(value)
