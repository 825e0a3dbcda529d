"""The form of a new run: the essential values, and all others, checked as they are typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.attention import devices_there
from edgefed.terminal.units import counted
from edgefed.tui.forms.cursor_list import CursorList
from edgefed.tui.forms.form_list import MORE, FormList
from edgefed.tui.forms.recipe_fields import RecipeField
from edgefed.tui.forms.recipe_form import RecipeForm
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, SKY, VERMILLION
from edgefed.tui.screens.advice import AdviceScreen
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board
from edgefed.tui.screens.question import QuestionScreen, QuestionText
from edgefed.tui.state.key_orders import ENDED
from edgefed.tui.state.launching import AdvisedRecipe, Draft
from edgefed.tui.state.messages import Loaded
from edgefed.tui.state.problems import next_step, reason
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


_HINTS = ("form.more", "form.filter", "form.next_error", "form.copy", "form.start")


class RunFormScreen(ModalScreen[None]):
    """Values in a list, where they are changed; starts the run when all is well.

    Attributes:
        is_loading: whether the form is not there yet; keys wait for it.
    """

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "#form-fields"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "Cancel"),
        ("down", "choice(1)", "Next choice"),
        ("up", "choice(-1)", "Previous choice"),
        *bindings_of("form"),
        Binding("q", "leave", "Cancel", id="view.back"),
    ]

    def __init__(self, board: Board, draft: Draft) -> None:
        super().__init__()
        self._board = board
        snapshot = board.watch.latest.snapshot
        self._form = RecipeForm(draft, announced_classes(snapshot) if snapshot else ())
        self._before: str | None = None
        self._starting = False
        self.is_loading = True

    def compose(self) -> ComposeResult:
        """Lay out state, fields, the chosen one, the command and the buttons."""
        with Vertical(id="run-form") as box:
            box.border_title = Content(self._line(f"New run from {clean(self._form.draft.title)}"))
            box.border_subtitle = Content(f"enter Edit  {self._board.keys.hint(*_HINTS)}  esc")
            yield Static(id="form-state")
            yield Input(placeholder="part of a key, such as rounds", id="form-filter", compact=True)
            with Container(id="form-body"):
                yield FormList(self._board.glyphs, id="form-fields")
                yield Input(id="form-value", compact=True)
            yield CursorList(self._board.glyphs, id="form-choices")
            yield Static(id="form-about")
            yield Static(id="form-command")
            with Horizontal(id="buttons"):
                yield Button("Start", id="form-start", variant="primary", compact=True)
                yield Button("Cancel", id="form-cancel", compact=True)

    def on_mount(self) -> None:
        """Begin without a filter."""
        for name in ("#form-filter", "#form-value", "#form-choices"):
            self.query_one(name).display = False
        self._choices.can_focus = False  # the field beside it keeps the focus
        self.watch(self._fields, "scroll_y", self._place_value, init=False)
        self._show_all()
        self._fields.focus()
        self.is_loading = False
        self.post_message(Loaded(ok=True))

    def draw(self) -> None:
        """Show whether a run is at work now."""
        self._show_state()

    def on_resize(self) -> None:
        """Fit the command line to the new width."""
        self.call_after_refresh(self._show_state)
        self.call_after_refresh(self._place_value)

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

    @property
    def _choices(self) -> OptionList:
        return self.query_one("#form-choices", OptionList)

    # -- what is shown ------------------------------------------------------------------------

    def _show_all(self) -> None:
        part = self.query_one("#form-filter", Input).value.strip()
        more = "" if part or self._form.whole else self._more()
        self._fields.show(self._form, part, more)
        self.call_after_refresh(self._place_value)
        self._show_state()
        self._show_field()

    def _show_state(self) -> None:
        form, wrong = self._form, self._form.problems
        state = Text()
        hindrance = self._hindrance()
        if wrong:
            state.append(f"{wrong} to correct", f"bold {VERMILLION}")
            other = f": {clean(form.other_problem)}" if form.other_problem else ""
            state.append(f"{other}  ", VERMILLION)
        elif hindrance:
            state.append(f"{hindrance}  ", ORANGE)
        else:
            state.append("✓ can be started  ", GREEN)
        state.append(f"{counted(len(form.sets), 'change')}" if form.changed else "", SKY)
        self._write("#form-state", state)
        command = self.query_one("#form-command", Static).size
        shown = shown_command(clean(form.command), command.width or 76, command.height or 2)
        self._write("#form-command", Text(shown, MUTED))
        self.query_one("#form-start", Button).disabled = bool(wrong) or self._starting

    def _more(self) -> str:
        others = len(self._form.fields) - len(self._form.shown())
        key = self._board.keys.label("form.more")
        return f"more…  {counted(others, 'other value')}: enter, or {key}"

    def _hindrance(self) -> str:
        """Return why a run of valid values cannot start now, with advice; empty if it can."""
        latest, checked = self._board.watch.latest, self._form.checked
        if away := reason(latest):
            return f"Values are valid. {away} {next_step(latest)}"
        if latest.snapshot is None:
            return "Values are valid. Waiting for the coordinator…"
        run = latest.snapshot.run
        if run is not None and run.status not in ENDED:
            return f"{clean(run.run)} is {run.status}: finish or abort it first"
        there = devices_there(latest.snapshot)
        if there >= checked.least_devices:
            return ""
        text = f"{there} of {counted(checked.least_devices, 'device')} there"
        if checked.because:
            return f"{text}: {clean(checked.because)} Start more agents: edgefed-agent run"
        return f"{text}: start more agents (edgefed-agent run), or lower rounds.min_devices"

    def _show_field(self) -> None:
        """Show the chosen field in full: its key and value, and its description or problem."""
        field = self._form.field(self._fields.key)
        if field is None:
            empty = not self._fields.option_count
            text = "No key has this in it. esc clears." if empty else "All other values, by table."
            self._write("#form-about", Text(text, MUTED))
            return
        about = Text.assemble((field.key, "bold"), (f" = {clean(field.text) or 'unset'}\n", ""))
        problem = self._form.problem(field.key)
        about.append(f"{clean(problem)}\n" if problem else "", f"bold {VERMILLION}")
        if field.choices:
            about.append(f"{clean(', '.join(field.choices))}\n", SKY)
        elif field.limits:
            about.append(f"{field.limits}\n", SKY)
        about.append(f"{clean(field.summary)}. " if field.text in field.meanings else "")
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
    def edit(self, event: OptionList.OptionSelected) -> None:
        """Change the value of the chosen field in its line, or show the other page."""
        field = self._form.field(self._fields.key)
        if str(event.option.id) == MORE:
            self.action_more()
        elif field is not None:
            self._before = field.text
            self._value.value = field.text
            self._value.display = True
            self._offer_choices(field)
            self._value.focus()
            self._place_value()

    def _offer_choices(self, field: RecipeField) -> None:
        """Show the choices of a field with their meanings, the present one marked."""
        choices, width = self._choices, max(map(len, field.choices), default=0)
        choices.clear_options()
        for choice in field.choices:
            row = Text(f"  {clean(choice):<{width}}  ", no_wrap=True, overflow="ellipsis")
            row.append(clean(field.meanings.get(choice, "")), MUTED)
            choices.add_option(Option(self._board.glyphs.text(row)))
        present = field.text in field.choices
        choices.highlighted = field.choices.index(field.text) if present else None
        choices.display = bool(field.choices)
        self.query_one("#form-about").display = not field.choices

    def _place_value(self) -> None:
        """Put the field over the value in the chosen line."""
        if self._before is None:
            return
        column, line, width = self._fields.value_place
        self._value.styles.offset = (column, line)
        self._value.styles.width = width

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        """Keep the typed value."""
        if event.widget is self._value:
            self._before = None
            self._value.display = self._choices.display = False
            self.query_one("#form-about").display = True
            self._show_all()

    @on(Input.Changed, "#form-value")
    def check_as_typed(self, event: Input.Changed) -> None:
        """Check the value while the user types, and mark the choice that begins so."""
        if self._before is None:
            return
        key = self._fields.key
        field = self._form.field(key)
        if field is not None and field.choices:
            self._choices.highlighted = _place_of(event.value, field.choices)
        if field is not None and event.value != field.text:
            self._form.change(key, event.value)
            self._show_all()

    def action_choice(self, steps: int) -> None:
        """Take another of the choices into the field."""
        field = self._form.field(self._fields.key)
        if self._before is None or field is None or not field.choices:
            return
        at = self._choices.highlighted
        first = 0 if steps > 0 else len(field.choices) - 1
        place = first if at is None else (at + steps) % len(field.choices)
        self._value.value = field.choices[place]
        self._value.action_select_all()

    @on(OptionList.OptionSelected, "#form-choices")
    def take_choice(self, event: OptionList.OptionSelected) -> None:
        """Take the clicked choice, and go back to the fields."""
        field = self._form.field(self._fields.key)
        if field is not None:
            self._form.change(field.key, field.choices[event.option_index])
        self._fields.focus()

    @on(Input.Submitted, "#form-value")
    def back_to_list(self, event: Input.Submitted) -> None:
        """Keep the value, or the choice that begins so, and go back to the fields."""
        field = self._form.field(self._fields.key)
        if field is not None and event.value and event.value not in field.choices:
            place = _place_of(event.value, field.choices)
            if place is not None:
                self._form.change(field.key, field.choices[place])
        self._fields.focus()

    def action_more(self) -> None:
        """Show all fields, or the essential ones."""
        self._form.whole = not self._form.whole
        self._clear_filter()

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

    # -- advice -------------------------------------------------------------------------------

    def action_advice(self) -> None:
        """Show the advice for the recipe."""
        draft, sets = self._form.draft, dict(self._form.sets)
        in_thread(self, lambda: draft.advice(sets), self._show_advice, "There is no advice.")

    def _show_advice(self, advised: AdvisedRecipe) -> None:
        def take(chosen: bool | None) -> None:
            if chosen:
                failed = "The recommended recipe cannot be read."
                in_thread(self, advised.draft, self._take_draft, failed)

        self.app.push_screen(AdviceScreen(self._board, advised), take)

    def _take_draft(self, draft: Draft) -> None:
        self.app.switch_screen(RunFormScreen(self._board, draft))

    # -- end ----------------------------------------------------------------------------------

    def action_copy(self) -> None:
        """Copy the command line."""
        self.app.copy_to_clipboard(self._form.command)
        self.notify("Copied the command line.", markup=False)

    def action_leave(self) -> None:
        """Leave the value, the filter, the page of all fields, or the form; ask about changes."""
        if self._before is not None:
            self._form.change(self._fields.key, self._before)
            self._before = None
            self._fields.focus()
        elif self.query_one("#form-filter").display:
            self._clear_filter()
        elif self._form.whole:
            self.action_more()
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
            text = f"{self._form.problems} to correct: {key} goes there."
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


def _place_of(text: str, choices: Sequence[str]) -> int | None:
    """Return the place of the choice that is or begins with a text; None without one."""
    if text in choices:
        return choices.index(text)
    begins = (place for place, choice in enumerate(choices) if choice.startswith(text))
    return next(begins, None) if text else None


def announced_classes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the classes that the devices announce, each once, in their order."""
    return tuple(dict.fromkeys(name for view in snapshot.devices for name in view.class_names))
