"""Problems by name, with their age, the worst first; then notes on the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from textwrap import wrap

from rich.text import Text

from edgefed.events.state.attention import (
    WITH_CAUSE,
    AttentionItem,
    AttentionKind,
    attention,
    by_cause,
)
from edgefed.terminal.units import age
from edgefed.tui.look.text_format import clean, cut, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.devices.fleet_summary import experts_of, fleet_notes
from edgefed.tui.state.display_state import Shown

_MARKS: dict[AttentionKind, str] = {
    "run": "✗", "alert": "✗", "waited": "✗", "silent": "?", "lost": "✗", "failed": "✗",
    "refused": "■", "standing": "!", "excluded": "□", "hot": "°", "paused": "◌", "battery": "%",
    "waiting": "◔", "warning": "!",
}  # fmt: skip
_WORDS: dict[AttentionKind, str] = {
    "run": "failed", "alert": "alerts", "waited": "lost, awaited", "silent": "silent",
    "lost": "lost", "failed": "failed", "refused": "refused", "standing": "of low trust",
    "excluded": "excluded", "hot": "hot", "paused": "paused",
    "battery": "of low battery", "waiting": "waiting", "warning": "warnings",
}  # fmt: skip
"""Items of one kind, after their number."""

_LONGEST_NAME = 18
_LEAST_CAUSE = 16

NO_PROBLEM = "Nothing needs attention."


class AttentionPane(Pane):
    """One item a line, long ones on more where there is room; then notes, if they fit."""

    def heading(self, shown: Shown) -> str:
        """Return the number of problems."""
        count = len(_items(shown))
        return f"Attention {count}" if count else "Attention"

    def footing(self, shown: Shown) -> str:
        """Return how to see the experts, in a run that has some, or the tables with a warning."""
        hint = "screen.experts" if experts_of(shown) else "screen.tables"
        wanted = experts_of(shown) or _warnings(shown)
        return super().footing(shown) or (shown.keys.hint(hint) if wanted else "")

    def nothing(self, shown: Shown) -> str:
        """Return nothing: that there is no problem is worth a line, too."""
        return ""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the problems, and notes on the fleet in the remaining room."""
        last = _warnings(shown)
        lines = [*item_lines(shown, _items(shown), width, height - len(last)), *last]
        lines = lines or [Text(NO_PROBLEM, MUTED)]
        notes = [Text(), *fleet_notes(shown, width)]
        if 1 < len(notes) <= height - len(lines):
            lines += notes
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines[:height])


def _warnings(shown: Shown) -> list[Text]:
    """Return what the method warns of, a line for each of its tables."""
    views = shown.snapshot.tables if shown.snapshot else ()
    return [Text(f"! {clean(view.table.warning)}", ORANGE) for view in views if view.table.warning]


def _items(shown: Shown) -> tuple[AttentionItem, ...]:
    return attention(shown.snapshot, shown.now) if shown.snapshot else ()


def item_lines(shown: Shown, items: Sequence[AttentionItem], width: int, height: int) -> list[Text]:
    """Return the items in at most ``height`` lines; those without room are folded by kind."""
    if len(items) > height:
        return _folded(shown, items, width, height)
    spare = height - len(items)
    lines: list[Text] = []
    for item in items:
        drawn = _lines(shown, item, width, 1 + spare)
        spare -= len(drawn) - 1
        lines += drawn
    return lines


def _folded(shown: Shown, items: Sequence[AttentionItem], width: int, height: int) -> list[Text]:
    """Return a line for each kind or cause; the rest of ``height`` goes to the worst items."""
    kinds: list[Sequence[AttentionItem]] = [*by_cause(items)]
    if len(kinds) > height:
        kinds = [list(group) for _, group in groupby(items, key=lambda item: item.kind)]
    if len(kinds) > height:
        kept = max(0, height - 1)
        return [*(_kind_line(shown, kind, width) for kind in kinds[:kept]), _counted(kinds[kept:])]
    spare = height - len(kinds)
    lines: list[Text] = []
    for kind in kinds:
        alone = len(kind) if len(kind) - 1 <= spare else spare
        spare -= min(spare, len(kind) - 1)
        lines += [_lines(shown, item, width, 1)[0] for item in kind[:alone]]
        if kind[alone:]:
            lines.append(_kind_line(shown, kind[alone:], width, "more " if alone else ""))
    return lines


def _kind_line(shown: Shown, kind: Sequence[AttentionItem], width: int, more: str = "") -> Text:
    """Return some items of one kind as ``5 lost: board-01, board-07 … +3``; one as itself.

    Items that are about no device or run have no name: the text of the newest is there instead.
    """
    if len(kind) == 1:
        return _lines(shown, kind[0], width, 1)[0]
    line = Text.assemble((f"{_MARKS[kind[0].kind]} ", f"bold {_colour(kind)}"))
    line.append(f"{len(kind)} {more}{_WORDS[kind[0].kind]}: ", "bold")
    named = any(item.subject for item in kind)
    spare = width - line.cell_len - _LONGEST_NAME
    cause = clean(kind[0].text).partition(": ")[2] if kind[0].kind in WITH_CAUSE else ""
    if cause and spare >= _LEAST_CAUSE and len(by_cause(kind)) == 1:
        line.append(f"{cut(cause, spare)}: ")
    room = width - line.cell_len
    return line.append(_names(kind, room) if named else cut(clean(kind[0].text), room))


def _names(kind: Sequence[AttentionItem], room: int) -> str:
    """Return the names that fit, at least one of them, and how many are left."""
    full = (clean(item.subject) or clean(item.text) for item in kind)
    names = [cut_middle(name, _LONGEST_NAME) for name in full]
    for count in range(len(names), 0, -1):
        rest = f" … +{len(names) - count}" if count < len(names) else ""
        listed = ", ".join(names[:count])
        if count == 1 or len(listed) + len(rest) <= room:
            return f"{cut(listed, max(0, room - len(rest)))}{rest}"
    return ""


def _counted(kinds: Sequence[Sequence[AttentionItem]]) -> Text:
    """Return how many items there are of each of some kinds."""
    return Text(f"+ {', '.join(f'{len(kind)} {_WORDS[kind[0].kind]}' for kind in kinds)}", MUTED)


def _colour(items: Sequence[AttentionItem]) -> str:
    return VERMILLION if any(item.severity == "alarm" for item in items) else ORANGE


def _lines(shown: Shown, item: AttentionItem, width: int, most: int) -> list[Text]:
    """Return an item in at most ``most`` lines: mark, name and text, and its age at the end.

    A text that would be cut takes the room of the age.
    """
    name = cut_middle(clean(item.subject), min(_LONGEST_NAME, width // 2))
    since = shown.since(item.since)
    old = "" if since is None else age(since.total_seconds())
    first = Text.assemble((f"{_MARKS[item.kind]} ", f"bold {_colour([item])}"), (name, "bold"))
    first.append(" " if name else "")
    wrapped = _wrapped(clean(item.text), width - first.cell_len, width - 2, most)
    lines = [first.append(wrapped[0]), *(Text(f"  {line}") for line in wrapped[1:])]
    if gap := max(0, width - lines[-1].cell_len - len(old)):
        lines[-1].append(" " * gap).append(old, MUTED)
    return lines


def _wrapped(text: str, room: int, width: int, most: int) -> list[str]:
    """Return a text in at most ``most`` lines; what has no room is cut.

    Args:
        text: the text.
        room: cells of the first line.
        width: cells of the others.
        most: the largest number of lines, at least one.
    """
    if most == 1 or len(text) <= room:
        return [cut(text, room)]
    begins = (wrap(text, max(1, room), break_on_hyphens=False) or [""])[0]
    rest = wrap(text[len(begins) :].strip(), max(1, width), break_on_hyphens=False)
    wrapped = [begins, *rest[: most - 1]]
    if len(rest) > most - 1:
        wrapped[-1] = cut(f"{wrapped[-1]} …", width)
    return wrapped
