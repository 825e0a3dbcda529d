"""Public docstrings name their subject: few lean on the words who, what, told and shall."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("edgefed", "device_agent", "broker")
WORDS = re.compile(r"\b(who|what|told|shall)\b", re.IGNORECASE)
LIMIT = 17
"""Most docstrings with one of the words, such as those about a parameter named ``what``."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public(node: ast.AST) -> Iterator[Documented]:
    """Yield the module, classes and functions below ``node`` without a leading underscore."""
    if isinstance(node, Documented):
        if not isinstance(node, ast.Module) and node.name.startswith("_"):
            return
        yield node
    for child in ast.iter_child_nodes(node):
        yield from public(child)


def with_words(source: str) -> list[str]:
    """Return the public docstrings of a module that contain one of the words."""
    texts = (ast.get_docstring(node) or "" for node in public(ast.parse(source)))
    return [text for text in texts if WORDS.search(text)]


def test_few_docstrings_lean_on_the_words() -> None:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    count = sum(len(with_words(path.read_text())) for path in paths)
    assert 0 < count <= LIMIT, f"{count} public docstrings contain who, what, told or shall"


def test_words_are_counted_whole_and_in_public_docstrings_only() -> None:
    source = '"""What it is."""\n\n\ndef _own() -> None:\n    """Say who."""\n'
    assert with_words(source) == ["What it is."]
    assert with_words('"""Whatever the whole says."""\n') == []
