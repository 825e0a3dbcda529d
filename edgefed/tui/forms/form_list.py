"""The list of a form's fields: the first page, or all under the headings of their tables."""

from __future__ import annotations

from rich.text import Text
from textual.widgets.option_list import Option

from edgefed.tui.forms.cursor_list import CursorList
from edgefed.tui.forms.recipe_fields import RecipeField
from edgefed.tui.forms.recipe_form import ESSENTIALS, RecipeForm
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean, cut
from edgefed.tui.look.theme import MUTED, SKY, VERMILLION

MORE = " more"
"""The id of the line that shows the other page, which no key has."""

_MARK_WIDTH = 3
_LABEL_WIDTH = 8
_NAME_WIDTH = 26
_VALUE_WIDTH = 20


class FormList(CursorList):
    """One line for each field, and one for the other page; only changed lines are drawn again."""

    BINDINGS = bindings_of("table")

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._rows: dict[str, Text] = {}
        self._short = True

    @property
    def key(self) -> str:
        """The key of the chosen field; empty without one."""
        if self.highlighted is None:
            return ""
        key = str(self.get_option_at_index(self.highlighted).id or "")
        return "" if key == MORE else key

    @property
    def value_place(self) -> tuple[int, int, int]:
        """The column and the line of the chosen field's value in the list, and its width."""
        column = _MARK_WIDTH + self._name_width(self.key) + 1
        line = (self.highlighted or 0) - self.scroll_offset.y
        return column, line, _VALUE_WIDTH

    def show(self, form: RecipeForm, part: str, more: str) -> None:
        """Show the fields of the page, or those whose keys have a part in them.

        Args:
            form: has the fields.
            part: of their keys; empty for the page.
            more: text of the line for the other page; empty for none.
        """
        fields = form.shown(part)
        self._short = not (form.whole or part)
        rows = {field.key: self._row(field, form) for field in fields}
        if more:
            rows[MORE] = self._glyphs.text(Text(f"   {more}", SKY))
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

    def on_resize(self) -> None:
        """Keep the chosen line in sight when choices take lines of the list."""
        self.scroll_to_highlight()

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
            if not self._short and field.section != section:
                section = field.section
                self.add_option(Option(Text(section, f"bold {SKY}"), disabled=True))
            self.add_option(Option(rows[field.key], id=field.key))
        if MORE in rows:
            self.add_option(Option(rows[MORE], id=MORE))
        if rows:
            self.highlighted = self.get_option_index(chosen if chosen in rows else next(iter(rows)))

    def _name_width(self, key: str) -> int:
        return _LABEL_WIDTH if self._short and key in ESSENTIALS else _NAME_WIDTH

    def _row(self, field: RecipeField, form: RecipeForm) -> Text:
        """Return a field's line: its name, its value, and its problem or its meaning."""
        problem, changed = form.problem(field.key), field.key in form.sets
        mark = " ✗ " if problem else " * " if changed else "   "
        name = ESSENTIALS.get(field.key, field.key) if self._short else field.name
        width = self._name_width(field.key)
        row = Text(no_wrap=True, overflow="ellipsis")
        row.append(mark, VERMILLION if problem else SKY)
        row.append(f"{cut(name, width):<{width}} ")
        value = cut(clean(field.text), _VALUE_WIDTH) or "unset"
        row.append(f"{value:<{_VALUE_WIDTH}} ", "bold" if changed else "" if field.text else MUTED)
        if problem:
            row.append(clean(problem), VERMILLION)
        elif self._short or field.meanings:
            row.append(clean(field.summary), MUTED)
        return self._glyphs.text(row)
