"""Run tests against a mutant, in a copy of the tree and a process that has imported the libraries.

Each run is a fork of a process that has imported torch and pytest but nothing of EdgeFed. A failure
counts only if the same test, alone, fails again on the mutant and passes without it.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from benchmarks.mutants.mutation import Place

LIMIT = 60.0
"""Seconds for the tests of one mutant, beside those that confirm a failure."""
PLANNED = 30.0
"""Measured seconds of the tests that are chosen; starting and other load take the rest."""
PER_FILE = 0.2
FIRST = 20
MEMORY = 8 << 30
"""Bytes, so that a mutant that never stops collecting does not take the machine's."""
LIBRARIES = ["torch", "numpy", "scipy.optimize", "pydantic", "hypothesis", "msgpack", "zstandard"]
LIBRARIES += ["paho.mqtt.client", "cryptography.x509", "safetensors.numpy", "rich.console", "typer"]
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
OPTIONS += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, survived, timeout or not covered.

    Attributes:
        tests: how many tests were chosen.
        by: the test that failed, or that ran when the time was over.
    """

    outcome: str
    tests: int = 0
    by: str = ""


@dataclass(eq=False)
class Recorder:
    """A pytest plugin that writes the running test and the first that failed."""

    file: Path
    failed: str = ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write which test runs."""
        self.file.write_text(json.dumps([nodeid, self.failed]), encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write which test failed."""
        if report.failed:
            self.failed = self.failed or report.nodeid
            self.file.write_text(json.dumps([report.nodeid, self.failed]), encoding="utf-8")


@dataclass
class Runner:
    """Runs the tests of one mutant after the other in a copy of the tree of its own."""

    tree: Path
    folder: Path
    limit: float = LIMIT
    steady: dict[str, bool] = field(default_factory=dict)

    def judge(self, place: Place, tests: Sequence[str]) -> Verdict:
        """Return what the tests say, the first few before the others."""
        if not tests:
            return Verdict("not covered")
        ends = time.monotonic() + self.limit
        waiting = list(tests)
        while waiting:
            some = waiting[:FIRST] if len(waiting) == len(tests) else waiting
            code, last, failed = self._with(place, some, ends - time.monotonic())
            if code is None:
                return Verdict("timeout", len(tests), last)
            if code == 0:
                waiting = waiting[len(some) :]
                continue
            culprit = failed or some[0]
            if self._again(place, culprit, [culprit] if failed else some):
                return Verdict("killed", len(tests), culprit)
            waiting.remove(culprit)
        return Verdict("survived", len(tests))

    def _again(self, place: Place, name: str, tests: Sequence[str]) -> bool:
        """Whether tests fail on the mutant once more and pass without it."""
        if self._with(place, tests, self.limit)[0] == 0:
            return False
        if name not in self.steady:
            code = self._run(tests, self.limit)[0]
            if code not in {0, 1, None}:
                raise RuntimeError(f"the tests cannot run: see {self.folder / 'log.txt'}")
            self.steady[name] = code == 0
        return self.steady[name]

    def _with(
        self, place: Place, tests: Sequence[str], seconds: float
    ) -> tuple[int | None, str, str]:
        file = self.tree / place.file
        kept, times = file.read_bytes(), file.stat()
        try:
            file.write_text(place.text, encoding="utf-8")
            return self._run(tests, seconds)
        finally:
            file.write_bytes(kept)
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _run(self, tests: Sequence[str], seconds: float) -> tuple[int | None, str, str]:
        """Return the exit code, None after the time limit, the last test and the failed one."""
        told = self.folder / "told.json"
        told.write_text('["", ""]', encoding="utf-8")
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)
        child = start_process(partial(self._become_pytest, tests, told))
        ends = time.monotonic() + seconds
        code: int | None = None
        while time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.05)
        kill_group(child)
        if code is None:
            os.waitpid(child, 0)
        last, failed = json.loads(told.read_text(encoding="utf-8"))
        return code, last, failed

    def _become_pytest(self, tests: Sequence[str], told: Path) -> None:
        os.setsid()
        os.chdir(self.tree)
        log = os.open(self.folder / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.RLIM_INFINITY))
        for name in [each for each in sys.modules if each.split(".")[0] == "benchmarks"]:
            del sys.modules[name]
        sys.modules["__main__"] = types.ModuleType("__main__")
        sys.path.insert(0, str(self.tree))
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        words = [*OPTIONS, f"--basetemp={self.folder / 't'}", *tests]
        sys.exit(int(pytest.main(words, plugins=[Recorder(told)])))


def chosen(tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """Return the fastest tests that fit the time, in the order given."""
    taken: list[str] = []
    files: set[str] = set()
    left = PLANNED
    for test in tests:
        file = test.partition("::")[0]
        left -= seconds[test] + (0.0 if file in files else PER_FILE)
        if left < 0 and taken:
            break
        files.add(file)
        taken.append(test)
    return taken


def import_libraries() -> None:
    """Import what each test process needs and no mutant changes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in LIBRARIES:
        importlib.import_module(name)


def start_process(act: Callable[[], None]) -> int:
    """Fork a process that does one thing and ends; return its id.

    Unlike one of ``multiprocessing``, it takes itself for a first process, as pytest's is.
    """
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        act()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def kill_group(leader: int) -> None:
    """Kill a process and those that it started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
