"""Each row of the attack table names tests that exist and that try it."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "security.md"
ATTACKERS = (
    "A stranger on the network",
    "A stolen or malicious device",
    "A stolen gateway",
    "An operator, or a viewer",
    "A web page, or another user, of an operator's machine",
    "A broken broker",
    "A curious coordinator",
)


def rows() -> list[str]:
    """The rows of the attack table, without heads and rules."""
    table = PAGE.read_text(encoding="utf-8").split("## Attack table")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [line for line in lines if not line.startswith("| attack |")]


def test_every_attacker_of_the_fleet_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^### (.*)$", text, re.MULTILINE) == list(ATTACKERS)


def test_each_row_names_tests_that_exist() -> None:
    assert len(rows()) > 15
    for row in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row.split("|")[3])
        assert named, row
        for file, function in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            found = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
            assert function in found, f"{file}::{function}"
