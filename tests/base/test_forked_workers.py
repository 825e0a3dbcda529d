"""Workers that are forked after the collection run every test once, and report as one process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ENVIRONMENT = {
    "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "COLUMNS": "120",
}

SHARED = """
import os, signal
from pathlib import Path
import pytest

@pytest.fixture(scope="session")
def shared():
    yield
    with open("ended", "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.mark.parametrize("number", range(4))
def test_number(number, shared, tmp_path):
    with open("ran", "a") as file:
        file.write(f"{os.getpid()} {Path(__file__).stem} {number}\\n")
"""

OF_PACKAGE = """
import os
import pytest

@pytest.fixture(scope="package")
def fleet():
    with open("made", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""

USING = """
def test_with_a_fleet(fleet): ...
def test_without_one(): ...
"""

FAILING = """
import pytest

def test_wrong():
    print("printed")
    assert [1, 2] == [1, 3]

@pytest.mark.skip(reason="not here")
def test_skipped(): ...
"""

DYING = """
import os, signal

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after(): ...
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, str]:
    """Run tests that a few files have in two workers; return the exit code and stdout."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    words = ["-m", "pytest", "-p", "tests.forked_workers", "--workers", "2", "-v", "-rfEs"]
    done = subprocess.run(
        [sys.executable, *words, "--rootdir", str(folder), *options],
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_two_processes_run_whole_files_and_end_what_they_share(tmp_path: Path) -> None:
    files = {f"n{number}": SHARED for number in range(5)}
    code, said = run(tmp_path, **files)
    assert code == 0, said
    assert said.count("PASSED") == 20
    rows = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert len({(file, number) for _, file, number in rows}) == len(rows) == 20
    places = {(process, file) for process, file, _ in rows}
    assert len(places) == 5, "a file has one process"
    ended = Counter((tmp_path / "ended").read_text().split())
    assert ended == Counter(process for process, _ in places), "each file has its own fixture"


def test_files_that_share_a_fixture_of_their_package_have_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(OF_PACKAGE)
    code, said = run(tmp_path, **dict.fromkeys("abcd", USING))
    assert code == 0, said
    assert len((tmp_path / "made").read_text().split()) == 1


def test_failures_and_skips_are_those_of_one_process(tmp_path: Path) -> None:
    code, said = run(tmp_path, failing=FAILING, shared=SHARED)
    assert code == 1
    for told in ("At index 1 diff: 2 != 3", "printed", "not here", "1 failed, 4 passed, 1 skipped"):
        assert told in said, said


def test_a_test_that_kills_its_process_and_those_after_it_fail(tmp_path: Path) -> None:
    code, said = run(tmp_path, dying=DYING, shared=SHARED)
    assert code == 1
    assert "2 failed, 4 passed" in said, said
    assert "the process of the tests has died" in said
    code, said = run(tmp_path, "--maxfail=1")
    assert "stopping after 1 failures" in said


def test_nothing_runs_where_tests_are_listed_only(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--collect-only", shared=SHARED)
    assert code == 0, said
    assert not (tmp_path / "ran").exists()
