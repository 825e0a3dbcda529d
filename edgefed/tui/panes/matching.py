"""The matched layers of a run: the last matching of each, and the widths by round."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.layer_table import growth_of, layer_names, width_of
from edgefed.events.matching_events import matching_in_words
from edgefed.events.snapshot import LayerMatchView, MatchingView, MatchRoundView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.rows import RowsPane
from edgefed.tui.text_format import bar, clean, cut, sparks
from edgefed.tui.theme import GREEN, MUTED, ORANGE, RULE, SKY
from edgefed.units import counted

NO_MATCHING = "This run matches no layers: start one with\nedgefed run start --algorithm fedma"

_NAMES = (6, 20)
"""Least and largest width of a layer."""

_BAR = 12
_WIDE = 96
"""Cells from which a layer has a bar of its growth."""

_GROWN = 2.0
"""Growth from which a layer is marked: it has at least twice the units of a device."""

_WIDTH = 6
"""Cells of a layer's width in a round."""

_TREND = 12
"""Least cells of the widths over all rounds, with the space before them."""


class MatchingPane(RowsPane[int]):
    """The common part of panes about matched layers: rows are layers, and why there are none."""

    def view(self, shown: Shown) -> MatchingView | None:
        """Return the run's matching; None without any."""
        return shown.snapshot.matching if shown.snapshot else None

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or which kinds of run match layers."""
        return super().nothing(shown) or ("" if self.view(shown) else NO_MATCHING)

    def noun(self) -> str:
        """Return the noun for the items."""
        return "layers"

    def items(self, shown: Shown) -> range:
        """Return the layers' numbers."""
        view = self.view(shown)
        return range(len(view.layers) if view else 0)


class LayersPane(MatchingPane):
    """The last matching of each layer."""

    leads = True

    def heading(self, shown: Shown) -> str:
        """Return the progress of the matching."""
        view = self.view(shown)
        if view is None:
            return "Matched layers"
        told = f"round {view.round}, {matching_in_words(view)}, {counted(view.devices, 'device')}"
        return f"Matched layers  {told}"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the columns."""
        names = _names(self.view(shown))
        line = f"{'LAYER':<{names}} {'LOCAL':>6} {'ATOMS':>6} {'GROWTH':>7} "
        line += f"{'':<{_BAR + 1}}" if width >= _WIDE else ""
        return Text(f"{line}{'HOLDERS':>7} {'OBJECTIVE':>11}  MATCHED", MUTED)

    def rows(self, shown: Shown, width: int, items: Sequence[int]) -> list[Text]:
        """Return a row for each layer."""
        view = self.view(shown)
        if view is None:
            return []
        most = max((growth_of(layer) or 0.0 for layer in view.layers), default=0.0)
        return [
            _layer(name, view.layers[number], _when(view, number), most, width)
            for number, name in _named(view, items)
        ]


class WidthsPane(MatchingPane):
    """The atoms of each layer after the last rounds; those that grew are marked."""

    def heading(self, shown: Shown) -> str:
        """Return the meaning of the cells."""
        view = self.view(shown)
        return f"Atoms by round  {counted(len(view.rounds), 'round')}" if view else "Atoms by round"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first round."""
        view = self.view(shown)
        if shown.run is not None and (view is None or not view.rounds):
            return "Drawn from the first round whose layers are matched."
        return super().nothing(shown)

    def head(self, shown: Shown, width: int) -> Text:
        """Return the numbers of the rounds that fit, the newest last."""
        view = self.view(shown)
        if view is None:
            return Text()
        numbers = "".join(f"{f'r{row.round}':>{_WIDTH}}" for row in _newest(view, width))
        return Text(f"{'LAYER':<{_names(view)}}{numbers}  TREND", MUTED)

    def rows(self, shown: Shown, width: int, items: Sequence[int]) -> list[Text]:
        """Return a row for each layer."""
        view = self.view(shown)
        if view is None:
            return []
        return [_widths(name, number, view, width) for number, name in _named(view, items)]


def _names(view: MatchingView | None) -> int:
    longest = max(map(len, layer_names(view)), default=0) if view else 0
    return min(_NAMES[1], max(_NAMES[0], longest))


def _named(view: MatchingView, numbers: Sequence[int]) -> list[tuple[int, Text]]:
    """Return some layers with the heads of their rows: their names, equally wide."""
    width, names = _names(view), layer_names(view)
    return [(each, Text(f"{cut(clean(names[each]), width):<{width}}")) for each in numbers]


def _when(view: MatchingView, number: int) -> str:
    """Return whether a layer was matched in the open round, the one before, or never."""
    if number < view.matched:
        return f"round {view.round}"
    return f"round {view.round - 1}" if view.layers[number].atoms else ""


def _layer(line: Text, layer: LayerMatchView, when: str, most: float, width: int) -> Text:
    growth = growth_of(layer)
    grown = ORANGE if (growth or 0.0) >= _GROWN else ""
    atoms = str(layer.atoms) if layer.atoms else "·"
    line.append(f" {layer.local:>6} {atoms:>6} ")
    line.append(f"{'·' if growth is None else f'{growth:.2f}':>7} ", grown)
    if width >= _WIDE:
        full, empty = bar((growth or 0.0) / most if most else 0.0, _BAR)
        line.append(full, grown or SKY).append(empty, RULE).append(" ")
    holders = f"{layer.holders:.2f}" if layer.atoms else "·"
    objective = "·" if layer.objective is None else f"{layer.objective:.6g}"
    line.append(f"{holders:>7} {objective:>11}  ")
    return line.append(when or "not yet", GREEN if when else MUTED)


def _newest(view: MatchingView, width: int) -> Sequence[MatchRoundView]:
    """Return the last rounds, as many as have room for a number."""
    room = max(1, (width - _names(view) - _TREND) // _WIDTH)
    return view.rounds[-room:]


def _widths(line: Text, number: int, view: MatchingView, width: int) -> Text:
    before: int | None = None
    for row in _newest(view, width):
        atoms = width_of(row, number)
        grew = atoms is not None and before is not None and atoms > before
        line.append(f"{'·' if atoms is None else atoms:>{_WIDTH}}", ORANGE if grew else "")
        before = atoms
    past = [width_of(row, number) or 0 for row in view.rounds]
    room = max(1, width - line.cell_len - 2)
    return line.append(f"  {sparks(past[-room:])}", SKY)
