"""Ctrl-C ends a program with its documented exit code, wherever it arrives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest

from broker.foreground import sigterm_as_event
from device_agent.updater import __main__
from device_agent.updater.state import UpdaterSettings
from device_agent.updater.updates import AgentUpdater
from edgefed.process.stop_signals import stop_signals
from tests.processes import clean_environment

PROGRAM = """
import typer
from edgefed.terminal.console import reported, start

app = typer.Typer()


@app.command()
def interrupted() -> None:
    with reported():
        exec("import os, signal; os.kill(os.getpid(), signal.SIGINT); [0 for _ in range(9)]")


start(app)
"""


def test_ctrl_c_inside_executed_source_text_ends_with_our_exit_code(tmp_path: Path) -> None:
    """Importing a module with dataclasses executes source text, at which CPython notes Ctrl-C."""
    (tmp_path / "program_in_exec.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "-m", "program_in_exec"],
        capture_output=True,
        text=True,
        env={**clean_environment(), "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert ended.stderr == "edgefed: error: Interrupted.  [interrupted]\n"
    assert ended.returncode == 130


@pytest.mark.timeout(60)
def test_a_signal_inside_a_lock_that_the_end_takes_does_not_hang() -> None:
    """A handler that took the lock would wait for the code that it has interrupted."""
    event, lock = threading.Event(), threading.Lock()

    def stop() -> None:
        with lock:
            event.set()

    with stop_signals() as signals:
        signals.call(stop)
        with lock:
            signal.raise_signal(signal.SIGTERM)
        assert event.wait(30) and signals.number == signal.SIGTERM
    with sigterm_as_event() as ended:
        with vars(ended)["_cond"]:
            signal.raise_signal(signal.SIGTERM)
        assert ended.wait(30)


@pytest.mark.timeout(60)
def test_an_updater_ends_when_its_signal_comes_inside_its_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = UpdaterSettings(tmp_path, tmp_path, tmp_path, "off", "", "127.0.0.1", 1, ())
    monkeypatch.setattr("sys.argv", ["", json.dumps(asdict(settings), default=str)])

    def run(updater: AgentUpdater) -> int:
        with vars(updater._stop)["_cond"]:
            signal.raise_signal(signal.SIGTERM)
        return 7 if updater._stop.wait(30) else 8

    monkeypatch.setattr(AgentUpdater, "run", run)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    umask = os.umask(0o077)
    try:
        assert __main__.main() == 7
    finally:
        os.umask(umask)
        for number, handler in before.items():
            signal.signal(number, handler)
