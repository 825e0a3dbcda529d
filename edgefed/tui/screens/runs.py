"""Screen 7: all runs, newest first, and some of them side by side.

The comparison shows curves on one axis, results, and settings that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import DataTable, Static

from edgefed.events.history.known_runs import RunDetails, RunRow
from edgefed.events.history.recording import Recording
from edgefed.events.history.run_comparison import Comparison, compare
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.text_format import clean
from edgefed.tui.panes.base.compared_runs import LETTERS, ComparedRunsPane
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.runs.run_comparison import RunComparisonPane
from edgefed.tui.panes.runs.run_curves import RunCurvesPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.screens.run_model import NO_MODEL, RunModelScreen
from edgefed.tui.state.key_orders import CoordinatorOrder, give, not_resumable
from edgefed.tui.state.messages import CoordinatorRequest, ReplayChosen, RequestWanted
from edgefed.tui.state.run_reading import RunReading, recording_of
from edgefed.tui.state.threaded_requests import in_thread
from edgefed.tui.tables.run_table import RunTable

T = TypeVar("T")


class RunComparisonScreen(Screen[None]):
    """The curves of some runs and their comparison; read anew when a round of one ends."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Back"),
        Binding("enter", "dismiss", "Back", id="runs.open"),
        *bindings_of("comparison"),
    ]
    AUTO_FOCUS = "#comparison"

    def __init__(self, board: Board, runs: Sequence[str]) -> None:
        super().__init__(classes="board")
        self._board = board
        self._runs = runs
        self._read_at: object = None
        self._reading = RunReading[Comparison](self, self._take)

    def compose(self) -> ComposeResult:
        """Lay out the curves above the comparison."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        with Horizontal(id="run-curves"):
            yield RunCurvesPane(glyphs, "accuracy", id="run-accuracy")
            yield RunCurvesPane(glyphs, "loss", id="run-loss")
        yield RunComparisonPane(glyphs, id="comparison")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Read the runs again."""
        self._read_at = None
        self.draw()

    def draw(self) -> None:
        """Draw the panes; read the runs again if one of them has advanced."""
        draw_panes(self, self._board)
        run = self._board.watch.shown().run
        further = run is not None and run.run in self._runs and not self._board.watch.replayed
        state = (run.status, run.round) if run is not None and further else ()
        if state != self._read_at:
            self._read_at = state
            self._read()

    def _read(self) -> None:
        runs, names = self._board.runs, self._runs
        if runs is not None:
            self._reading.ask(lambda: compare([runs.run_details(name) for name in names]))

    def _take(self, comparison: Comparison | None, problem: str) -> None:
        """Pass the result to the panes; after a failure, they keep theirs."""
        for pane in self.query(Pane):
            if isinstance(pane, ComparedRunsPane):  # a query knows one base of a class only
                pane.take(comparison, problem)
        draw_panes(self, self._board)

    def action_other_curve(self) -> None:
        """Show the other curve, where only one fits."""
        self.toggle_class("-loss")


MOST = 4
"""Runs that can be compared at once."""

UNKNOWN = "Nobody tells this dashboard of runs."
NO_LOCAL_RUN = "No run in this machine's state folder."
READING = "Reading the runs…"

_BORDER_AND_SCROLLBAR = 3
_HINTS = ("runs.open", "runs.mark", "runs.replay", "runs.resume", "runs.model")


class RunsScreen(Screen[None]):
    """The table of runs; it is read anew when the screen is opened and when a round ends."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS = bindings_of("runs")
    AUTO_FOCUS = "#run-table"

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board
        self._runs: Sequence[RunRow] | None = None
        self._problem = ""
        self._as_of = ""
        self._marked: list[str] = []
        self._read_at: object = None
        self._reading = RunReading[Sequence[RunRow]](self, self._take)

    def compose(self) -> ComposeResult:
        """Lay out the table."""
        yield from top(self._board)
        with Vertical(id="runs"):
            yield Static(id="runs-notice", markup=False)
            yield RunTable(self._board.glyphs, id="run-table")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Read the runs again."""
        self._read_at = None
        self.draw()

    def on_resize(self) -> None:
        """Choose the columns that fit the new width."""
        self.call_after_refresh(self._show)

    def draw(self) -> None:
        """Draw the panes; read the runs again if the current one has advanced."""
        draw_panes(self, self._board)
        run = self._board.watch.shown().run
        further = run is not None and not self._board.watch.replayed
        state = (run.run, run.status, run.round) if run is not None and further else ()
        if state != self._read_at:
            self._read_at = state
            self._read()

    def _read(self) -> None:
        runs = self._board.runs
        if runs is None:
            self.call_after_refresh(self._take, None, UNKNOWN)
        else:
            self._reading.ask(runs.list_runs)

    def _take(self, runs: Sequence[RunRow] | None, problem: str) -> None:
        """Show the result; after a failure, the known runs stay."""
        self._problem = problem
        if not problem:
            self._runs = runs
            self._as_of = self._board.watch.shown().time_now
        self._show()

    def _show(self) -> None:
        runs, now = self._runs or (), self._board.watch.machine_time()
        self._marked = [run for run in self._marked if run in {row.run for row in runs}]
        table, notice = self.query_one(RunTable), self.query_one("#runs-notice", Static)
        text = self._problem or self._nothing()
        text += f"\nRuns as of {self._as_of}." if self._problem and runs else ""
        with self.app.batch_update():
            marks = dict(zip(self._marked, LETTERS, strict=False))
            table.show(runs, marks, self.size.width - _BORDER_AND_SCROLLBAR, now)
            table.display = bool(runs)
            if runs and self.focused is None:  # an empty table takes no focus
                table.focus()
            notice.display = bool(text)
            notice.update(self._board.glyphs.line("\n".join(map(clean, text.split("\n")))))
            self._write_borders()

    def _nothing(self) -> str:
        """Return why there is no table; nothing where there is one."""
        if self._runs is None:
            return READING
        if self._runs:
            return ""
        return NO_LOCAL_RUN if self._board.watch.replayed else self._board.watch.commands.no_run

    def _write_borders(self) -> None:
        frame, line = self.query_one("#runs"), self._board.glyphs.line
        marked = f"   {len(self._marked)} marked" if self._marked else ""
        count = "?" if self._runs is None else len(self._runs)
        frame.border_title = Content(line(f"Runs {count}{marked}"))
        hint = self._next_mark() or self._board.keys.hint(*_HINTS)
        frame.border_subtitle = Content(line(hint))

    def _next_mark(self) -> str:
        """Return the effect of the keys that mark and compare; empty while no run is marked."""
        selected, count = clean(self.query_one(RunTable).selected or ""), len(self._marked)
        mark, enter = (self._board.keys.label(name) for name in ("runs.mark", "runs.open"))
        if not count:
            return ""
        first, marked = clean(self._marked[0]), f"the {count} marked runs"
        if self.query_one(RunTable).selected not in self._marked:
            compared = f"it with {first}" if count == 1 else marked
            add = f"{mark} marks {selected}, too; " if count < MOST else ""
            return f"{add}{enter} compares {compared}"
        if count == 1:
            return f"compare with {first}: press {mark} on another run; {mark} again takes it back"
        return f"{mark} takes {selected} back; {enter} compares {marked}"

    @on(DataTable.RowHighlighted)
    def follow_cursor(self) -> None:
        """Show the effect of the keys on the run under the cursor."""
        self._write_borders()

    def copied(self) -> str | None:
        """Return the id of the run under the cursor."""
        return self.query_one(RunTable).selected

    def action_replay_run(self) -> None:
        """Replay the row's run, from its beginning, in place of the dashboard."""
        commands, app = self._board.watch.commands, self.app

        def recorded(run: RunDetails) -> Recording:
            return recording_of(run, commands.replay(run.run))

        def choose(recording: Recording) -> None:
            app.post_message(ReplayChosen(recording))

        run = self.query_one(RunTable).selected
        if app.is_web and run is not None:
            text = f"Not from a dashboard in a browser. Use: {commands.replay(clean(run))}"
            self.notify(text, severity="warning", markup=False)
        else:
            self._with_details(recorded, choose)

    def action_resume_run(self) -> None:
        """Go on with the row's run, if it has stopped before its end."""
        selected, control = self.query_one(RunTable).selected, self._board.control
        row = next((row for row in self._runs or () if row.run == selected), None)
        if row is None:
            return
        refusal = self._board.refusal if control is None else not_resumable(row.run, row.status)
        if control is None or refusal:
            self.notify(refusal, severity="warning", markup=False)
            return
        order = CoordinatorOrder("resume", row.run)
        request = CoordinatorRequest(partial(give, control, order), order.failed)
        self.post_message(RequestWanted(request))

    def action_show_model(self) -> None:
        """Show where the model of the row's run is, and a command that predicts with it."""

        def show(run: RunDetails) -> None:
            if run.model_path:
                self.app.push_screen(RunModelScreen(self._board, run))
            else:
                text = NO_MODEL.format(run=clean(run.run))
                self.notify(text, severity="warning", markup=False)

        self._with_details(lambda run: run, show)

    def _with_details(self, read: Callable[[RunDetails], T], then: Callable[[T], None]) -> None:
        """Read the details of the row's run in a thread, and continue with a part of it."""
        run, runs = self.query_one(RunTable).selected, self._board.runs
        if run is not None and runs is not None:
            failed = f"{clean(run)} cannot be read."
            in_thread(self, lambda: read(runs.run_details(run)), then, failed)

    def action_mark_run(self) -> None:
        """Mark the run under the cursor, or take its mark away."""
        run = self.query_one(RunTable).selected
        if run is None:
            return
        if run in self._marked:
            self._marked.remove(run)
        elif len(self._marked) == MOST:
            self.notify(f"At most {MOST} runs are compared.", severity="warning", markup=False)
        else:
            self._marked.append(run)
        self._show()

    @on(DataTable.RowSelected)
    def open_row(self, event: DataTable.RowSelected) -> None:
        """Open the run of a row that was chosen by key or click."""
        event.stop()
        self.action_open_runs()

    def action_open_runs(self) -> None:
        """Show the marked runs side by side; the row's run beside a single one, or alone."""
        selected = self.query_one(RunTable).selected
        chosen = list(self._marked)
        if len(chosen) < 2 and selected is not None and selected not in chosen:
            chosen.append(selected)
        if chosen:
            self.app.push_screen(RunComparisonScreen(self._board, chosen))
