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
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from edgefed.config.fleet.settings_files import expand
from edgefed.files.writing import folder_exists
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.run_form import RunFormScreen
from edgefed.tui.state.launching import Draft, Launcher, PastRun
from edgefed.tui.state.threaded_requests import in_thread

MOST_FILES = 200
"""Files of a folder, and runs, that are offered."""

_LOADING = "Loading algorithms, models and data sets…"

_ASKING = "Past runs: asking the coordinator…"
_NO_PAST_RUN = "No past run yet"
_UNKNOWN = "Past runs are not known"


class NewRunScreen(ModalScreen[None]):
    """Answers by opening the form with the choice.

    Args:
        board: of the dashboard.
        launcher: makes drafts, and knows past runs.
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
        self._wanted: Callable[[], Draft] | None = None
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
            yield OptionList(id="new-choices", compact=True)

    def on_mount(self) -> None:
        """Offer files at once, and past runs when the coordinator has answered."""
        self._offer()
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
        self._wanted = call
        self._tell(_LOADING)
        # What torch and plug-ins take to load is waited for in the thread.
        failed, then = "The recipe cannot be read.", partial(self._show_form, call)
        in_thread(self, call, then, failed, lambda: self._tell(""))

    def _tell(self, text: str) -> None:
        self.query_one("#new-told", Static).update(self._board.glyphs.text(Text(text, ORANGE)))

    def _show_form(self, call: Callable[[], Draft], draft: Draft) -> None:
        if call is not self._wanted:  # another one was chosen meanwhile
            return
        self.app.switch_screen(RunFormScreen(self._board, draft))


def recipe_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be recipes, by name; none if it cannot be read."""
    try:
        files: Iterable[Path] = sorted(folder.glob("*.toml"))
    except OSError:
        return []
    return [path for path in files if not path.name.startswith(("edgefed", "pyproject", "."))]
