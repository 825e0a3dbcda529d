"""A short TOML text cannot take much memory, stack or time."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefed.config.loading.load import parse_sets
from edgefed.config.values.toml import MAX_FILE_BYTES, Document, parse_value, try_toml
from edgefed.config.values.toml_limits import MAX_DEPTH, MAX_KEYS, MAX_VALUES, excess
from edgefed.errors import UsageError
from tests.cli.commands import edgefed
from tests.memory_limit import bounded

LOAD = """
from edgefed.config.loading.load import load_recipe
from edgefed.config.fleet.settings_files import Surroundings
around = Surroundings.of_process(None, True)
"""

BOMBS = {
    "50,000 parts": ".".join("a" * 50_000) + " = 1",
    "arrays in arrays": "a = " + "[" * 5000 + "]" * 5000,
    "100,000 keys": "\n".join(f"k{n}=1" for n in range(100_000)),
    "500,000 values": "a = [" + "1," * 500_000 + "]",
    "a quoted key of 1 MB": '"' + "a" * (2**20 - 10) + '" = 1',
    "a number of 20,000 bits": "rounds.count = 0x" + "f" * 5000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_little_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.toml"
    path.write_text(BOMBS[name])
    assert path.stat().st_size <= MAX_FILE_BYTES
    ended = bounded(
        LOAD, "load_recipe(__import__('pathlib').Path(sys.argv[1]), around)", path, megabytes=64
    )
    assert ended.trouble == ""
    assert ended.said.startswith(f"refused recipe.too_large {path}: it ")
    assert "try: name a settings file or a recipe" in ended.said


def test_the_command_line_refuses_it_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(BOMBS["50,000 parts"])
    told = "it is nested more than 32 deep"
    edgefed("sim", "run", path, state=tmp_path).failed(2, "recipe.too_large", told)
    edgefed("sim", "sweep", path, state=tmp_path).failed(2, "recipe.too_large", told)
    checked = edgefed("config", "check", path, state=tmp_path)
    assert checked.code == 8
    assert told in checked.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (".".join("a" * MAX_DEPTH) + " = 1", ""),
        (".".join("a" * (MAX_DEPTH + 1)) + " = 1", "nested"),
        ("a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, ""),
        ("a = " + "[" * (MAX_DEPTH + 1), "nested"),
        ("\n".join(f"k{n} = 1" for n in range(MAX_KEYS)), ""),
        ("\n".join(f"k{n} = 1" for n in range(MAX_KEYS + 1)), "keys"),
        ("\n".join("[[k]]" for _ in range(MAX_KEYS + 1)), "keys"),
        ("a = [" + "1," * MAX_VALUES + "]", ""),
        ("a = [" + "1," * (MAX_VALUES + 1) + "]", "values"),
    ],
    ids=[
        "depth",
        "deeper",
        "arrays",
        "deeper arrays",
        "keys",
        "more keys",
        "tables",
        "values",
        "more",
    ],
)
def test_each_limit_holds_to_the_one(text: str, told: str) -> None:
    assert told in excess(text)
    assert bool(excess(text)) == bool(told)
    if not told:
        assert isinstance(try_toml(text, "t"), Document)


HARMLESS = "[" * 99 + "." * 99 + "=" * 9999 + "," * 200_000


@pytest.mark.parametrize(
    "text",
    [
        f"a = '{HARMLESS}'",
        f'a = "{HARMLESS}"',
        f"a = '''{HARMLESS}\n{HARMLESS}''''",
        f'a = """{HARMLESS}\n\\"{HARMLESS}"""""',
        f"# {HARMLESS}\na = 1",
        f'a = "\\"{HARMLESS}"',
        f"'{'a.' * 99}' = 1",
        "a = [\n" + "[1, 2],\n" * 5000 + "]",
        "a = 1.5\nb = [1.5, 2.5]\n" + "c.d = 1\nc.e.f = 2.5",
    ],
)
def test_what_stands_in_strings_and_comments_does_not_count(text: str) -> None:
    assert excess(text) == ""
    assert isinstance(try_toml(text, "t"), Document)


@pytest.mark.parametrize("opening", ['"""', "'''", '"', "'", '"""\\"', "\\"])
def test_a_text_of_strings_that_are_not_closed_takes_one_pass(opening: str) -> None:
    # Each opening quote, looked for to the end of the text again, would take hours.
    excess(f"a = {opening}" * (MAX_FILE_BYTES // len(f"a = {opening}")))


def test_flags_and_variables_have_the_same_limits() -> None:
    deep = "[" * 2000 + "]" * 2000
    assert parse_value(deep) == deep
    with pytest.raises(UsageError, match="more than 32 parts"):
        parse_sets([".".join("a" * 2000) + "=1"])
    ended = bounded(
        LOAD + "name = 'EDGEFED_ALGORITHM' + '__A' * 2000\n",
        "load_recipe(None, Surroundings({name: '1'}, around.cwd, None, True))",
    )
    assert ended.trouble == ""
    assert "unknown variable" in ended.said
