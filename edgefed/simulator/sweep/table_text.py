"""A sweep's table as text, CSV and Markdown."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edgefed.simulator.sweep.file import setting_text
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.statistics import Better, Spread
from edgefed.simulator.sweep.table import CaseComparison, CaseRow, SweepColumn, Table, make_table
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.units import duration, size

Rows = list[tuple[str, ...]]

ARROWS: Mapping[Better | None, str] = {"higher": " ↑", "lower": " ↓"}

BYTE_WORDS = frozenset({"bytes", "sent", "received"})
"""Words of the names of metrics that are numbers of bytes."""


# -- for people -----------------------------------------------------------------------------------


def text_rows(table: Table) -> Rows:
    """Return the table of means and deviations; ``ROUNDS TO`` says how many seeds reached it."""
    head = ("case", "runs", *(column.label for column in table.shown), *_chosen(table))
    return [_capitals(head), *_body(table, value_text, lambda row: (row.case,))]


def _chosen(table: Table) -> list[str]:
    return ["chosen"] if table.chooses else []


def headed_rows(
    table: Table,
    label: Callable[[SweepColumn], str],
    cell: Callable[[CaseRow, SweepColumn], str],
    escape: Callable[[str], str],
) -> Rows:
    """Return the table for documents: cases by a column for each varied key, or by their names.

    Args:
        table: to write.
        label: returns the head of a column, without the arrow to its better values.
        cell: returns the value of a case, escaped.
        escape: for all else.
    """
    labels = (f"{label(one)}{ARROWS.get(one.better, '')}" for one in table.shown)
    head = (*_name_head(table), "runs", *labels, *_chosen(table))
    body = _body(table, cell, lambda row: tuple(map(escape, _name_cells(table, row))))
    return [tuple(map(escape, head)), *body]


def _name_head(table: Table) -> tuple[str, ...]:
    return tuple(table.keys.values()) or ("case",)


def _name_cells(table: Table, row: CaseRow) -> tuple[str, ...]:
    return tuple(setting_text(row.settings[key]) for key in table.keys) or (row.case,)


def _body(
    table: Table,
    cell: Callable[[CaseRow, SweepColumn], str],
    names: Callable[[CaseRow], tuple[str, ...]],
) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each case; ``names`` returns the first ones."""
    for row in table.rows:
        runs = f"{row.runs}, {row.failed} failed" if row.failed else str(row.runs)
        cells = (cell(row, column) for column in table.shown)
        chosen = ["yes" if row.chosen else ""] if table.chooses else []
        yield (*names(row), runs, *cells, *chosen)


def difference_rows(table: Table, *, by_key: bool = False) -> Rows:
    """Return the table of differences to the baseline, headed by the columns' labels.

    With ``by_key``, cases have a column for each varied key, as in ``headed_rows``.

    It is empty where fewer than two seeds can be compared.
    """
    columns = [column for column in table.columns if not column.target]
    compared = [row for row in table.rows if row.differences]
    differences = (one.difference for row in compared for one in row.differences.values())
    if all(difference.margin is None for difference in differences):
        return []
    head = (*(_name_head(table) if by_key else ["case"]), *(column.label for column in columns))
    cells = (
        (
            *(_name_cells(table, row) if by_key else [row.case]),
            *(_difference(row.differences[column.key], column) for column in columns),
        )
        for row in compared
    )
    return [head, *cells]


def difference_text(table: Table) -> list[tuple[str, ...]]:
    """Return ``difference_rows`` with a head in capitals."""
    rows = difference_rows(table)
    return [_capitals(rows[0]), *rows[1:]] if rows else []


def _capitals(head: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(str.upper, head))


def choice_lines(table: Table) -> list[str]:
    """Return a line for each choice."""
    lines = []
    for choice in table.choices:
        group = ", ".join(f"{key}={value}" for key, value in choice.within.items())
        where = f" of {group}" if group else ""
        seeds = ", ".join(map(str, choice.seeds))
        if choice.case:
            score = f"{choice.by} {_plain(choice.score.mean)} over seeds {seeds}"
            lines.append(f"chosen{where}: {choice.case} ({score})")
        else:
            lines.append(f"chosen{where}: none; no seed finished in every case")
    return lines


def value_text(
    row: CaseRow, column: SweepColumn, shown: Callable[[float], str] | None = None
) -> str:
    """Return mean and deviation of a case; ``shown`` writes a number, None with its own unit."""
    value = row.values[column.key]
    text = _spoken(value, shown or _shown(column))
    if not (column.target and column.key.endswith("rounds_to_target")):
        return text
    of = f"  ({value.count} of {row.runs})" if value.count < row.runs else ""
    return (text or "never") + of


def _difference(one: CaseComparison, column: SweepColumn) -> str:
    if one.difference.mean is None:
        return ""
    shown = _shown(column)
    sign = "−" if one.difference.mean < 0 else "+"
    text = f"{sign}{shown(abs(one.difference.mean))}"
    if one.difference.margin is not None:
        text += f" ± {shown(one.difference.margin)} {one.verdict}"
    return f"{text} (n={one.difference.count})"


def _spoken(value: Spread, shown: Callable[[float], str]) -> str:
    if value.mean is None:
        return ""
    return shown(value.mean) + ("" if value.deviation is None else f" ± {shown(value.deviation)}")


def _shown(column: SweepColumn) -> Callable[[float], str]:
    """Return how the values of a column are written."""
    words = set(column.key.split("_"))
    if column.key.endswith("rounds_to_target"):
        return "{:.1f}".format
    if words & BYTE_WORDS:
        return size
    if "seconds" in words:
        return duration
    if words & {"accuracy", "loss", "precision", "recall", "f1", "share"}:
        return "{:.4f}".format
    return _plain


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


# -- as CSV ---------------------------------------------------------------------------------------


def cases_csv(table: Table) -> str:
    """Return ``table.csv``: a row a case, columns for the statistics of each value."""
    keys = list(dict.fromkeys(key for row in table.rows for key in row.settings))
    return _csv([_case_fields(row, table, keys) for row in table.rows])


def _case_fields(row: CaseRow, table: Table, keys: Sequence[str]) -> dict[str, Any]:
    values = row.values
    reached = {
        f"{name.removesuffix('rounds_to_target')}reached_target": values[name].count
        for name in values
        if name.endswith("rounds_to_target")
    }
    fields = {
        "case": row.case,
        **{key: row.settings.get(key, "") for key in keys},
        "runs": row.runs,
        "failed": row.failed,
        **{f"{name}_mean": value.mean for name, value in values.items()},
        **{f"{name}_std": value.deviation for name, value in values.items()},
        **reached,
        **{f"{name}_margin": value.margin for name, value in values.items()},
        "measured_on": row.measured_on,
    }
    for column in table.columns:
        one = row.differences.get(column.key)
        if not column.target:
            fields |= {
                f"{column.key}_difference": one and one.difference.mean,
                f"{column.key}_difference_margin": one and one.difference.margin,
                f"{column.key}_pairs": one and one.difference.count,
                f"{column.key}_verdict": one and one.verdict,
            }
    return fields if row.chosen is None else {**fields, "chosen": row.chosen}


def runs_csv(plan: Plan, outcome: TrialOutcome, table: Table | None = None) -> str:
    """Return ``runs.csv``: a row a run."""
    table = table or make_table(plan, outcome)
    keys = list(dict.fromkeys(key for case in plan.cases for key in case.settings))
    places = {row.case: row.measured_on for row in table.rows}
    flat = []
    for trial in plan.trials():
        result, reason = outcome.results.get(trial.digest), outcome.failures.get(trial.digest)
        status = "finished" if result else "failed" if reason is not None else "pending"
        flat.append(
            {
                "case": trial.case.name,
                **{key: trial.case.settings.get(key, "") for key in keys},
                "seed": trial.seed,
                "status": status,
                **{column.key: result and column.of(result) for column in table.columns},
                "weights_digest": result.weights_digest if result else "",
                "folder": result.folder if result else "",
                "measured_on": places[trial.case.name] if result else "",
                "reason": reason or "",
            }
        )
    return _csv(flat)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


# -- as Markdown ----------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """Return ``table.md``: means with their 95 % intervals, differences, choices and failures."""
    best = table.best()

    def cell(row: CaseRow, column: SweepColumn) -> str:
        text = value_text(row, column)
        if not column.target:
            text += _interval(row.values[column.key], _shown(column))
        text = markdown_cell(text)
        return f"**{text}**" if (row.case, column.key) in best else text

    seeds = ", ".join(map(str, table.seeds))
    note = f"Mean ± standard deviation [95 % interval of the mean] over seeds {seeds}."
    parts = [
        _markdown_rows(headed_rows(table, lambda column: column.label, cell, markdown_cell)),
        f"{note} The best mean of a column is bold.",
    ]
    if differences := difference_rows(table, by_key=True):
        title = (
            f"Difference to {markdown_cell(table.baseline)}, paired by seed, with 95 % intervals:"
        )
        parts += [title, _markdown_rows([tuple(map(markdown_cell, row)) for row in differences])]
    lines = [
        *choice_lines(table),
        *(f"{name}: {text}" for name, text in table.missing.items()),
        *(
            f"{case}, seed {seed} failed: {reason} ({file})"
            for case, seed, reason, file in table.failures
        ),
    ]
    parts += ["\n".join(f"- {markdown_cell(line)}" for line in lines)] if lines else []
    return "\n\n".join(parts) + "\n"


def _interval(value: Spread, shown: Callable[[float], str]) -> str:
    if value.mean is None or value.margin is None:
        return ""
    ends = (value.mean - value.margin, value.mean + value.margin)
    low, high = (f"{'−' if end < 0 else ''}{shown(abs(end))}" for end in ends)
    return f" [{low} to {high}]"


def markdown_cell(text: str) -> str:
    """Return text in which Markdown sees no marks, on one line."""
    return re.sub(r"([\\|*`<>\[\]_])", r"\\\1", " ".join(text.split()))


def _markdown_rows(rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "---|" * len(rows[0])
    return "\n".join([lines[0], rule, *lines[1:]])
