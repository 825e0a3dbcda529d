"""The choice of the start of a new run: a recipe file, a past run, or the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from edgefed.config.fleet.settings_files import expand
from edgefed.files.writing import folder_exists
from edgefed.tui.forms.cursor_list import CursorList
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.state.launching import Draft, Launcher, PastRun
from edgefed.tui.state.messages import Loaded
from edgefed.tui.state.threaded_requests import in_thread

MOST_FILES = 200
"""Files of a folder, and runs, that are offered."""

_LOADING = "Loading algorithms, models and data sets… Keys wait for it; esc cancels."

_ASKING = "Past runs: asking the coordinator…"
_NO_PAST_RUN = "No past run yet"
_UNKNOWN = "Past runs are not known"


class NewRunScreen(ModalScreen[None]):
    """Answers by opening the form with the choice.

    Args:
        board: of the dashboard.
        launcher: makes drafts, and knows past runs.

    Attributes:
        is_loading: whether the form with the choice is being made; keys wait for it.
    """

    AUTO_FOCUS = "#new-choices"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Cancel"),
        Binding("q", "dismiss", "Cancel", id="view.back"),
    ]

    def __init__(self, board: Board, launcher: Launcher) -> None:
        super().__init__()
        self._board = board
        self._launcher = launcher
        self._folder = launcher.folder
        self._runs: tuple[PastRun, ...] = ()
        self.is_loading = False
        self._about_runs = _ASKING
        self._calls: dict[str, Callable[[], Draft]] = {}

    def compose(self) -> ComposeResult:
        """Lay out the path, the choices and a line for messages."""
        line = self._board.glyphs.line
        with Vertical(id="new-run") as box:
            box.border_title = Content(line("New run: begin with…"))
            box.border_subtitle = Content("enter Choose  tab Path or list  esc Cancel")
            with Horizontal(id="new-path-line"):
                yield Static("File or folder: ", id="new-path-label")
                yield Input(placeholder="recipe.toml", id="new-path", compact=True)
            yield Static("", id="new-told")
            yield CursorList(self._board.glyphs, id="new-choices")

    def on_mount(self) -> None:
        """Offer files at once, and past runs when the coordinator has answered."""
        self._offer()
        self.query_one(OptionList).focus()
        in_thread(self, self._launcher.past_runs, self._take_runs, f"{_UNKNOWN}.", self._no_runs)

    def _take_runs(self, runs: tuple[PastRun, ...]) -> None:
        self._runs = runs
        self._about_runs = "Past runs" if runs else _NO_PAST_RUN
        self._offer()

    def _no_runs(self) -> None:
        """Show that the past runs are not known; the app has reported the reason."""
        if self.is_attached:
            self._about_runs = _UNKNOWN
            self._offer()

    def _offer(self) -> None:
        choices = self.query_one(OptionList)
        chosen = choices.highlighted
        choices.clear_options()
        self._calls.clear()
        files = recipe_files(self._folder)[:MOST_FILES]
        offered = "Recipes" if files else "No recipe (*.toml)"
        choices.add_option(self._heading(f"{offered} in {cut_middle(str(self._folder), 50)}"))
        for path in files:
            self._add(path.name, "", partial(self._launcher.from_file, path))
        self._add("defaults", "what a recipe without any key has", self._of_defaults)
        choices.add_option(self._heading(self._about_runs))
        for run in self._runs[:MOST_FILES]:
            about = f"{run.algorithm}  {run.status}  {run.name}"
            self._add(run.run, about, partial(self._launcher.from_run, run.run))
        choices.highlighted = 1 if chosen is None else chosen

    def _of_defaults(self) -> Draft:
        return self._launcher.from_file(None)

    def _heading(self, text: str) -> Option:
        return Option(self._board.glyphs.text(Text(clean(text), f"bold {SKY}")), disabled=True)

    def _add(self, name: str, about: str, call: Callable[[], Draft]) -> None:
        row = Text.assemble(f"  {clean(name)}  ", (clean(about), MUTED), no_wrap=True)
        key = str(len(self._calls))
        self._calls[key] = call
        self.query_one(OptionList).add_option(Option(self._board.glyphs.text(row), id=key))

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        """Open the form with the choice."""
        event.stop()
        self._open(self._calls[str(event.option.id)])

    @on(Input.Submitted, "#new-path")
    def take_path(self, event: Input.Submitted) -> None:
        """Open the form with a file, or offer the files of a folder."""
        written = event.value.strip()
        path = expand(Path(written)) if written else self._folder
        if folder_exists(path):
            self._folder = path
            self._offer()
            self.query_one(OptionList).focus()
        else:
            self._open(partial(self._launcher.from_file, path))

    def _open(self, call: Callable[[], Draft]) -> None:
        failed = partial(self._failed, self.focused)
        self._set_loading(True)
        # What torch and plug-ins take to load is waited for in the thread.
        in_thread(self, call, self._show_form, "The recipe cannot be read.", failed)

    def _set_loading(self, loading: bool) -> None:
        """Show whether a choice is loading; no other one is taken meanwhile."""
        self.is_loading = loading
        text = Text(_LOADING if loading else "", ORANGE)
        self.query_one("#new-told", Static).update(self._board.glyphs.text(text))
        self.query_one("#new-path-line").disabled = loading
        self.query_one(OptionList).disabled = loading

    def _failed(self, chosen_in: Widget | None) -> None:
        """Offer the choices again; keys that were typed for the form have no effect."""
        if self.is_attached:
            self._set_loading(False)
            self.set_focus(chosen_in)
            self.post_message(Loaded(ok=False))

    def _show_form(self, draft: Draft) -> None:
        self.app.switch_screen(RunFormScreen(self._board, draft))


def recipe_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be recipes, by name; none if it cannot be read."""
    try:
        files: Iterable[Path] = sorted(folder.glob("*.toml"))
    except OSError:
        return []
    return [path for path in files if not path.name.startswith(("edgefed", "pyproject", "."))]
