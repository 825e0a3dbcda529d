"""A failed test runs once more, alone; a test that fails twice, and many that fail, fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_attempt import MOST, second_attempt

UNSTEADY = """
from pathlib import Path

def test_passes_the_second_time():
    before = Path("before")
    known = before.exists()
    before.touch()
    assert known
"""


def first_run(root: Path, text: str) -> int:
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "test_it.py"]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode


@pytest.mark.parametrize("number", [MOST, MOST + 1])
def test_unsteady_tests_pass_and_are_named_unless_they_are_many(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], number: int
) -> None:
    text = UNSTEADY.replace(
        "\ndef", f"\nimport pytest\n@pytest.mark.parametrize('n', range({number}))\ndef"
    )
    text = text.replace("time()", "time(n)").replace('"before"', 'f"before-{n}"')
    assert second_attempt(first_run(tmp_path, text), tmp_path) == (0 if number == MOST else 1)
    named = "unsteady, passed on the second attempt:\n  test_it.py::test_passes"
    assert (named in capfd.readouterr().out) == (number == MOST)


def test_a_test_that_fails_twice_fails(tmp_path: Path) -> None:
    assert second_attempt(first_run(tmp_path, "def test_no(): assert False"), tmp_path) == 1


def test_other_exit_codes_stay(tmp_path: Path) -> None:
    first_run(tmp_path, UNSTEADY)
    for exit_code in (0, 2, 3, 4, 5):
        assert second_attempt(exit_code, tmp_path) == exit_code
