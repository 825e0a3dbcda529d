"""The form of a new run: every value of its recipe, checked as it is typed."""

from __future__ import annotations

import re
from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static

from edgefed.terminal.units import counted
from edgefed.tui.forms.form_list import FormList
from edgefed.tui.forms.recipe_form import RecipeForm
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, SKY, VERMILLION
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board
from edgefed.tui.screens.question import QuestionScreen, QuestionText
from edgefed.tui.state.key_orders import ENDED
from edgefed.tui.state.launching import Draft
from edgefed.tui.state.problems import reason
from edgefed.tui.state.threaded_requests import in_thread

_GLOBAL_OPTIONS = re.compile(r"^edgefed -.*? (?=run start\b)", re.DOTALL)


def shown_command(command: str, width: int, lines: int) -> str:
    """Return ``command`` in at most ``lines`` lines of ``width`` columns.

    Parts that do not fit are replaced by ``…``: first the global options, such as a long path of
    the state folder, then the middle of the rest.
    """
    for text in (command, _GLOBAL_OPTIONS.sub("edgefed … ", command)):
        folded = wrap(text, max(1, width), break_on_hyphens=False)
        if len(folded) <= lines:
            return "\n".join(folded)
    rest = cut_middle(text, width * lines)
    return "\n".join(rest[start : start + width] for start in range(0, len(rest), max(1, width)))


_HINTS = ("form.next_choice", "form.filter", "form.next_error", "form.copy", "form.start")
_READY = "✓ can be started  "


class RunFormScreen(ModalScreen[None]):
    """Values in a list, the chosen one in a line below; starts the run when all is well."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "#form-fields"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "Cancel"),
        *bindings_of("form"),
    ]

    def __init__(self, board: Board, draft: Draft) -> None:
        super().__init__()
        self._board = board
        self._form = RecipeForm(draft)
        self._before: str | None = None
        self._starting = False

    def compose(self) -> ComposeResult:
        """Lay out state, fields, the chosen one, the command and the buttons."""
        with Vertical(id="run-form") as box:
            box.border_title = Content(self._line(f"New run from {clean(self._form.draft.title)}"))
            box.border_subtitle = Content(f"enter Edit  {self._board.keys.hint(*_HINTS)}  esc")
            yield Static(id="form-state")
            yield Input(placeholder="part of a key, such as rounds", id="form-filter", compact=True)
            yield FormList(self._board.glyphs, id="form-fields")
            with Horizontal(id="form-edit"):
                yield Static(id="form-key")
                yield Input(id="form-value", compact=True, select_on_focus=False)
            yield Static(id="form-about")
            yield Static(id="form-command")
            with Horizontal(id="buttons"):
                yield Button("Start", id="form-start", variant="primary", compact=True)
                yield Button("Cancel", id="form-cancel", compact=True)

    def on_mount(self) -> None:
        """Begin without a filter."""
        self.query_one("#form-filter").display = False
        self._show_all()

    def draw(self) -> None:
        """Show whether a run is at work now."""
        self._show_state()

    def on_resize(self) -> None:
        """Fit the command line to the new width."""
        self.call_after_refresh(self._show_state)

    def _line(self, text: str) -> str:
        return self._board.glyphs.line(text)

    def _write(self, name: str, text: Text) -> None:
        self.query_one(name, Static).update(self._board.glyphs.text(text))

    @property
    def _fields(self) -> FormList:
        return self.query_one(FormList)

    @property
    def _value(self) -> Input:
        return self.query_one("#form-value", Input)

    # -- what is shown ------------------------------------------------------------------------

    def _show_all(self) -> None:
        part = self.query_one("#form-filter", Input).value.strip()
        self._fields.show(self._form, part)
        self._show_state()
        self._show_field()

    def _show_state(self) -> None:
        form, wrong = self._form, self._form.problems
        state = Text(no_wrap=True, overflow="ellipsis")
        if wrong:
            state.append(f"{wrong} to mend", f"bold {VERMILLION}")
            other = f": {clean(form.other_problem)}" if form.other_problem else ""
            state.append(f"{other}  ", VERMILLION)
        else:
            state.append("✓ every value is valid  " if self._cut_off() else _READY, GREEN)
        state.append(f"{len(form.sets)} changed  " if form.changed else "", SKY)
        state.append(self._cut_off() or self._at_work(), ORANGE)
        self._write("#form-state", state)
        command = self.query_one("#form-command", Static).size
        shown = shown_command(clean(form.command), command.width or 76, command.height or 2)
        self._write("#form-command", Text(shown, MUTED))
        self.query_one("#form-start", Button).disabled = bool(wrong) or self._starting

    def _cut_off(self) -> str:
        """Return why no run can be started now, whatever the values; empty when all is well."""
        return reason(self._board.watch.latest)

    def _at_work(self) -> str:
        """Return that a run is at work, which the coordinator wants to have ended first."""
        snapshot = self._board.watch.latest.snapshot
        run = snapshot.run if snapshot else None
        if run is None or run.status in ENDED:
            return ""
        return f"{clean(run.run)} is {run.status}: finish or abort it first"

    def _show_field(self) -> None:
        """Show the chosen field in full: its value, and its description or problem."""
        field = self._form.field(self._fields.key)
        if field is None:
            self._write("#form-key", Text())
            self._value.value = ""
            self._write("#form-about", Text("No key has this in it. esc clears.", MUTED))
            return
        self._write("#form-key", Text(f"{field.key} = ", "bold"))
        if not self._value.has_focus:
            self._value.value = field.text
        problem = self._form.problem(field.key)
        about = Text(f"{clean(problem)}\n" if problem else "", f"bold {VERMILLION}")
        if field.choices:
            about.append(f"{', '.join(field.choices)}\n", SKY)
        elif field.limits:
            about.append(f"{field.limits}\n", SKY)
        self._write("#form-about", about.append(clean(field.about), MUTED))

    @on(OptionList.OptionHighlighted, "#form-fields")
    def show_chosen(self) -> None:
        """Show the field under the cursor."""
        self._show_field()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action works: a field with the focus takes character keys."""
        if action in ("start", "next_error") and isinstance(self.focused, Input):
            return not self._board.keys.types_character(f"form.{action}")
        return super().check_action(action, parameters)

    # -- changes ------------------------------------------------------------------------------

    @on(OptionList.OptionSelected, "#form-fields")
    def edit(self) -> None:
        """Go into the value of the chosen field."""
        if self._form.field(self._fields.key) is not None:
            self._value.focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Begin to change the chosen field, and remember its previous value."""
        field = self._form.field(self._fields.key)
        if event.widget is self._value and field is not None:
            self._before = field.text
            self._value.value = field.text
            self._value.cursor_position = len(field.text)

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Keep the typed value."""
        if event.widget is self._value:
            self._before = None

    @on(Input.Changed, "#form-value")
    def check_as_typed(self, event: Input.Changed) -> None:
        """Check the value while the user types."""
        if self._before is not None and event.input.has_focus:
            self._form.change(self._fields.key, event.value)
            self._show_all()

    @on(Input.Submitted, "#form-value")
    def back_to_list(self) -> None:
        """Keep the value and go back to the fields."""
        self._fields.focus()

    def action_next_choice(self) -> None:
        """Take the field's next choice."""
        self._form.next_choice(self._fields.key)
        self._show_all()

    def action_reset(self) -> None:
        """Give the field the value that it began with."""
        self._form.reset(self._fields.key)
        self._show_all()

    def action_next_error(self) -> None:
        """Go to the next field with a problem."""
        self._clear_filter()
        self._fields.go_to(self._form.wrong_after(self._fields.key))

    # -- filter -------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Ask for a part of a key."""
        field = self.query_one("#form-filter", Input)
        field.display = True
        field.focus()

    @on(Input.Changed, "#form-filter")
    def filter_as_typed(self) -> None:
        """Show the matching fields."""
        self._show_all()

    @on(Input.Submitted, "#form-filter")
    def keep_filter(self) -> None:
        """Go to the matching fields."""
        self._fields.focus()

    def _clear_filter(self) -> None:
        field = self.query_one("#form-filter", Input)
        field.value = ""
        field.display = False
        self._fields.focus()
        self._show_all()

    # -- end ----------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """Copy the command line."""
        self.app.copy_to_clipboard(self._form.command)
        self.notify("Copied the command line.", markup=False)

    def action_leave(self) -> None:
        """Leave the value, the filter, or the form; ask first where changes would be lost."""
        if self._before is not None:
            self._form.change(self._fields.key, self._before)
            self._before = None
            self._show_all()
            self._fields.focus()
        elif self.query_one("#form-filter").display:
            self._clear_filter()
        elif not self._form.changed:
            self.dismiss()
        else:
            lost = f"{counted(len(self._form.sets), 'change')} would be lost; no run is started."
            question = QuestionText("Leave the form?", lost, "Leave", "Stay", "y leaves, esc stays")
            self.app.push_screen(QuestionScreen(self._board.glyphs, question), self._discarded)

    def _discarded(self, sure: bool | None) -> None:
        if sure:
            self.dismiss()

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Start, or leave."""
        if event.button.id == "form-start":
            self.action_start()
        else:
            self.action_leave()

    def action_start(self) -> None:
        """Start the run, unless its values have problems."""
        if self._form.problems or self._starting:
            key = self._board.keys.label("form.next_error")
            text = f"{self._form.problems} to mend: {key} goes there."
            self.notify(text if self._form.problems else "Starting…", markup=False)
            return
        self._starting = True
        self._show_state()
        draft, sets = self._form.draft, dict(self._form.sets)
        failed = "The run could not be started."
        in_thread(self, lambda: draft.start(sets), self._started, failed, self._not_started)

    def _started(self, run: str) -> None:
        self.app.notify(f"Started {clean(run)}.", markup=False)
        self.dismiss()
        self.app.call_later(self.app.run_action, "show('overview')")

    def _not_started(self) -> None:
        self._starting = False
        self._show_state()
