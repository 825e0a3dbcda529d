"""Write docs/reproduce.md: every table, its known numbers, and its claims.

python docs/make_reproduce_page.py
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from edgefed.reproduce.paper_tables import tables
from edgefed.reproduce.sources import SOURCES
from edgefed.reproduce.table import EACH, SCALES, Claim, PaperTable, Scaled

PAGE = Path(__file__).with_name("reproduce.md")

MARK = "<!-- generated below by docs/make_reproduce_page.py -->\n"
WIDTH = 120

TABLES = """\
## The tables

If the numbers are known, the table names their sources. Of the others only the order is known.
"""


def page(opening: str) -> str:
    """Return the page: what is written by hand, up to the mark, and what is made."""
    found = tables().values()
    listed = [
        "| table | title | published | runs at smoke, small, paper |",
        "|---|---|---|---|",
        *(_listed(table) for table in found),
    ]
    parts = ["\n".join(listed), *("\n".join(_section(table)) for table in found)]
    made = "\n\n".join([f"## Data files\n\n{_data()}", TABLES.strip(), *parts])
    return f"{opening.partition(MARK)[0]}{MARK}\n{made}\n"


def _data() -> str:
    rows = ["| data | first existing path in the folder |", "|---|---|"]
    for source in SOURCES.values():
        told = [
            f"`{place.pattern}`" + (f" with `{place.beside}` beside it" if place.beside else "")
            for place in source.places
        ]
        rows.append(f"| {source.title} | {', '.join(told)} |")
    return "\n".join(rows)


def _listed(table: PaperTable) -> str:
    counts = ", ".join(str(_runs(table, table.scales[scale])) for scale in SCALES)
    kind = "numbers" if table.published else "order"
    return f"| [{table.name}](#{table.name}) | {_cell(table.title)} | {kind} | {counts} |"


def _cell(text: str) -> str:
    """Return text for a cell of a table."""
    return text.replace("|", "\\|")


def _runs(table: PaperTable, scaled: Scaled) -> int:
    rows = [row for row in table.rows if row.label not in scaled.left_out]
    return len(rows) * len(scaled.columns) * len(scaled.seeds)


def _section(table: PaperTable) -> Iterator[str]:
    paper = table.paper
    yield f"### {table.name}\n"
    yield _wrapped(f"{paper.authors}: {paper.title}, {paper.where}. Known: {table.known}.")
    if table.published:
        yield ""
        yield from _numbers(table)
    for title, lines in (
        ("Claims", [_claim(claim) for claim in table.claims]),
        ("Readings", list(table.notes)),
        ("Left out", list(_left_out(table))),
    ):
        if lines:
            yield ""
            yield _wrapped(f"{title}: {'; '.join(lines)}.")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _numbers(table: PaperTable) -> Iterator[str]:
    columns = list(dict.fromkeys(each.column for each in table.published))
    yield f"| % | {' | '.join(map(_cell, columns))} | source |"
    yield f"|---|{'---|' * len(columns)}---|"
    for row in table.rows:
        found = [table.number(row.label, column) for column in columns]
        known = [each for each in found if each is not None]
        if known:
            cells = " | ".join("" if each is None else f"{each.value:g}" for each in found)
            yield f"| {_cell(row.label)} | {cells} | {known[0].source} |"


def _claim(claim: Claim) -> str:
    columns = {term.column for term in claim.terms} - {EACH}
    return f"{claim.text} ({columns.pop()})" if len(columns) == 1 else claim.text


def _left_out(table: PaperTable) -> Iterator[str]:
    for scale in SCALES:
        for what, why in table.scales[scale].left_out.items():
            if all(table.scales[other].left_out.get(what) == why for other in SCALES):
                if scale == SCALES[0]:
                    yield f"{what}, {why}"
            else:
                yield f"at {scale} {what}, {why}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
