"""The state of a form for a new run: changes to a recipe, and their problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgefed.tui.forms.recipe_fields import RecipeField, recipe_fields, value_text
from edgefed.tui.state.launching import Draft

ESSENTIALS = {
    "algorithm.name": "method",
    "data.name": "data",
    "model.name": "model",
    "rounds.count": "rounds",
    "rounds.cohort": "cohort",
    "training.epochs": "epochs",
    "training.learning_rate": "rate",
    "name": "name",
}
"""The keys of the form's first page with their labels there, in its order."""

_CLASSES = "data.classes"


class RecipeForm:
    """A draft with changes; it is checked after each of them.

    Args:
        draft: the recipe to begin with.
        announced: names of the classes that the fleet's devices announce.

    Attributes:
        whole: whether all fields are shown, and not only the first page.
        checked: the values, and the needs of the run.
    """

    def __init__(self, draft: Draft, announced: Sequence[str] = ()) -> None:
        self.draft = draft
        self.whole = False
        self.sets: dict[str, str] = {}
        self._announced = value_text(list(announced)) if announced else ""
        self._problems: dict[str, str] = {}
        self._check()
        self._first = {field.key: field.text for field in self.fields}

    @property
    def changed(self) -> bool:
        """Whether any value differs from the initial one."""
        return bool(self.sets)

    @property
    def problems(self) -> int:
        """Number of problems to solve before the run can start."""
        return len(self._problems)

    @property
    def other_problem(self) -> str:
        """A problem that belongs to no field; empty if there is none."""
        keys = {field.key for field in self.fields}
        others = ((key, text) for key, text in self._problems.items() if key not in keys)
        return next((f"{key}: {text}" if key else text for key, text in others), "")

    @property
    def command(self) -> str:
        """The command line that starts the same run."""
        return self.draft.command(self.sets)

    def problem(self, key: str) -> str:
        """Return the problem of a field; empty if there is none."""
        return self._problems.get(key, "")

    def field(self, key: str) -> RecipeField | None:
        """Return a field; None if the form has no such key now."""
        return next((field for field in self.fields if field.key == key), None)

    def shown(self, part: str = "") -> tuple[RecipeField, ...]:
        """Return the fields whose keys contain a text; without a text, those of the page.

        The first page also has the fields that were changed or are wrong.
        """
        if part or self.whole:
            return tuple(field for field in self.fields if part.lower() in field.key)
        by_key = {field.key: field for field in self.fields}
        others = (key for key in by_key if key in self.sets or self.problem(key))
        keys = dict.fromkeys((*ESSENTIALS, *others))
        return tuple(by_key[key] for key in keys if key in by_key)

    def change(self, key: str, text: str) -> None:
        """Set a field to another value, or to its initial one."""
        if text == self._first.get(key):
            self.sets.pop(key, None)
        else:
            self.sets[key] = text
        self._check()

    def reset(self, key: str) -> None:
        """Set a field to its initial value."""
        self.sets.pop(key, None)
        self._check()

    def next_choice(self, key: str) -> None:
        """Set a field to the next of its choices; nothing without choices."""
        field = self.field(key)
        if field is not None and field.choices:
            at = field.choices.index(field.text) if field.text in field.choices else -1
            self.change(key, field.choices[(at + 1) % len(field.choices)])

    def wrong_after(self, key: str) -> str:
        """Return the key of the next field with a problem, after this one; empty for none."""
        wrong = [field.key for field in self.fields if self.problem(field.key)]
        keys = [field.key for field in self.fields]
        at = keys.index(key) if key in keys else -1
        later = (other for other in wrong if keys.index(other) > at)
        return next(later, wrong[0] if wrong else "")

    def _check(self) -> None:
        self.checked = self.draft.check(self.sets)
        self._problems = {}
        for problem in self.checked.problems:
            self._problems.setdefault(problem.key.partition("[")[0], problem.text)
        unused = self.draft.unused
        fields = recipe_fields(self.draft.schema, self.checked.values)
        used = (field for field in fields if not {field.key, field.section} & set(unused))
        self.fields = tuple(self._as_typed(field) for field in used)

    def _as_typed(self, field: RecipeField) -> RecipeField:
        """Return a field with the text that was typed, which may be no value of it."""
        if field.key == _CLASSES and self._announced:
            choices = dict.fromkeys((self._announced, *field.choices))
            meanings = {self._announced: "the classes that the devices announce"}
            field = replace(field, choices=tuple(choices), meanings=meanings)
        return replace(field, text=self.sets.get(field.key, field.text))
