"""A sweep's table as LaTeX, with one unit for all values of a column."""

from __future__ import annotations

import re

from edgefed.simulator.sweep.report import SHARE
from edgefed.simulator.sweep.table import CaseRow, SweepColumn, Table
from edgefed.simulator.sweep.table_text import BYTE_WORDS, headed_rows, value_text

TEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "−": "$-$",
}
"""Characters that LaTeX reads as something else, also after the end of a row, and those of our own
that fonts may lack."""

BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def latex(table: Table) -> str:
    """Return ``table.tex``: a ``tabular`` of the package booktabs."""
    best, signs = table.best(), {"better": "$^{+}$", "worse": "$^{-}$"}
    units = {column.key: _unit(table, column) for column in table.shown}

    def label(column: SweepColumn) -> str:
        unit = units[column.key][0]
        return f"{column.label} ({unit})" if unit else column.label

    def cell(row: CaseRow, column: SweepColumn) -> str:
        _, factor, form = units[column.key]
        shown = value_text(row, column, lambda value: f"{value * factor:{form}}")
        text, one = latex_cell(shown), row.differences.get(column.key)
        text = rf"\textbf{{{text}}}" if (row.case, column.key) in best else text
        return text + (signs.get(one.verdict, "") if one else "")

    seeds = ", ".join(map(str, table.seeds))
    head, *body = headed_rows(table, label, cell, latex_cell)
    names = len(table.keys) or 1
    lines = [
        f"% Mean and standard deviation over seeds {seeds}; the best mean of a column is bold.",
        f"% + and - : better or worse than {' '.join(table.baseline.split())}, beyond the 95 %",
        "% interval of the differences by seed. Needs \\usepackage{booktabs}.",
        rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(head) - names)}}}",
        r"\toprule",
        " & ".join(head) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in body),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _unit(table: Table, column: SweepColumn) -> tuple[str, float, str]:
    """Return the unit of a column, values in it of a number of the table, and their format."""
    words = set(column.key.split("_"))
    if column.key.endswith("rounds_to_target"):
        return "", 1.0, ".1f"
    if "seconds" in words:
        return "s", 1.0, ".2f"
    if words & BYTE_WORDS:
        means = (row.values[column.key].mean or 0.0 for row in table.rows)
        power, largest = 0, max(map(abs, means), default=0.0)
        while largest >= 1024 and power < len(BYTE_UNITS) - 1:
            power, largest = power + 1, largest / 1024
        return BYTE_UNITS[power], 1024.0**-power, ".2f" if power else ".0f"
    if SHARE.fullmatch(re.sub("^(device|validation)_", "", column.key)):
        return "%", 100.0, ".2f"
    return "", 1.0, ".4g"


def latex_cell(text: str) -> str:
    """Return text in which LaTeX sees no commands, on one line."""
    return "".join(TEX.get(sign, sign) for sign in " ".join(text.split()))
