"""The TOML file of a paper: its structure, and reading it with the line of every mistake.

``[shared]`` has texts, lists and tables under names; ``"@name"`` stands for one anywhere in the
file, and a list inside a list is spliced. ``[bases]``, ``[setups.KIND.SCALE]`` and ``[rows]`` are
recipe keys; each may extend one above it. A table's columns name the kinds of set-ups.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from edgefed.config.loading.validate import validate
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.sections import Section
from edgefed.config.values.layers import document_layer, leaves
from edgefed.config.values.models import has_extras, tables
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import Problem, dotted, problems_error
from edgefed.config.values.toml import read_toml
from edgefed.config.values.toml_positions import KeyPath
from edgefed.errors import RecipeError
from edgefed.reproduce.table import Metric, Scale

Labels = tuple[str, ...]
Derived = Literal["output_epochs", "trained_once", "pooled"]
"""Functions of ``edgefed.reproduce.paper_tables``."""


class RecipeKeys(BaseModel):
    """A table with recipe keys beside its own; unknown keys are refused.

    The keys of an open table, such as ``algorithm``, are checked with the recipe.
    """

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    def settings(self) -> dict[str, Any]:
        """Return the recipe keys, dotted, with their values."""
        keys = self.model_extra or {}
        return {".".join(map(str, path)): value for path, value in leaves(keys) if path}

    @model_validator(mode="after")
    def _known(self) -> RecipeKeys:
        sections = tables(Recipe)
        for name, keys in (self.model_extra or {}).items():
            if name not in sections or not isinstance(keys, Mapping):
                raise _unknown(name, {*type(self).model_fields, *sections})
            model = sections[name]
            for key in () if has_extras(model) else keys:
                if key not in model.model_fields:
                    raise _unknown(f"{name}.{key}", {f"{name}.{k}" for k in model.model_fields})
        return self


def _unknown(name: str, known: set[str]) -> ValueError:
    return ValueError(f"unknown key {name}{did_you_mean(nearest_name(name, sorted(known)))}")


class Extending(RecipeKeys):
    """Recipe keys that may override others."""

    extends: Labels = ()
    """What stands above and is extended; later ones override earlier ones."""


class RowKeys(Extending):
    """The settings of a row, over the column's set-up."""

    label: str = ""
    """As the paper calls it, where that is not the row's key."""

    derived: tuple[Derived, ...] = ()
    """Functions for what the row has of its own in a column."""


class Amounts(Section):
    """Numbers of a set-up for the functions of ``edgefed.reproduce.paper_tables``."""

    alone: int = 1
    """Epochs of devices that train once."""

    pooled: int = 0
    """Epochs of pooled training, one a round; 0 for as many as the set-up has."""

    epochs: int = 0
    """Local epochs, where the set-up leaves them to the rows."""

    output: int = 3
    """Epochs of a matched model's output layer for one of the other layers."""


class SetupKeys(Extending):
    """The recipe of all rows of a column, and settings of single rows in it."""

    label: str = ""
    """What is run; the beginning of the column's label."""

    of: str = ""
    """The paper's column; by default the label."""

    target: Annotated[float, Field(gt=0, le=1)] | None = None
    """The accuracy of which the rounds are counted."""

    score: Metric = "accuracy"
    last: int = 1
    """How a run is scored: a mean of so many last tests."""

    rows: dict[str, RecipeKeys] = Field(default_factory=dict)
    """What rows have of their own, by key."""

    methods: dict[str, RecipeKeys] = Field(default_factory=dict)
    """What rows of an algorithm have of their own, unless the column varies it."""

    amounts: Amounts = Amounts()


Value = bool | int | float | str | RecipeKeys
Values = tuple[Value, ...] | dict[str, Value]


class Axis(Section):
    """A setting that columns vary.

    Values are a list, or a table from the paper's values to those that stand for them. A value that
    is a table of recipe keys is shown by the paper's.
    """

    key: str = ""
    """The recipe key, where values are no tables."""

    rows: Labels = ()
    """The keys of the only rows for which it is varied; none for all."""

    values: Values = ()
    """At every scale but those below."""

    smoke: Values = ()
    small: Values = ()
    paper: Values = ()


class ColumnKeys(RecipeKeys):
    """Columns of a table: one, or one for each combination of values on the axes.

    The recipe keys are those that the column varies.
    """

    setup: str
    """The kind of set-ups, one for each scale at which there is such a column."""

    of: str = ""
    """The paper's column, with ``{AXIS}`` for a value; by default the set-up's."""

    label: str = ""
    """Likewise, with ``{setup}`` for the set-up's label; by default that and ``of``."""

    axes: dict[str, Axis] = Field(default_factory=dict)
    rows: dict[str, RecipeKeys] = Field(default_factory=dict)
    methods: dict[str, RecipeKeys] = Field(default_factory=dict)
    score: Metric | None = None
    optional: bool = False
    untargeted: bool = False
    """Whether the rounds to the set-up's target are not counted."""


class Numbers(Section):
    """Published numbers, in percent."""

    source: str
    columns: Labels
    values: dict[str, tuple[float, ...]]
    """By the key of a row, one number for each column."""

    deviations: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Likewise, the standard deviation of each number, in points."""


class Worded(Section):
    """A claim with words of its own."""

    text: str
    claim: str


class TableKeys(Section):
    """One table of the paper."""

    name: str
    title: str
    known: str = ""
    rows: Labels
    columns: tuple[ColumnKeys, ...]
    published: tuple[Numbers, ...] = ()
    claims: tuple[str | Worded, ...] = ()
    notes: Labels = ()
    exact: bool | None = None
    """Whether the paper's scale is set up as published; by default as the file says."""

    seeds: tuple[int, ...] = ()
    takes: dict[Scale, str] = Field(default_factory=dict)
    left_out: dict[str, str] = Field(default_factory=dict)
    """Rows or columns that are not run, and why."""

    left_out_at: dict[Scale, dict[str, str]] = Field(default_factory=dict)
    absent: str = ""
    """Why a scale lacks some of the paper's columns."""


class PaperFile(Section):
    """A paper and its tables."""

    key: str
    authors: str
    title: str
    where: str
    seeds: tuple[int, ...]
    takes: dict[Scale, str]
    """By scale, how long a run takes; tables may override it, as the seeds."""

    known: str = ""
    exact: bool = False
    absent: str = ""
    bases: dict[str, SetupKeys] = Field(default_factory=dict)
    setups: dict[str, dict[Scale, SetupKeys]]
    rows: dict[str, RowKeys]
    tables: tuple[TableKeys, ...]


class Read:
    """A paper's file that was read, and where its keys are."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            RecipeError: it cannot be read, or something in it is wrong; problems have their lines.
        """
        document = read_toml(path, path.name)
        self._layer = document_layer(document)
        shared = dict(document.values.get("shared", {}))
        written = {key: value for key, value in document.values.items() if key != "shared"}
        values = self._replaced(written, shared, ())
        made, problems = validate(PaperFile, values, self._layer)
        if made is None:
            raise problems_error(problems)
        self.file = made

    def wrong(self, path: KeyPath, text: str) -> RecipeError:
        """Return the error for a value at a path."""
        return problems_error([Problem(self._layer.nearest(path), dotted(path), text)])

    def check(self, kind: str, name: str, known: Collection[str], path: KeyPath) -> str:
        """Return a name that is known.

        Raises:
            RecipeError: it is not.
        """
        if name not in known:
            near = did_you_mean(nearest_name(name, known))
            raise self.wrong(path, f"there is no {kind} '{name}'{near}")
        return name

    def _replaced(self, value: Any, shared: Mapping[str, Any], path: KeyPath) -> Any:
        """Return a value with what is shared in place of its name."""
        if isinstance(value, str) and value.startswith("@"):
            name = self.check("shared value", value[1:], shared, path)
            others = {key: shared_value for key, shared_value in shared.items() if key != name}
            return self._replaced(shared[name], others, path)
        if isinstance(value, dict):
            return {k: self._replaced(item, shared, (*path, k)) for k, item in value.items()}
        if not isinstance(value, list):
            return value
        items: list[Any] = []
        for number, item in enumerate(value):
            new = self._replaced(item, shared, (*path, number))
            spliced = isinstance(item, str) and isinstance(new, list)
            items.extend(new if spliced else [new])
        return items
