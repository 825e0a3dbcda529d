"""Write docs/recipe.md: every key of a recipe, read from the models that validate recipes.

python docs/make_recipe_page.py
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgefed.algorithms.composed.registry import built_in
from edgefed.algorithms.selection.registry import SELECTORS
from edgefed.cli.fleet.demo import RECIPE
from edgefed.config.loading.write import toml_value
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.models import tables
from edgefed.data.sets.datasets import dataset_keys
from edgefed.data.sets.options import DataOptions
from edgefed.learn.modeling.model_building import NETWORKS
from edgefed.wire.limits import CLASS_NAME_PATTERN

PAGE = Path(__file__).with_name("recipe.md")

OPENING = """\
# The recipe

A recipe is a TOML file that defines what a run trains. Every key has a default, so an empty file is
a valid recipe. An unknown key or a value out of range is refused with its line number. This page is
generated from the models that validate recipes: `python docs/make_recipe_page.py` writes it, and a
test checks that it is up to date.

```console
$ edgefed demo --dry-run > my.toml                             # a file to start from
$ edgefed config check my.toml                                 # every problem in a file
$ edgefed config show my.toml                                  # each value and its origin
$ edgefed run start my.toml --set training.epochs=3 --dry-run  # a run with another value
```

Values are taken from these sources, highest precedence first: `--set` and the flags of the command;
`EDGEFED_TABLE__KEY`, such as `EDGEFED_TRAINING__EPOCHS=3` (for top-level keys:
`EDGEFED_RECIPE__NAME`, `EDGEFED_RECIPE__SEED`); the recipe file; the `[recipe]` tables of settings
files (see [cli.md](cli.md)); the default.

The recipe of `edgefed demo`:

```toml
{demo}```
"""

FURTHER = {
    "model": "## Further keys of `[model]`\n\nEach model has its own keys in addition to `name`.",
    "data": (
        "## Further keys of `[data]`\n\nEach data set has its own keys in addition to those above."
        " A real device does not read this\ntable: its data is named in its own settings (see"
        " [getting-started.md](getting-started.md))."
    ),
    "algorithm": (
        "## Further keys of `[algorithm]`\n\nEach algorithm has its own keys in addition to `name`;"
        " `edgefed algo show NAME` also prints them."
    ),
    "selection": (
        "## Further keys of `[selection]`\n\nEach selector has its own keys in addition to those"
        " above; see [selection.md](selection.md)."
    ),
}


def page() -> str:
    """Return the whole page."""
    parts = [OPENING.format(demo=RECIPE.read_text(encoding="utf-8")), "## Top-level keys\n"]
    parts.append(table(Recipe, leave_out=tables(Recipe)))
    for name, model in tables(Recipe).items():
        parts += [f"## `[{name}]`\n", f"{_text(model.__doc__)}\n", table(model)]
    for name, models in _further().items():
        parts.append(f"{FURTHER[name]}\n")
        shared = DataOptions.model_fields if name == "data" else {}
        if shared:
            parts += ["### every data set except `none`\n", table(DataOptions)]
        for title, model in models.items():
            own = {key: field for key, field in shared.items() if _is_shared(model, key)}
            parts += [f"### `{title}`\n", table(model, leave_out=own)]
    return "\n".join(parts)


def _further() -> dict[str, dict[str, type[BaseModel]]]:
    """Return the models of the open tables' further keys, by table and by name."""
    return {
        "model": {name: network.settings for name, network in NETWORKS.items()},
        "data": dict(dataset_keys()),
        "algorithm": {name: kind.Settings for name, kind in built_in().items()},
        "selection": {name: kind.Settings for name, kind in SELECTORS.items()},
    }


def _is_shared(model: type[BaseModel], key: str) -> bool:
    """Return whether a data set's key is no other than every data set's."""
    field = model.model_fields.get(key)
    shared = DataOptions.model_fields[key]
    return field is None or field.description == shared.description


def table(model: type[BaseModel], leave_out: Mapping[str, object] | None = None) -> str:
    """Return a model's keys as a table: key, default, values, meaning."""
    schema = model.model_json_schema()
    rows = [
        f"| `{key}` | {_default(model, key)} | {_values(told)} | {_text(told.get('description'))} |"
        for key, told in schema.get("properties", {}).items()
        if key not in (leave_out or {})
    ]
    if not rows:
        return "It has no keys of its own.\n" if leave_out else "It has no keys.\n"
    return "\n".join(["| key | default | values | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _default(model: type[BaseModel], key: str) -> str:
    field = model.model_fields[key]
    if field.is_required():
        return "required"
    value = field.get_default()
    return "not set" if value is None else f"`{toml_value(value)}`"


def _values(told: Mapping[str, Any]) -> str:
    """Return in words what a JSON Schema allows; that a key may be left out is no value."""
    forms = [each for each in told.get("anyOf", told.get("oneOf", ())) if each["type"] != "null"]
    if forms:
        return ", or ".join(_values(each) for each in forms)
    if "const" in told:
        return f"`{json.dumps(told['const'])}`"
    if "enum" in told:
        return ", ".join(f"`{json.dumps(value)}`" for value in told["enum"])
    if told["type"] == "array":
        return _list_values(told)
    kind = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "true, false",
    }
    words = [kind.get(str(told["type"]), str(told["type"])), *_bounds(told)]
    return " ".join(words)


def _list_values(told: Mapping[str, Any]) -> str:
    """Return in words what a list may hold; one of a given length holds values of one kind."""
    if told.get("maxItems") == 0:
        return "`[]`"
    fixed = told.get("prefixItems", ())
    if fixed:
        return f"list of {len(fixed)}: {_values(fixed[0])}"
    return f"list of: {_values(told.get('items', {'type': 'any'}))}"


def _bounds(told: Mapping[str, Any]) -> Iterator[str]:
    names = {
        "minimum": "from",
        "exclusiveMinimum": "above",
        "maximum": "to",
        "exclusiveMaximum": "below",
    }
    yield from (f"{word} {_number(told[key])}" for key, word in names.items() if key in told)
    if "pattern" in told and told["pattern"] != CLASS_NAME_PATTERN:
        yield f"matching `{told['pattern']}`"


def _number(value: float) -> str:
    if value == 2**63:
        return "2^63"
    return f"{int(value):,}" if value == int(value) else str(value)


def _text(text: str | None) -> str:
    """Return a docstring on one line, in Markdown."""
    return " ".join(inspect.cleandoc(text or "").split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
