"""``make test`` checks first, or beside; ``make coverage`` and ``make resolve`` run programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKS = ("ruff format --check", "ruff check", "lint-imports")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run make as from a shell, also where make itself runs these tests."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=folder, capture_output=True, text=True, check=False, env=outer
    )


def checkout(folder: Path, script: str) -> Path:
    """Make a folder whose tools all run a shell script, ``{0}`` being their name; return theirs."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        (programs / name).write_text("#!/bin/sh\n" + script.replace("{0}", name))
        (programs / name).chmod(0o755)
    shutil.copy(ROOT / "Makefile", folder)
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        (folder / name).touch()
    (folder / ".venv" / ".installed").touch()
    (folder / "tests").mkdir()
    (folder / "tests" / "install_packages.sh").touch()
    return programs


def test_the_checks_come_before_the_tests() -> None:
    lines = make("--dry-run", "test").stdout.splitlines()
    places = [
        next(n for n, line in enumerate(lines) if line.startswith(f".venv/bin/{command}"))
        for command in (*CHECKS, "mypy", "pytest")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("failing", CHECKS)
def test_a_check_that_fails_ends_it_and_says_what_to_run(tmp_path: Path, failing: str) -> None:
    checkout(tmp_path, f'echo "{{0}} $*"\ntest "{failing}" != "$(echo {{0}} $*)"\n')
    told = make("test", folder=tmp_path)
    ran = [line for line in told.stdout.splitlines() if not line.startswith("to ")]
    assert told.returncode != 0
    assert ran[-1].strip() == failing
    assert told.stdout.splitlines()[-1].startswith("to ")


@pytest.mark.parametrize("failing", ["mypy", "pytest"])
def test_types_are_checked_beside_the_tests_and_either_may_fail(
    tmp_path: Path, failing: str
) -> None:
    programs = checkout(tmp_path, f'echo "ran {{0}}"\ntest {failing} != {{0}}\n')
    (programs / "python").write_text("#!/bin/sh\nexit 1\n")
    (programs / "python").chmod(0o755)
    told = make("test", folder=tmp_path)
    assert {"ran mypy", "ran pytest"} <= set(told.stdout.splitlines())
    assert ("to see this again: make types" in told.stdout) == (failing == "mypy")
    assert told.returncode != 0


def test_coverage_is_printed_also_where_a_test_fails_and_its_failure_counts(tmp_path: Path) -> None:
    programs = checkout(tmp_path, 'echo "pytest $*"\nexit 1\n')
    (programs / "python").write_text('#!/bin/sh\necho "python $*"\n')
    (programs / "python").chmod(0o755)
    told = make("coverage", "ARGS=tests/wire", folder=tmp_path)
    ran = told.stdout.splitlines()
    assert ran[0].startswith("pytest ")
    assert ran[0].endswith(" --cov --cov-report= tests/wire")
    assert ran[1:] == ["python -m tests.coverage_by_package"]
    assert told.returncode != 0


def test_resolve_runs_its_program() -> None:
    assert (
        make("--dry-run", "resolve").stdout.splitlines()[-1] == ".venv/bin/python -m tests.resolve"
    )


def test_a_package_that_there_is_not_keeps_no_other_from_being_installed(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {
        "id": "echo 0",
        "apt-get": f'echo "$*" >> {tmp_path}/asked; case "$*" in *chromium*) exit 1;; esac',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    told = subprocess.run(
        ["/bin/sh", str(ROOT / "tests" / "install_packages.sh")],
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=True,
    )
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[0] == "update -qq"
    assert "install -y -qq --no-install-recommends tmux" in asked
    assert told.stdout.splitlines()[-3:] == [
        "could not be installed: chromium-headless-shell",
        "not installed: chromium-headless-shell; the tests that need them will be skipped",
        "  on Debian or Ubuntu: sudo apt-get update && sudo apt-get install"
        " chromium-headless-shell",
    ]
