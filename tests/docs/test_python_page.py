"""Each Python block of ``docs/python.md`` and each program of ``docs/examples`` does its work."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import edgefed
from edgefed.api.rounds import RoundResult
from tests.docs.pages import ROOT, blocks
from tests.processes import clean_environment
from tests.programs.forked_programs import ended

PAGE = ROOT / "docs" / "python.md"
SMALLER = {
    '"rounds": {"count": 5}': '"rounds": {"count": 1}',
    '"seeds": [1, 2]': '"seeds": [1]',
    '"limit": 200': '"limit": 60',
    '["accuracy"] < 0.9': '["accuracy"] < 0.6',
}
"""Parts of the page's blocks that are replaced, so that they train for less time."""
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


def python(folder: Path, program: Path) -> str:
    """Return what a program prints that is run in a folder; it says nothing on stderr."""
    environment = {**clean_environment(), "XDG_STATE_HOME": str(folder)}
    environment["PYTHONPATH"] = str(program.parent)
    told = ended([program.stem], environment, folder)
    assert (told.returncode, told.stderr) == (0, ""), told.stdout
    return told.stdout


@pytest.mark.slow
def test_the_blocks_of_the_page_run_one_after_another(tmp_path: Path) -> None:
    found = [block for block in blocks(PAGE) if block.language == "python"]
    assert len(found) == len([block for block in blocks(PAGE) if block.language])
    # Each block keeps its line, so that a traceback names it.
    source = ""
    for block in found:
        source += "\n" * (block.line - source.count("\n")) + block.text
    for part, smaller in SMALLER.items():
        assert part in source
        source = source.replace(part, smaller)
    (tmp_path / "page.py").write_text(source)
    told = python(tmp_path, tmp_path / "page.py")
    first = r"<Result digits-fedavg: 3 rounds, accuracy 0\.\d+, .*>\n0\.\d+ [0-9a-f]{64}\n"
    assert re.match(first, told), told
    stopped = re.search(r"^(\d+) rounds$", told, re.MULTILINE)
    assert stopped is not None
    assert int(stopped[1]) < 50
    assert re.search(r"^\('[012]', .*\) \(5, 3\)$", told, re.MULTILINE), told
    assert "training.learning_rat: unknown key" in told
    assert (tmp_path / "model.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("program", EXAMPLES, ids=lambda each: each.stem)
def test_an_example_trains_and_predicts(program: Path, tmp_path: Path) -> None:
    told = python(tmp_path, program)
    accuracy = re.search(r"<Result .*, accuracy ([\d.]+), ", told)
    assert accuracy is not None, told
    assert float(accuracy[1]) > 0.7
    assert list(tmp_path.iterdir()) == []


def test_the_page_names_every_attribute_of_a_round() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("| attribute |")[2].partition("\n\n")[0]
    told = set(re.findall(r"`(\w+)`", "".join(row.split(" | ")[0] for row in table.splitlines())))
    fields = {name for name in RoundResult.__dataclass_fields__ if not name.startswith("_")}
    assert told == fields | {"weights"}


def test_the_page_names_every_argument_and_field_of_a_sweep() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Sweeps")[2].partition("\n## ")[0]
    arguments, fields = (
        set(re.findall(r"`(\w+)`", "".join(row.split(" | ")[0] for row in table.splitlines())))
        for table in re.findall(
            r"^\| (?:argument|field of the result) \|.*?\n\n", text, re.M | re.S
        )
    )
    assert arguments == set(inspect.signature(edgefed.sweep).parameters) - {"sweep"}
    assert fields == set(edgefed.SweepResult.__dataclass_fields__)


def test_every_name_that_the_page_uses_is_public() -> None:
    used = set(re.findall(r"\bedgefed\.(\w+)", PAGE.read_text(encoding="utf-8")))
    assert used - set(edgefed.__all__) == {"extension"}, "the module for plug-ins"
