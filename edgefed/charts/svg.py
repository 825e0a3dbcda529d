"""SVG elements as text, and their style; text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from edgefed.terminal.printable import printable

LIGHT = ("#1d5fb8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be185d", "#4b5563")
DARK = ("#7ab3f5", "#fb923c", "#4ade80", "#c9a2ff", "#facc15", "#22d3ee", "#f77cb5", "#b0b7c3")
"""One colour a series; further series begin again with broken lines."""

DASHES = ("", "7 3", "2 3", "9 3 2 3")


def printable_lines(text: object) -> str:
    """Return text without control characters and characters that turn text around.

    Each is replaced by U+FFFD; ends of lines stay.
    """
    lines = str(text).expandtabs(4).replace("\r\n", "\n").split("\n")
    return "\n".join(printable(line, "\ufffd") for line in lines)


def clean(text: object) -> str:
    """Return text as XML takes it, in elements and in quoted attributes."""
    return escape(printable_lines(text), quote=True)


def element(tag: str, content: str = "", /, **attributes: object) -> str:
    """Return an element; ``content`` is markup, attribute values are text or numbers.

    ``class_`` stands for ``class``; an underscore within a name is a hyphen; an empty value is left
    out.
    """
    markup = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value != ""
    )
    return f"<{tag}{markup}>{content}</{tag}>" if content else f"<{tag}{markup}/>"


def label(x: float, y: float, text: object, class_: str = "") -> str:
    """Return a line of text that begins, ends or is centred at a point, as its class says."""
    return element("text", clean(text), x=x, y=y, class_=class_)


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    title: str,
    class_: str,
    *,
    opacity: float = 1.0,
    rx: object = "",
) -> str:
    """Return a filled rectangle that shows its title under the mouse."""
    shade = "" if opacity == 1.0 else f"{opacity:.2f}"
    content = element("title", clean(title))
    return element(
        "rect", content, x=x, y=y, width=width, height=height, rx=rx, class_=class_,
        fill_opacity=shade,
    )  # fmt: skip


def picture(width: float, height: float, parts: Iterable[str], *, title: str) -> str:
    """Return an ``svg`` element for a page that has the stylesheet."""
    content = element("title", clean(title)) + "".join(parts)
    return (
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {_value(width)} {_value(height)}" '
        f'width="{_value(width)}" height="{_value(height)}">{content}</svg>'
    )


def standalone(svg: str) -> str:
    """Return a picture as a file of its own: with its style, on a ground of its own."""
    ground = ".ground{fill:#fff}@media (prefers-color-scheme:dark){.ground{fill:#0d1117}}"
    start = svg.index(">") + 1
    style = element("style", stylesheet() + ground)
    back = element("rect", class_="ground", width="100%", height="100%")
    return f"{svg[:start]}{style}{back}{svg[start:]}\n"


def stacked(pictures: Sequence[tuple[str, str]], *, title: str) -> str:
    """Return pictures one below the other, each under its heading, as one picture."""
    parts, top, width = list[str](), 0.0, 0.0
    for heading, svg in pictures:
        wide, high = map(float, svg[svg.index('viewBox="0 0 ') + 13 :].split('"', 1)[0].split())
        parts.append(label(8, top + 20, heading))
        parts.append(svg.replace("<svg ", f'<svg x="8" y="{_value(top + 32)}" ', 1))
        top, width = top + high + 48, max(width, wide + 16)
    return picture(width, top, parts, title=title)


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Return coordinates as ``points`` has them."""
    return " ".join(f"{_value(x)},{_value(y)}" for x, y in pairs)


def stylesheet() -> str:
    """Return the rules that a page or a picture needs for its charts."""
    dark = f"{_base('#c9d1d9', '#2d333b', '#8b949e')}{_series(DARK)}"
    return (
        ".chart text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}"
        ".chart .line{fill:none;stroke-width:2;stroke-linejoin:round}"
        ".chart .band{fill-opacity:.16}.chart .grid,.chart .axis{fill:none}"
        ".chart .end{text-anchor:end}.chart .middle{text-anchor:middle}"
        f"{_base('#24292f', '#e3e7ec', '#68717b')}{_series(LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{dark}}}"
    )


def series_class(number: int) -> str:
    """Return the class of a series' line, counted from 0."""
    return f"s{number % len(LIGHT)}"


def fill_class(number: int) -> str:
    """Return the class of areas filled in a series' colour."""
    return f"f{number % len(LIGHT)}"


def dashes(number: int) -> str:
    """Return the dash pattern of a series; empty for a solid line."""
    return DASHES[number // len(LIGHT) % len(DASHES)]


def _base(ink: str, grid: str, quiet: str) -> str:
    return (
        f".chart text{{fill:{ink}}}.chart .quiet{{fill:{quiet}}}"
        f".chart .grid{{stroke:{grid}}}.chart .axis{{stroke:{quiet}}}"
    )


def _series(colours: Sequence[str]) -> str:
    return "".join(
        f".chart .s{k}{{stroke:{colour}}}.chart .f{k}{{fill:{colour}}}"
        for k, colour in enumerate(colours)
    )


def _value(value: object) -> str:
    """Return an attribute's value; coordinates to a tenth of a pixel."""
    if isinstance(value, float):
        return f"{value:.1f}".rstrip("0").rstrip(".")
    return clean(value)
