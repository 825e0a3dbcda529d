from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from broker.child_process import ChildProcess, wait_until_accepting
from edgefed.config.values.address import Address
from edgefed.errors import UnreachableError
from tests.broker.clients import is_gone, until

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('deaf', flush=True); time.sleep(3600)"
)


def child(code: str, folder: Path) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", code], folder=folder, log=folder / "log")


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = child(STUBBORN, tmp_path)
    assert until(lambda: deaf.said() == "deaf")
    deaf.stop(0.2)
    assert not deaf.is_running()
    assert is_gone(deaf.pid)


def test_what_an_earlier_one_said_is_not_repeated(tmp_path: Path) -> None:
    for word in ("first", "second"):
        one = child(f"print({word!r})", tmp_path)
        assert until(lambda one=one: not one.is_running())  # type: ignore[misc]
        assert one.said() == word
    assert (tmp_path / "log").read_text().split() == ["first", "second"]


def test_one_that_never_accepts_is_ended(tmp_path: Path) -> None:
    silent = child("import time; time.sleep(3600)", tmp_path)
    with pytest.raises(UnreachableError) as caught:
        wait_until_accepting(silent, Address(LOOPBACK, free_port()), 0.3)
    assert caught.value.code == "broker.start"
    assert not silent.is_running()


def test_one_that_opens_its_database_for_long_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    slow = child(
        "import pathlib, socket, time\n"
        "while not pathlib.Path('told').exists(): time.sleep(0.02)\n"
        f"kept = socket.create_server(('{LOOPBACK}', {port})); time.sleep(3600)",
        tmp_path,
    )
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        (tmp_path / "told").touch()

    try:
        wait_until_accepting(slow, Address(LOOPBACK, port), 0.1, opening=600, tell=tell)
        assert [line.endswith("up to 10 min") for line in lines] == [True]
    finally:
        slow.stop()


def test_one_that_logs_an_error_is_not_waited_for(tmp_path: Path) -> None:
    broken = child("import time; print('Error: x', flush=True); time.sleep(3600)", tmp_path)
    assert until(lambda: broken.said() != "")
    with pytest.raises(UnreachableError, match="Error: x"):
        wait_until_accepting(broken, Address(LOOPBACK, free_port()), 0.1, opening=3600)
    assert not broken.is_running()


def test_ctrl_c_in_the_terminal_does_not_reach_it(tmp_path: Path) -> None:
    sleeper = child("import time; time.sleep(3600)", tmp_path)
    try:
        assert os.getsid(sleeper.pid) == sleeper.pid
    finally:
        sleeper.stop()
