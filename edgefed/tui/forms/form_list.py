"""The list of a form's fields, under the headings of their tables."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from edgefed.tui.forms.recipe_fields import RecipeField
from edgefed.tui.forms.recipe_form import RecipeForm
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean, cut
from edgefed.tui.look.theme import MUTED, SKY, VERMILLION

_NAME_WIDTH = 26
_VALUE_WIDTH = 18


class FormList(OptionList):
    """One line for each field; only lines that changed are drawn again."""

    BINDINGS = bindings_of("table")

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, compact=True)
        self._glyphs = glyphs
        self._rows: dict[str, Text] = {}

    @property
    def key(self) -> str:
        """The key of the chosen field; empty without one."""
        if self.highlighted is None:
            return ""
        return str(self.get_option_at_index(self.highlighted).id or "")

    def show(self, form: RecipeForm, part: str) -> None:
        """Show the fields whose keys have a part in them."""
        fields = form.shown(part)
        rows = {field.key: self._row(field, form) for field in fields}
        if list(rows) == list(self._rows):
            for key, row in rows.items():
                if row != self._rows[key]:
                    self.replace_option_prompt(key, row)
        else:
            self._lay_out(fields, rows)
        self._rows = rows

    def go_to(self, key: str) -> None:
        """Choose a field."""
        if key in self._rows:
            self.highlighted = self.get_option_index(key)

    def action_scroll_top(self) -> None:
        """Go to the first field."""
        self.action_first()

    def action_scroll_bottom(self) -> None:
        """Go to the last field."""
        self.action_last()

    def _lay_out(self, fields: tuple[RecipeField, ...], rows: dict[str, Text]) -> None:
        chosen, section = self.key, ""
        self.clear_options()
        for field in fields:
            if field.section != section:
                section = field.section
                self.add_option(Option(Text(section, f"bold {SKY}"), disabled=True))
            self.add_option(Option(rows[field.key], id=field.key))
        if rows:
            self.highlighted = self.get_option_index(chosen if chosen in rows else next(iter(rows)))

    def _row(self, field: RecipeField, form: RecipeForm) -> Text:
        """Return a field's line: its name, its value, and its problem."""
        problem, changed = form.problem(field.key), field.key in form.sets
        mark = "✗ " if problem else "· " if changed else "  "
        row = Text(no_wrap=True, overflow="ellipsis")
        row.append(mark, VERMILLION if problem else SKY)
        row.append(f"{cut(field.name, _NAME_WIDTH):<{_NAME_WIDTH}} ")
        value = cut(clean(field.text), _VALUE_WIDTH) or "unset"
        row.append(f"{value:<{_VALUE_WIDTH}} ", "bold" if changed else "" if field.text else MUTED)
        row.append(clean(problem), VERMILLION)
        return self._glyphs.text(row)
