"""The experts of a run: q(z|y) of each label, the devices' mixtures, the load over the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from edgefed.events.class_names import label_names
from edgefed.events.expert_events import problem_in_words
from edgefed.events.snapshot import ExpertsView, MixtureView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.pane import Pane
from edgefed.tui.panes.rows import RowsPane
from edgefed.tui.share_grid import Row, ShareGrid
from edgefed.tui.text_format import bar, sparks
from edgefed.tui.theme import MUTED, ORANGE, RULE, SKY, VERMILLION

NO_EXPERTS = "This run has no experts: start one with\nedgefed run start --algorithm fedmoe"

_BAR = 8

_END = "  ROUND  KEPT"
"""Columns after the shares of a device."""


class ExpertPane(Pane):
    """The common part of panes about experts: why they are empty."""

    absent = "No experts."
    """Text in a run without experts."""

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or that its algorithm has no experts."""
        missing = super().nothing(shown)
        if missing or shown.run is None or experts_of(shown) is not None:
            return missing
        return self.absent


class ExpertTablePane(RowsPane[Row], ExpertPane):
    """For each label, or value of a column, the share of each expert."""

    absent = NO_EXPERTS
    leads = True

    def heading(self, shown: Shown) -> str:
        """Return the meaning of rows and columns."""
        view = experts_of(shown)
        return f"q(z|y)  expert z given {view.condition} y" if view else "Experts"

    def nothing(self, shown: Shown) -> str:
        """Return why there is no table."""
        view = experts_of(shown)
        if view is not None and not view.table:
            return "The shares depend on the device, so that there is no table."
        return super().nothing(shown)

    def noun(self) -> str:
        """Return the noun for the items."""
        return "rows"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the experts."""
        view = experts_of(shown)
        return self._grid(shown, width).head(view.condition.upper() if view else "")

    def items(self, shown: Shown) -> list[Row]:
        """Return the known rows of the table, by name."""
        view = experts_of(shown)
        if view is None:
            return []
        named = zip(_names(shown, view), view.table, strict=True)
        return [(name, shares) for name, shares in named if shares]

    def rows(self, shown: Shown, width: int, items: Sequence[Row]) -> list[Text]:
        """Return a row for each label or value."""
        grid = self._grid(shown, width)
        return [grid.row(name, shares) for name, shares in items]

    def _grid(self, shown: Shown, width: int) -> ShareGrid:
        view = experts_of(shown)
        if view is None:
            return ShareGrid(0, 0, 0)
        names = [view.condition, *(name for name, _ in self.items(shown))]
        return ShareGrid.fitting(names, view.experts, width)


class MixturePane(RowsPane[MixtureView], ExpertPane):
    """For each device the share of each expert, and the experts that it keeps."""

    def heading(self, shown: Shown) -> str:
        """Return the meaning of rows and columns."""
        return "q(z|s)  expert z on device s" if experts_of(shown) else "Mixtures"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first answer."""
        missing = super().nothing(shown)
        if missing or self.items(shown):
            return missing
        return "Devices tell their mixtures with their first answer."

    def noun(self) -> str:
        """Return the noun for the items."""
        return "devices"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the experts, and the columns after them."""
        grid = self._grid(shown, width)
        return self._with_end(grid.head("DEVICE"), grid, Text(_END, MUTED), width)

    def items(self, shown: Shown) -> Sequence[MixtureView]:
        """Return the mixtures of the devices that have answered."""
        return shown.snapshot.mixtures if shown.snapshot else ()

    def rows(self, shown: Shown, width: int, items: Sequence[MixtureView]) -> list[Text]:
        """Return a row for each device."""
        grid = self._grid(shown, width)
        return [
            self._with_end(
                grid.row(each.device, each.shares), grid, _end(each, grid.experts), width
            )
            for each in items
        ]

    def _grid(self, shown: Shown, width: int) -> ShareGrid:
        view = experts_of(shown)
        names = ["DEVICE", *(each.device for each in self.items(shown))]
        return ShareGrid.fitting(names, view.experts if view else 0, width)

    def _with_end(self, line: Text, grid: ShareGrid, end: Text, width: int) -> Text:
        """Return a line with the columns after the shares, where there is room for some experts."""
        if grid.width + len(_END) > width:
            return line
        line.pad_right(max(0, grid.width - line.cell_len))
        return line.append_text(end)


class ExpertLoadPane(ExpertPane):
    """The load of each expert now and over the rounds, its entropy, and problems."""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name and the round."""
        view = experts_of(shown)
        return f"Load  round {view.round}" if view else "Load"

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first answer."""
        view = experts_of(shown)
        if view is not None and not view.load:
            return "Measured when the first round ends."
        return super().nothing(shown)

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return entropy and warning, then the experts with the largest load."""
        view = experts_of(shown)
        if view is None:
            return Text()
        lines = [entropy_line(view, width)]
        if problem_in_words(view):
            lines.append(problem_line(view))
        room = max(1, height - len(lines))
        order = sorted(range(view.experts), key=lambda expert: (-view.load[expert], expert))
        kept = sorted(order[: room - 1 if len(order) > room else room])
        lines += [_load(view, expert, width) for expert in kept]
        if len(kept) < len(order):
            lines.append(Text(f"… {len(order) - len(kept)} with less load", MUTED))
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def experts_of(shown: Shown) -> ExpertsView | None:
    """Return the run's experts; None without any."""
    return shown.snapshot.experts if shown.snapshot else None


def entropy_line(view: ExpertsView, width: int) -> Text:
    """Return the entropy of the load, now and over the rounds."""
    entropy = view.entropy or 0.0
    line = Text.assemble(("entropy ", MUTED), f"{entropy:.2f} of {math.log(view.experts):.2f} ")
    past = [row.entropy or 0.0 for row in view.rounds]
    room = max(0, width - line.cell_len)
    return line.append(sparks(past[len(past) - min(room, len(past)) :]), SKY)


def problem_line(view: ExpertsView) -> Text:
    """Return the problem of the experts."""
    return Text(f"! {problem_in_words(view)}", VERMILLION if view.collapsed else ORANGE)


def _load(view: ExpertsView, expert: int, width: int) -> Text:
    load = view.load[expert]
    full, empty = bar(load, _BAR)
    colour = ORANGE if expert in view.dead else SKY
    line = Text.assemble(
        f"{f'e{expert}':<4}", (full, colour), (empty, RULE), f"{load * 100:4.0f} % "
    )
    past = [row.load[expert] for row in view.rounds if len(row.load) > expert]
    top = max((share for row in view.rounds for share in row.load), default=1.0)
    room = max(0, width - line.cell_len)
    shown = past[len(past) - min(room, len(past)) :]
    return line.append(sparks([*shown, top])[:-1], MUTED)


def _end(mixture: MixtureView, experts: int) -> Text:
    """Return the round of a device's last answer, and the experts that it keeps."""
    kept = " ".join(f"e{expert}" for expert in mixture.kept)
    return Text(f"  {mixture.round:>5}  {'all' if len(mixture.kept) == experts else kept}")


def _names(shown: Shown, view: ExpertsView) -> list[str]:
    """Return the names of the rows: the run's classes, or numbers."""
    classes = shown.run.class_names if shown.run and view.condition == "label" else ()
    return label_names(classes, len(view.table))
