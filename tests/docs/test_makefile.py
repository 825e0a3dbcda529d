"""``make test`` checks format, lint, types and imports before the tests, and says how to mend."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ("ruff format --check", "ruff check", "mypy", "lint-imports")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make as from a shell, also where make itself runs these tests."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=outer
    )


def test_the_checks_come_before_the_tests() -> None:
    lines = make("--dry-run", "test").stdout.splitlines()
    places = [
        next(n for n, line in enumerate(lines) if line.startswith(f".venv/bin/{command}"))
        for command in (*CHECKS, "pytest")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("failing", CHECKS)
def test_a_check_that_fails_ends_it_and_says_what_to_run(tmp_path: Path, failing: str) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        script = f'#!/bin/sh\necho "{name} $*"\ntest "{failing}" != "$(echo {name} $*)"\n'
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / ".venv" / ".installed").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "install_mosquitto.sh").touch()
    told = make("test", folder=tmp_path)
    ran = [line for line in told.stdout.splitlines() if not line.startswith("to ")]
    assert told.returncode != 0
    assert ran[-1].strip() == failing
    assert told.stdout.splitlines()[-1].startswith("to ")
