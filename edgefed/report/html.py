"""HTML elements as text; all text is escaped here and nowhere else."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from edgefed.charts.style import stylesheet
from edgefed.charts.svg import clean
from edgefed.report.style import CSS


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page that needs nothing from anywhere else."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{clean(title)}</title>\n<style>{CSS}{stylesheet()}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def section(title: str, *content: str, note: str = "") -> str:
    """Return a headed part of the page; ``content`` is markup, ``note`` a sentence."""
    told = f'<p class="quiet">{clean(note)}</p>' if note else ""
    return f"<section><h2>{clean(title)}</h2>{told}{''.join(content)}</section>"


def tiles(run_data: Iterable[tuple[str, str]]) -> str:
    """Return the large numbers: what each is, and its value; those without one are left out."""
    shown = (
        f'<div class="tile"><span>{clean(name)}</span><b>{clean(value)}</b></div>'
        for name, value in run_data
        if value
    )
    return f'<div class="tiles">{"".join(shown)}</div>'


def pairs(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values; those without a value are left out."""
    shown = (
        f'<tr><th>{clean(name)}</th><td class="wide">{clean(value)}</td></tr>'
        for name, value in rows
        if value
    )
    return f"<table>{''.join(shown)}</table>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """Return a table; ``numbers`` are the places of columns of numbers, counted from 0."""

    def cell(tag: str, place: int, text: str) -> str:
        class_ = ' class="number"' if place in numbers else ' class="wide"' if tag == "td" else ""
        return f"<{tag}{class_}>{clean(text)}</{tag}>"

    def row(tag: str, cells: Sequence[str]) -> str:
        return f"<tr>{''.join(cell(tag, k, text) for k, text in enumerate(cells))}</tr>"

    return f"<table>{row('th', head)}{''.join(row('td', cells) for cells in rows)}</table>"


def scroll(markup: str) -> str:
    """Return markup in a box that scrolls when it is long."""
    return f'<div class="scroll">{markup}</div>'


def folded(summary: str, markup: str) -> str:
    """Return markup that is shown when its summary is clicked."""
    return f"<details><summary>{clean(summary)}</summary>{markup}</details>"


def code(text: str) -> str:
    """Return text as it is, in letters of one width."""
    return f"<pre>{clean(text)}</pre>"
