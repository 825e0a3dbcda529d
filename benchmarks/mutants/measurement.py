"""Measure which tests run which lines, and read the answer.

It is a pytest plugin, and a start-up hook of every process that the tests start. A module's or
package's fixture counts for each test that uses it. A program that is forked from a server counts
for the test that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage, CoverageData

ROOT = Path(__file__).parents[2]
CONTEXT = "MUTANTS_CONTEXT"
FOLDER = "MUTANTS_FOLDER"
SETTINGS = """
[run]
include =
    {files}
data_file = {folder}/coverage
context = ${{{variable}-}}
concurrency = thread, multiprocessing
parallel = true
sigterm = true
disable_warnings = no-data-collected, module-not-measured, include-ignored
"""
START_UP = """
import os
import runpy

import coverage

coverage.process_startup()
plain = runpy.run_module


def run_module(*words, **options):
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(chr(10) + os.environ.get("MUTANTS_CONTEXT", ""))
    return plain(*words, **options)


runpy.run_module = run_module
"""
"""What each process that the tests start does first, as ``sitecustomize``."""


@dataclass(frozen=True)
class CoveringTests:
    """The tests that passed, with their seconds, and the tests that run each line of a file."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[int, frozenset[str]]]

    def of(self, file: str, lines: range) -> list[str]:
        """Return the tests that run one of a file's lines, the fastest first.

        Lines that run only while modules are imported give the tests of the package's folder.
        """
        known = self.lines.get(file, {})
        tests = {test for line in lines for test in known.get(line, ())}
        if tests == {""}:
            folder = f"tests/{Path(file).parts[1]}/"
            tests = {test for test in self.seconds if test.startswith(folder)}
        return sorted(tests & set(self.seconds), key=lambda test: (self.seconds[test], test))


def measure(tree: Path, files: Sequence[str], folder: Path, words: Sequence[str]) -> None:
    """Run the tests of a tree and note in a folder which of them run which lines of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = "\n    ".join(str(tree / file) for file in sorted(set(files)))
    settings = folder / "coverage.ini"
    settings.write_text(SETTINGS.format(files=paths, folder=folder, variable=CONTEXT))
    (folder / "sitecustomize.py").write_text(START_UP, encoding="utf-8")
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("COV")},
        "PYTHONPATH": os.pathsep.join(map(str, (folder, tree, ROOT))),
        "COVERAGE_PROCESS_START": str(settings),
        FOLDER: str(folder),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "benchmarks.mutants.measurement", "-n", "2", "--dist", "loadfile", *words]
    subprocess.run(command, cwd=tree, env=environment, check=False)


def read(tree: Path, folder: Path) -> CoveringTests:
    """Return what was measured in a folder."""
    seconds = json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
    users: dict[str, set[str]] = {}
    for noted in folder.glob("fixtures-*.json"):
        for test, fixtures in json.loads(noted.read_text(encoding="utf-8")).items():
            for fixture in fixtures:
                users.setdefault(f"{fixture}@{test.partition('::')[0]}", set()).add(test)
                users.setdefault(f"{fixture}@", set()).add(test)
    data = CoverageData(str(folder / "combined"))
    if not (folder / "combined").exists():
        whole = Coverage(data_file=str(folder / "combined"), config_file=False)
        whole.combine([str(each) for each in folder.glob("coverage.*.*")], keep=True)
        whole.save()
    data.read()
    lines: dict[str, dict[int, frozenset[str]]] = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file)
        lines[str(Path(file).relative_to(tree))] = {
            line: frozenset(test for each in contexts for test in _tests(each, users))
            for line, contexts in by_line.items()
        }
    return CoveringTests(seconds, lines)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which fixtures each test uses."""
    names = {item.nodeid: getattr(item, "fixturenames", []) for item in session.items}
    noted = Path(os.environ[FOLDER]) / f"fixtures-{os.getpid()}.json"
    noted.write_text(json.dumps(names), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count what runs now for this test."""
    _switch(item.nodeid)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Count what a shared fixture runs for all tests that use it."""
    if fixturedef.scope == "function":
        return (yield)
    before = os.environ[CONTEXT]
    file = before.rpartition("@")[2].partition("::")[0] if fixturedef.scope == "module" else ""
    _switch(f"fixture {fixturedef.argname}@{file}")
    try:
        return (yield)
    finally:
        _switch(before)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the measured lines, and in the first process the seconds of the tests that passed."""
    measured = Coverage.current()
    if hasattr(session.config, "workerinput") and measured is not None:
        measured.stop()
        measured.save()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(session.config, "workerinput") or reporter is None:
        return
    failed = {each.nodeid for key in ("failed", "error") for each in reporter.getreports(key)}
    seconds: dict[str, float] = {}
    passed = {each.nodeid for each in reporter.getreports("passed")} - failed
    for each in (*reporter.getreports("passed"), *reporter.getreports("")):
        if each.nodeid in passed:
            seconds[each.nodeid] = round(seconds.get(each.nodeid, 0.0) + each.duration, 3)
    written = Path(os.environ[FOLDER]) / "seconds.json"
    written.write_text(json.dumps(seconds), encoding="utf-8")


def _switch(context: str) -> None:
    os.environ[CONTEXT] = context
    measured = Coverage.current()
    if measured is not None:
        measured.switch_context(f"\n{context}")


def _tests(context: str, users: Mapping[str, set[str]]) -> set[str]:
    """Return the tests of a context; its last line counts, before it is that of the process."""
    own = context.rpartition("\n")[2]
    return users.get(own.removeprefix("fixture "), set()) if own.startswith("fixture ") else {own}
