"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_FENCE = re.compile(
    r"(?:<!-- (?:not run: (?P<reason>[^\n]+?)|example: (?P<example>[\w-]+)) -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"`([\w-]+\.(?:toml|npz))`[^`]*:\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    Attributes:
        line: of the page, from 1, on which it begins.
        reason: why no test runs it; empty for a block that is run.
        example: the name by which a test finds the block; empty for most.
        file: the file that the sentence before it names, if it names one.
    """

    language: str
    text: str
    line: int
    reason: str
    example: str
    file: str


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        named = _FILE.search(text[: match.start()].rstrip())
        found.append(
            Block(
                match["language"],
                match["text"],
                text.count("\n", 0, match.start("language")) + 1,
                match["reason"] or "",
                match["example"] or "",
                named[1] if named else "",
            )
        )
    return found


def commands(block: Block) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the output that the page shows for it."""
    found: list[tuple[str, list[str]]] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1][1].append(line)
            continue
        command = line[2:]
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        found.append((command, []))
    return found
