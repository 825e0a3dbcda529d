"""SVG elements as text; text from outside is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from edgefed.charts.style import stylesheet
from edgefed.printable import printable


def clean(text: object) -> str:
    """Return text as HTML and XML take it, in elements and in quoted attributes.

    What cannot be shown, such as control characters and what turns text around, is replaced; ends
    of lines stay.
    """
    lines = str(text).expandtabs(4).replace("\r\n", "\n").split("\n")
    return escape("\n".join(printable(line, "\ufffd") for line in lines), quote=True)


def element(tag: str, content: str = "", /, **attributes: object) -> str:
    """Return an element; ``content`` is markup, attribute values are text or numbers.

    ``class_`` stands for ``class``; an underscore within a name is a hyphen; an empty value is left
    out.
    """
    told = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for name, value in attributes.items()
        if value != ""
    )
    return f"<{tag}{told}>{content}</{tag}>" if content else f"<{tag}{told}/>"


def label(x: float, y: float, text: object, class_: str = "") -> str:
    """Return a line of text that begins, ends or is centred at a point, as its class says."""
    return element("text", clean(text), x=x, y=y, class_=class_)


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


def _value(value: object) -> str:
    """Return an attribute's value; coordinates to a tenth of a pixel."""
    if isinstance(value, float):
        return f"{value:.1f}".rstrip("0").rstrip(".")
    return clean(value)
