"""The word, symbol and colour of each state, and letters that can replace the symbols."""

from __future__ import annotations

from dataclasses import dataclass

from rich.segment import Segment
from rich.text import Text
from textual.color import Color
from textual.filter import LineFilter

from edgefed.events.base.model import RunStatus
from edgefed.events.base.snapshot import DeviceOutcome, ShownState
from edgefed.events.state.attention import HOT_FROM
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, PURPLE, SKY, VERMILLION, YELLOW

ACTIVE: tuple[ShownState, ...] = ("download", "train", "evaluate", "upload")
"""States in which a device works on an exchange, so that its fraction means something."""

HOT = HOT_FROM
"""°C from which a temperature is marked."""


@dataclass(frozen=True)
class Look:
    """The symbol and the colour of a state, and the state's meaning."""

    symbol: str
    colour: str
    meaning: str = ""


DEVICE_LOOKS: dict[ShownState, Look] = {
    "idle": Look("○", MUTED, "ready"),
    "asked": Look("◔", YELLOW, "sent its task"),
    "invited": Look("◔", YELLOW, "asked, not begun"),
    "download": Look("▽", SKY, "fetches the model"),
    "train": Look("●", SKY, "trains"),
    "evaluate": Look("◆", PURPLE, "measures"),
    "upload": Look("▲", SKY, "sends its answer"),
    "done": Look("✓", GREEN, "answered"),
    "paused": Look("◌", ORANGE, "by itself or an operator"),
    "excluded": Look("□", ORANGE, "not asked by this run"),
    "quarantined": Look("!", VERMILLION, "not asked until released"),
    "late": Look("◷", ORANGE, "answered after the deadline"),
    "rejected": Look("■", VERMILLION, "its answer was refused"),
    "failed": Look("✗", VERMILLION, "could not answer"),
    "silent": Look("?", VERMILLION, "does not answer a ping"),
    "lost": Look("✗", VERMILLION, "not connected"),
}

STATES = tuple(DEVICE_LOOKS)
"""Device states in the order in which a device passes through them, then the failures."""

OUTCOME_LOOKS: dict[DeviceOutcome, Look] = {
    "accepted": Look("✓", GREEN, "accepted"),
    "late": DEVICE_LOOKS["late"],
    "lost": DEVICE_LOOKS["lost"],
    "refused": Look("■", VERMILLION, "its answer was refused"),
    "rejected": DEVICE_LOOKS["rejected"],
    "failed": DEVICE_LOOKS["failed"],
}

RUN_LOOKS: dict[RunStatus, Look] = {
    "waiting": Look("◔", YELLOW),
    "running": Look("●", SKY),
    "pausing": Look("◌", ORANGE),
    "paused": Look("◌", ORANGE),
    "finishing": Look("●", SKY),
    "finished": Look("✓", GREEN),
    "aborted": Look("■", VERMILLION),
    "failed": Look("✗", VERMILLION),
}

SYMBOLS = {
    "▲": "to the coordinator",
    "▼": "from the coordinator",
    "▶": "goes on now",
    "·": "nothing: no value, no outcome",
    "—": "not known",
    "›": "an order, among events",
    "*": "changed by you",
    ">": "the current row",
    "!": "a warning",
    "°": "hot",
    "%": "low battery",
}
"""Meanings of the symbols beside those of states and in curves; each has one meaning."""

WORD_COLOURS = {
    "open": YELLOW,
    "closed": GREEN,
    "cancelled": ORANGE,
    "dead": ORANGE,
    "collapsed": VERMILLION,
    "failed": VERMILLION,
}
"""Colours of cells of tables that hold nothing but these words."""

MARK_COLOURS = {"✓": GREEN, "■": VERMILLION, "✗": VERMILLION, "◷": ORANGE, "◌": ORANGE, "!": ORANGE}
"""Colours of the marks before event lines; any other mark is muted."""

_LETTERS = dict(
    zip(
        "○◔▽●▲◆✓◌✗◷□■▼▶↑↓→›│─┤└·…—°×▁▂▃▄▅▆▇█░▒▓",
        "oiv*^e+pxlnrv>^v>>|-|+.~-'x_.:-=+*#-=%",
        strict=True,
    )
)
_SCROLLBARS = dict.fromkeys("▉▊▋▌▍▎▏", "#")
"""Further characters with which Textual draws bars."""

_BRAILLE = {chr(0x2800 + dots): "#" for dots in range(1, 256)}
_TO_ASCII = str.maketrans({**_LETTERS, **_SCROLLBARS, **_BRAILLE})


class AsciiFilter(LineFilter):
    """Replaces the symbols that Textual itself draws, such as those of scrollbars."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments in letters."""
        return [segment._replace(text=segment.text.translate(_TO_ASCII)) for segment in segments]


@dataclass(frozen=True)
class Glyphs:
    """The characters that the terminal can show.

    Attributes:
        ascii: replace every symbol by one letter of the same width.
    """

    ascii: bool = False

    def line(self, line: str) -> str:
        """Return a line as this terminal shows it."""
        return line.translate(_TO_ASCII) if self.ascii else line

    def text(self, text: Text) -> Text:
        """Return a styled text as this terminal shows it, its styles where they were."""
        if not self.ascii:
            return text
        shown = text.copy()
        shown.plain = self.line(text.plain)
        return shown
