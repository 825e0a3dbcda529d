"""Every key is found on its line, whatever TOML allows around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.config.loading.write import toml_value
from edgefed.config.values.layers import leaves
from edgefed.config.values.toml import parse_toml, read_toml
from edgefed.config.values.toml_positions import KeyPath, key_lines
from edgefed.errors import RecipeError

TEXT = """\
# comment = 1
top = "a # no comment"   # but this is
"quoted key" = 1
'literal.key' = 2
"esc\\u0061ped\\U00000062" = 3

long = \"\"\"
fake = 1
[fake]
\\\"\"\" still inside ""\"\"\"
raw = '''
also_fake = 1 ''''
after = 2024-01-01 07:00:00

[a]
dotted . key = 1
inline = { x = 1, "y z" = [ 2, { deep = 3 } ] } # end
array = [
  1, # one ]
  "two, ]",
  [3,
   4],
]

[a.sub."q.r"]
k = 1

[[many]]
n = 1
[many.inner]
m = 1
[[many]]
n = 2
[[many.nested]]
z = 1
[[many.nested]]
z = 2
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("quoted key",), 3),
        (("literal.key",), 4),
        (("escapedb",), 5),
        (("long",), 7),
        (("raw",), 11),
        (("after",), 13),
        (("a",), 15),
        (("a", "dotted", "key"), 16),
        (("a", "inline", "y z", 1, "deep"), 17),
        (("a", "array", 1), 20),
        (("a", "array", 2, 1), 22),
        (("a", "sub", "q.r", "k"), 26),
        (("many", 0, "n"), 29),
        (("many", 0, "inner", "m"), 31),
        (("many", 1, "n"), 33),
        (("many", 1, "nested", 1, "z"), 37),
    ],
)
def test_a_key_is_found_on_its_line(path: KeyPath, line: int) -> None:
    assert parse_toml(TEXT, "t.toml").lines[path] == line


def test_what_only_looks_like_a_key_is_not_one() -> None:
    lines = parse_toml(TEXT, "t.toml").lines
    assert not {("fake",), ("also_fake",), ("comment",)} & set(lines)


def test_windows_line_ends_count_once() -> None:
    assert parse_toml("a = 1\r\nb = 2\r\n", "t").lines == {("a",): 1, ("b",): 2}


KEYS = st.text(max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(KEYS.filter(lambda key: key.isprintable()), VALUES, max_size=5))
def test_a_document_written_one_key_a_line_is_found_again(values: dict[str, Any]) -> None:
    pairs = [f"{toml_value({key: value})[1:-1]}\n" for key, value in values.items()]
    document = parse_toml("\n".join(pairs), "t")
    assert document.values == values
    expected: dict[KeyPath, int] = {(key,): 2 * n + 1 for n, key in enumerate(values)}
    assert {path: line for path, line in document.lines.items() if len(path) == 1} == expected
    for path, _ in leaves(values):
        assert path == () or document.lines[path] == expected[path[:1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = ", "t.toml:1:5: not valid TOML: invalid value."),
        ("a = 1\n[b\nc = 2", "t.toml:2:3: not valid TOML:"),
        ("a = 1\na = 2\n", "t.toml:2:6: not valid TOML: cannot overwrite a value."),
        ("a = [1,\n", "t.toml:2:1: not valid TOML:"),
    ],
)
def test_a_syntax_error_names_file_line_and_column(text: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_toml(text, "t.toml")
    assert caught.value.message.startswith(message)
    assert caught.value.code == "recipe.syntax"
    assert caught.value.hint


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    latin, long = tmp_path / "latin.toml", tmp_path / "long.toml"
    latin.write_bytes(b"a = 1\nname = '\xe9'\n")
    long.write_bytes(b"#" * (2**20 + 1))
    for path, code, text in [
        (tmp_path / "none.toml", "recipe.missing", "the file does not exist"),
        (latin / "under-a-file.toml", "recipe.missing", "the file does not exist"),
        (tmp_path, "recipe.unreadable", "cannot be read: Is a directory"),
        (tmp_path / "nul\0.toml", "recipe.unreadable", "cannot be read"),
        (latin, "recipe.unreadable", "latin.toml:2: is not UTF-8 text"),
        (long, "recipe.unreadable", "is longer than"),
    ]:
        with pytest.raises(RecipeError) as caught:
            read_toml(path)
        assert (caught.value.code, caught.value.exit_code) == (code, 2)
        assert str(path) in caught.value.message and text in caught.value.message


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(tmp_path / "bom.toml").values == {"a": 1}


def test_lines_of_an_empty_text() -> None:
    assert key_lines("") == {}
    assert key_lines("# only a comment") == {}
