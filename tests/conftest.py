"""Common fixtures: running brokers, and skips for what this machine cannot run."""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import itertools
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import typer.main
import typer.testing
from hypothesis import settings

from broker import address
from broker.address import LOOPBACK, port_is_free
from broker.embedded import EmbeddedBroker
from broker.mosquitto import INSTALL_HINT, MosquittoBroker, find_mosquitto
from edgefed.config.values.address import Address

settings.register_profile("suite", max_examples=30, deadline=None, derandomize=True, database=None)
settings.load_profile("suite")
"""The same examples each time: a failure is one of the change at hand. Few tests need more."""

typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]
"""Commands that run in the tests' process share one tree, whose making takes longer than most."""


FIRST_PORT, OWN_PORTS = 14_000, 3_000
"""Ports below those of outgoing connections, and how many each process of the tests has."""

_given = itertools.count(os.getpid())


def free_port(host: str = LOOPBACK) -> int:
    """Return a port that no other process of the tests takes before a program listens there."""
    own = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 6
    ports = (FIRST_PORT + own * OWN_PORTS + number % OWN_PORTS for number in _given)
    return next(port for port in ports if port_is_free(Address(host, port)))


address.free_port = free_port

HANGS_S = 900.0
"""Seconds of a test after which its process ends; ``timeout`` in ``pyproject.toml`` is shorter."""

LONGEST_NAME = 200
"""Characters of a parameter in the name of a test."""

crashed: list[str] = []
"""Tests in which a process has crashed; the rest of its tests has not run."""

gc.disable()
"""Modules and tests are all kept: a search for cycles while they load would find none."""


def pytest_configure() -> None:
    """Use one thread for each operation, and take Ctrl-C; in programs that tests start, too.

    More threads would take the cores from the other processes that run tests, and sums have the
    same bits only with the same number of threads. Ctrl-C is taken even where it was ignored when
    pytest was started, as ``nohup`` and ``&`` do.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import all tests, each process another part of them first.

    pytest compiles a test module at its first import, and in the same order all processes would do
    so at the same time.
    """
    own = getattr(session.config, "workerinput", None)
    if own is None or session.config.args != session.config.getini("testpaths"):
        return
    root = Path(__file__).parent
    files = sorted(root.rglob("test_*.py"))
    begin = len(files) * int(own["workerid"].removeprefix("gw")) // own["workercount"]
    for file in files[begin:] + files[:begin]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # which the collection tells
            importlib.import_module(".".join(file.relative_to(root.parent).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that need Mosquitto where it is absent, and put some files first.

    After a backward pass of torch, no fork of a process can train, so that files that fork come
    first. Then come long ones: of several processes, those that have no file left wait for the last
    one, which should be short. The order within a folder stays, so that its files share what it
    starts for all of them.
    """
    if hasattr(config, "workerinput"):
        forking, long = (
            {item.path for item in items if item.get_closest_marker(marker) is not None}
            for marker in ("forks", "slow")
        )
        items.sort(key=lambda item: (item.path not in forking, item.path not in long))
    if find_mosquitto() is not None:
        return
    absent = pytest.mark.skip(reason=f"Mosquitto is not installed: {INSTALL_HINT}")
    for item in items:
        if item.get_closest_marker("mosquitto") is not None:
            item.add_marker(absent)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten the names of tests with long parameters, which would fill a report of failures."""
    if isinstance(val, (str, bytes)) and len(val) > LONGEST_NAME:
        start = val[:20] if isinstance(val, str) else val[:20].hex()
        return f"{start}-of-{len(val)}"
    return None


def pytest_collection_finish() -> None:
    """Spare the garbage collector what all tests share: torch's modules, ours, and the tests.

    It searches as rarely as in our command lines, since it took a fifth of the tests' time. What
    is garbage by now stays: a search for it would take each process most of a second.
    """
    gc.freeze()
    gc.set_threshold(10_000)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """End a process that hangs where pytest's own limit of time does not reach: in native code."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """Note the test in which a process crashed."""
    crashed.append(crashitem)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Exit as for an interruption after a crash: a second attempt of one test proves no others."""
    if crashed:
        session.exitstatus = pytest.ExitCode.INTERRUPTED


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoBroker]:
    """A Mosquitto of this test's own; mark the test ``mosquitto``."""
    with MosquittoBroker(Address(LOOPBACK, free_port()), tmp_path / "mosquitto") as broker:
        yield broker


@pytest.fixture
def embedded_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A demo broker of this test's own."""
    pytest.importorskip("amqtt", reason="the demo broker is not installed")
    with EmbeddedBroker(Address(LOOPBACK, free_port()), tmp_path / "embedded") as broker:
        yield broker
