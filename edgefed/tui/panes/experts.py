"""The experts of a run: q(z|y) of each label, the devices' mixtures, the load over the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.text import Text

from edgefed.events.expert_events import label_names, problem_in_words
from edgefed.events.snapshot import ExpertsView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.pane import Pane
from edgefed.tui.share_grid import Row, share_grid
from edgefed.tui.text_format import bar, sparks
from edgefed.tui.theme import MUTED, ORANGE, RULE, SKY, VERMILLION

_BAR = 8


class ExpertPane(Pane):
    """What panes about experts share: why there is nothing to show."""

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or that its algorithm has no experts."""
        missing = super().nothing(shown)
        if missing or shown.run is None or experts_of(shown) is not None:
            return missing
        return f"{shown.run.algorithm} has no experts. An algorithm with experts: fedmoe"


class ExpertTablePane(ExpertPane):
    """For each label, or value of a column, the share of each expert."""

    def heading(self, shown: Shown) -> str:
        """Return what the rows and columns are."""
        view = experts_of(shown)
        return f"q(z|y)  expert z given {view.condition} y" if view else "Experts"

    def nothing(self, shown: Shown) -> str:
        """Return why there is no table."""
        view = experts_of(shown)
        if view is not None and not view.table:
            return "The shares depend on the device, so that there is no table."
        return super().nothing(shown)

    def footing(self, shown: Shown) -> str:
        """Return how many rows there are, where not all are on the screen."""
        view = experts_of(shown)
        left = view is not None and view.labels > max(1, self.size.height - 1)
        return super().footing(shown) or (f"{view.labels} rows" if view and left else "")

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return as many rows as there is room for."""
        view = experts_of(shown)
        if view is None:
            return Text()
        rows = [
            (name, shares)
            for name, shares in zip(_names(shown, view), view.table, strict=True)
            if shares
        ]
        return _grid(view.condition, rows, view.experts, width, height)


class MixturePane(ExpertPane):
    """For each device the share of each expert."""

    def heading(self, shown: Shown) -> str:
        """Return what the rows and columns are."""
        return "q(z|s)  expert z on device s" if experts_of(shown) else "Mixtures"

    def nothing(self, shown: Shown) -> str:
        """Return what to wait for before the first answer."""
        missing = super().nothing(shown)
        if missing or (shown.snapshot and shown.snapshot.mixtures):
            return missing
        return "Devices tell their mixtures with their first answer."

    def footing(self, shown: Shown) -> str:
        """Return how many devices there are, where not all are on the screen."""
        count = len(shown.snapshot.mixtures) if shown.snapshot else 0
        left = count > max(1, self.size.height - 1)
        return super().footing(shown) or (f"{count} devices: 2 Devices" if left else "")

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return as many devices as there is room for."""
        view, snapshot = experts_of(shown), shown.snapshot
        if view is None or snapshot is None:
            return Text()
        rows = [(each.device, each.shares) for each in snapshot.mixtures[: max(0, height - 1)]]
        return _grid("device", rows, view.experts, width, height)


class ExpertLoadPane(ExpertPane):
    """The load of each expert now and over the rounds, its entropy, and what is wrong."""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name and the round."""
        view = experts_of(shown)
        return f"Load  round {view.round}" if view else "Load"

    def nothing(self, shown: Shown) -> str:
        """Return what to wait for before the first answer."""
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
    """Return what is wrong with the experts."""
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


def _grid(head: str, rows: Sequence[Row], experts: int, width: int, height: int) -> Text:
    lines = share_grid(head.upper(), rows[: max(0, height - 1)], experts, width)
    return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)


def _names(shown: Shown, view: ExpertsView) -> list[str]:
    """Return what the rows are called: the run's classes, or numbers."""
    classes = shown.run.class_names if shown.run and view.condition == "label" else ()
    return label_names(classes, len(view.table))
