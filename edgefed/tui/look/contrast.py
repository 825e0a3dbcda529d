"""Make every colour readable on its background: light themes, 16 colours and no colours at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from rich.color import Color as RichColor
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from edgefed.tui.look.theme import ORANGE, RULE, VERMILLION, YELLOW

TEXT, GRAPHICS = 4.5, 3.0
"""Least contrast of text, and of curves and bars, with their background."""

_FILLED = " ■"
"""Characters that reversing would hide rather than mark: they fill their cells, or nothing."""

_DEFAULT = Style(color=RichColor.default())
_STEPS = 25
_PALETTE = [
    RichColor.from_ansi(number).get_truecolor(DEFAULT_TERMINAL_THEME) for number in range(256)
]
_NUMBERS = {"standard": range(16), "256": range(16, 256)}
"""Colours of terminals with few; of 256, the first 16 are as their owner likes them."""

_MOST_KEPT = 8192
"""Segments that are kept as they were drawn."""

_BLACK, _WHITE = ColorTriplet(0, 0, 0), ColorTriplet(255, 255, 255)


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    """Return the contrast of two colours after WCAG 2, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@lru_cache(4096)
def readable(colour: ColorTriplet, background: ColorTriplet, least: float) -> ColorTriplet:
    """Return the colour, made lighter or darker until it has enough contrast."""
    ends = [_WHITE, _BLACK]
    ends.sort(key=lambda end: contrast(end, background), reverse=True)
    lighter = _luminance(colour) >= _luminance(background)
    natural = _WHITE if lighter else _BLACK
    end = natural if contrast(natural, background) >= least else ends[0]
    for step in range(_STEPS + 1):
        tried = _mixed(colour, end, step / _STEPS)
        if contrast(tried, background) >= least:
            return tried
    return end


class ReadableColours(LineFilter):
    """The last filter of all drawing, the same for every pane and widget.

    Text gets a contrast of at least 4.5 with its background, curves and bars one of 3; borders and
    other decoration in the colour of rules keep theirs. Without colours, alarms are reversed and
    warnings bold.

    Args:
        theme: the theme of the app.
        colours: False draws in shades of grey, as ``NO_COLOR`` asks.
        system: Rich's name of the terminal's colours; ``standard`` are 16 and ``256`` are 256.
        before: other filters, which are applied first; one filter is faster than several.
    """

    def __init__(
        self,
        theme: Theme,
        *,
        colours: bool = True,
        system: str | None = None,
        before: Sequence[LineFilter] = (),
    ) -> None:
        super().__init__()
        self._before = before
        self._readable: dict[tuple[str, Style, Color], Segment] = {}
        self._colours = colours
        self._numbers = _NUMBERS.get(system or "")
        self._rule = _parsed(theme.variables.get("border", RULE))
        self._alarms = {_parsed(VERMILLION), _parsed(theme.error or VERMILLION)}
        self._warnings = {_parsed(colour) for colour in (ORANGE, YELLOW, theme.warning or ORANGE)}
        self._foreground = _parsed(theme.foreground or ("#FFFFFF" if theme.dark else "#000000"))
        self._changes: dict[tuple[ColorTriplet, ColorTriplet, bool, bool, bool], Style] = {}

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with readable colours."""
        for line_filter in self._before:
            segments = line_filter.apply(segments, background)
        if len(self._readable) > _MOST_KEPT:
            self._readable.clear()
        return [self._segment(segment, background) for segment in segments]

    def _segment(self, segment: Segment, background: Color) -> Segment:
        """Return a segment with readable colours; most are as in an earlier drawing."""
        text, style, control = segment
        if style is None or control:
            return segment
        key = (text, style, background)
        if key not in self._readable:
            below = ColorTriplet(*background.rgb)
            self._readable[key] = Segment(text, self._style(text, style, below))
        return self._readable[key]

    def _style(self, text: str, style: Style, below: ColorTriplet) -> Style:
        drawing = all(map(is_drawing, text))
        quiet = drawing or not any(map(str.isalnum, text))
        filled = drawing or not text.strip(_FILLED)
        if style.color is None:
            return style + self._backdrop(style)
        if style.color.triplet is None:
            return style  # the terminal's own colours, which only its owner knows
        if style.bgcolor is not None:
            if style.bgcolor.triplet is None:  # as above, so the text takes the one made for it
                return style + self._emphasis(style.color.triplet, filled) + _DEFAULT
            below = style.bgcolor.triplet
        key = (style.color.triplet, below, drawing, quiet, filled)
        if key not in self._changes:
            self._changes[key] = self._change(*key)
        return style + self._changes[key]

    def _backdrop(self, style: Style) -> Style:
        """Return the background of empty cells, as text beside them has it."""
        back = style.bgcolor.triplet if style.bgcolor is not None else None
        if back is None or (self._colours and self._numbers is None):
            return Style()
        shown = back if self._colours else _grey(back)
        if self._numbers is None:
            return Style(bgcolor=RichColor.from_triplet(shown))
        return Style(bgcolor=RichColor.from_ansi(_nearest(shown, self._numbers)))

    def _change(
        self, colour: ColorTriplet, back: ColorTriplet, drawing: bool, quiet: bool, filled: bool
    ) -> Style:
        """Return the change of a style of these colours."""
        extra = Style()
        rule = quiet and colour in (_parsed(RULE), self._rule)
        if rule:
            colour = self._rule
        if not self._colours:
            extra = self._emphasis(colour, filled)
            colour = self._foreground if extra else colour
            colour, back = _grey(colour), _grey(back)
        least = 1.0 if rule else GRAPHICS if drawing else TEXT
        if self._numbers is not None:
            return extra + _numbered(colour, back, least, self._numbers)
        shown = RichColor.from_triplet(readable(colour, back, least))
        return extra + Style(color=shown, bgcolor=RichColor.from_triplet(back))

    def _emphasis(self, colour: ColorTriplet, filled: bool) -> Style:
        """Return the style that marks an alarm or a warning without its colour."""
        if colour in self._alarms:
            return Style(bold=True, reverse=not filled)
        return Style(bold=True) if colour in self._warnings else Style()


def is_drawing(char: str) -> bool:
    """Return whether a character is part of a line, a bar or a curve, not of a text."""
    return char.isspace() or 0x2500 <= ord(char) <= 0x259F or 0x2800 <= ord(char) <= 0x28FF


@lru_cache(4096)
def _numbered(
    colour: ColorTriplet, background: ColorTriplet, least: float, numbers: range
) -> Style:
    """Return the nearest of a few colours, the text's among those with enough contrast."""
    back = _nearest(background, numbers)
    below = _PALETTE[back]
    enough = tuple(n for n in numbers if contrast(_PALETTE[n], below) >= least)
    front = _nearest(readable(colour, below, least), enough)
    return Style(color=RichColor.from_ansi(front), bgcolor=RichColor.from_ansi(back))


@lru_cache(4096)
def _nearest(colour: ColorTriplet, numbers: range | tuple[int, ...]) -> int:
    def distance(number: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(_PALETTE[number], colour, strict=True))

    return min(numbers, key=distance)


@lru_cache(4096)
def _luminance(colour: ColorTriplet) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else float(((share + 0.055) / 1.055) ** 2.4)

    red, green, blue = map(linear, colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mixed(one: ColorTriplet, other: ColorTriplet, share: float) -> ColorTriplet:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return ColorTriplet(red, green, blue)


def _grey(colour: ColorTriplet) -> ColorTriplet:
    level = round(0.2126 * colour.red + 0.7152 * colour.green + 0.0722 * colour.blue)
    return ColorTriplet(level, level, level)


def _parsed(colour: str) -> ColorTriplet:
    return ColorTriplet(*Color.parse(colour).rgb)
