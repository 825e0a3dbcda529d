"""Run tests in processes that are forked after the collection: ``pytest --workers NUMBER``.

A worker of pytest-xdist imports torch and collects all tests by itself, which takes half a minute
of CPU time. These share one collection. A worker runs all tests of a file, in the order of the
collection, and takes the next file when it is at the last test of one.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn, TextIO

import pytest

from broker.parent_death import execute_with_parent

POLL = 1.0
"""Seconds between two looks for workers that have died."""

LAST = '["crash", "the process of the tests has died"]'
"""The message of a worker that has said nothing more."""

NUMBER_SIZE = 2
"""Bytes of a part's number in the queue."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the number of workers."""
    told = "run the tests in so many processes, forked after the collection; 0 for this one alone"
    parser.addoption("--workers", type=int, default=0, metavar="NUMBER", help=told)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the collected tests in workers, if the command line asks for some."""
    config = session.config
    if not config.option.workers or session.testsfailed or config.option.collectonly:
        return None
    printer: Any = config.pluginmanager.getplugin("terminalreporter")
    printer.showfspath = False  # tests of several files come by turns
    Workers(session, parts(session.items)).run(config.option.workers)
    return True


def parts(items: Sequence[pytest.Item]) -> list[list[pytest.Item]]:
    """Return the tests of each file; those of files that share a fixture of their package as one.

    Such a fixture takes longer than the tests, and each worker would make it for its own files.
    """
    found: dict[object, list[pytest.Item]] = {}
    for path, group in itertools.groupby(items, lambda each: each.path):
        tests: list[Any] = list(group)
        fixtures = [
            made[-1] for test in tests for made in test._fixtureinfo.name2fixturedefs.values()
        ]
        shared = {fixture.baseid for fixture in fixtures if fixture.scope == "package"}
        found.setdefault(min(shared, default=path), []).extend(tests)
    return list(found.values())


@dataclass(eq=False)
class Worker:
    """A forked process.

    Attributes:
        pid: of the process.
        said: what it reports.
        test: the id of its last test.
    """

    pid: int
    said: Connection
    test: str = ""


class Workers:
    """The process that has collected the tests: it forks workers and passes on their reports.

    Args:
        session: the tests' session.
        parts: tests that one worker runs one after another.
    """

    def __init__(self, session: pytest.Session, parts: Sequence[Sequence[pytest.Item]]) -> None:
        self._session = session
        self._parts = parts
        self._folders: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        self._workers: list[Worker] = []
        self._begun: set[str] = set()

    def run(self, count: int) -> None:
        """Run all tests in so many workers.

        Raises:
            Failed: pytest's options have it end after so many failures.
        """
        read, write = os.pipe()
        os.write(write, b"".join(n.to_bytes(NUMBER_SIZE, "big") for n in range(len(self._parts))))
        os.close(write)
        self._folders.getbasetemp()
        try:
            for number in range(min(count, len(self._parts))):
                self._workers.append(self._fork(number, read))
            self._listen()
            for item in self._session.items:
                if item.nodeid not in self._begun:
                    self._fail(item.nodeid, "not run, since a process of the tests has died")
        finally:
            os.close(read)
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)  # those that have ended wait to be reaped
            for worker in self._workers:
                os.waitpid(worker.pid, 0)

    def _fork(self, number: int, queue: int) -> Worker:
        said, end = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            folder = self._folders.getbasetemp() / f"worker-{number}"
            folder.mkdir()
            self._folders._basetemp = folder
            work(self._session, taken(queue, self._parts), end)
        end.close()
        return Worker(pid, said)

    def _listen(self) -> None:
        """Pass on reports until all workers have ended."""
        busy = list(self._workers)
        while busy:
            wait([worker.said for worker in busy], POLL)
            busy = [worker for worker in busy if self._hear(worker)]
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)

    def _hear(self, worker: Worker) -> bool:
        """Pass on a worker's next message, if there is one; return whether to expect more."""
        has_died = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if not worker.said.poll() and not has_died:
            return True
        try:
            kind, content = json.loads(worker.said.recv_bytes() if worker.said.poll() else LAST)
        except EOFError:
            kind, content = json.loads(LAST)
        config, hook = self._session.config, self._session.config.hook
        if kind == "start":
            worker.test = content["nodeid"]
            self._begun.add(worker.test)
            hook.pytest_runtest_logstart(**content)
        elif kind == "report":
            if isinstance(content["longrepr"], list):
                content["longrepr"] = tuple(content["longrepr"])  # of a skipped test; JSON has none
            report = hook.pytest_report_from_serializable(config=config, data=content)
            hook.pytest_runtest_logreport(report=report)
        elif kind == "crash":
            self._fail(worker.test, content)
        return kind in ("start", "report")

    def _fail(self, test: str, reason: str) -> None:
        report = pytest.TestReport(test, (test, None, test), {}, "failed", reason, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)


# -- a worker -------------------------------------------------------------------------------------


class Reporter:
    """The plug-in that has a worker say what would be printed."""

    def __init__(self, config: pytest.Config, end: Connection) -> None:
        self._config = config
        self._end = end

    def say(self, kind: str, content: Any) -> None:
        """Send a message."""
        self._end.send_bytes(json.dumps((kind, content), default=str).encode())

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Say which test begins."""
        self.say("start", {"nodeid": nodeid, "location": location})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say how a test's set-up, call, or teardown ended."""
        convert = self._config.hook.pytest_report_to_serializable
        self.say("report", convert(config=self._config, report=report))


def taken(queue: int, parts: Sequence[Sequence[pytest.Item]]) -> Iterator[pytest.Item]:
    """Yield the tests of parts that no other worker has taken."""
    while number := os.read(queue, NUMBER_SIZE):
        yield from parts[int.from_bytes(number, "big")]


def work(session: pytest.Session, items: Iterator[pytest.Item], end: Connection) -> NoReturn:
    """Run tests, and end the process."""
    reporter = Reporter(session.config, end)
    try:
        if sys.platform.startswith("linux"):
            execute_with_parent(os.getppid(), signal.SIGTERM)
        with Path(os.devnull).open("w") as nowhere:
            prepare(session.config.pluginmanager, reporter, nowhere)
            run(session, items)
        reporter.say("end", None)
    except KeyboardInterrupt:
        pass
    except BaseException:
        reporter.say("crash", traceback.format_exc())
    finally:
        os._exit(0)


def prepare(plugins: pytest.PytestPluginManager, reporter: Reporter, nowhere: TextIO) -> None:
    """Have plug-ins say to the reporter what they printed."""
    plugins.register(reporter)
    printer: Any = plugins.getplugin("terminalreporter")
    printer._tw._file = nowhere  # its width and colours are those in which failures are shown
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # the process that has forked this one writes into its files
    capture.start_global_capturing()


def run(session: pytest.Session, items: Iterator[pytest.Item]) -> None:
    """Run tests, each of which knows the next one, with which it may share fixtures."""
    protocol = session.config.hook.pytest_runtest_protocol
    item = next(items, None)
    try:
        while item is not None and not session.shouldfail and not session.shouldstop:
            following = next(items, None)
            protocol(item=item, nextitem=following)
            item = following
    finally:
        session._setupstate.teardown_exact(None)
