"""HTML from the templates in ``edgefed/report/templates``; all text is escaped there."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from edgefed.charts.svg import printable_lines

_PARTS = "parts.html"


def _printable(value: object) -> object:
    """Return text without characters that a reader cannot see; markup stays as it is."""
    return value if hasattr(value, "__html__") else printable_lines(value)


_TEMPLATES = Environment(
    loader=PackageLoader("edgefed.report"),
    autoescape=True,
    finalize=_printable,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: object) -> str:
    """Return a template of this package with these values; ``markup | safe`` is not escaped."""
    return _TEMPLATES.get_template(template).render(**values)


def section(title: str, *content: str, note: str = "") -> str:
    """Return a headed part of the page; ``content`` is markup, ``note`` a sentence."""
    return _part("section", title, note, caller=lambda: "".join(content))


def tiles(values: Iterable[tuple[str, str]]) -> str:
    """Return the large numbers, each with its name; those without a value are left out."""
    return _part("tiles", values)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """Return a table; ``numbers`` are the places of columns of numbers, counted from 0."""
    return _part("table", head, rows, numbers)


def scroll(picture: str) -> str:
    """Return a picture in a box that scrolls when it is long."""
    return _part("scroll", picture)


def _part(name: str, *values: object, **more: object) -> str:
    macro = getattr(_TEMPLATES.get_template(_PARTS).module, name)
    return str(macro(*values, **more))
