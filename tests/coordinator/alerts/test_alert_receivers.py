"""The operator's command and webhook: what they are told, and what becomes of bad ones."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgefed.coordinator.alerts.alert_receivers import (
    MOST_WAITING,
    AlertCommand,
    AlertCourier,
    AlertWebhook,
)
from tests.transport.listening import wait_until

TOLD = {
    "alert": "lost_devices", "fleet": "plant-a", "run": "", "text": "2 of 3 devices lost",
    "time": "2026-03-04T14:02:31.000Z", "lost": ["cam-1", "cam-2"], "known": 3,
}  # fmt: skip


def python(code: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-S", "-c", code, *map(str, arguments)]


def test_a_command_reads_the_alert_and_finds_it_in_its_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEFED_BROKER", "mqtt://me:s3cret@127.0.0.1")
    code = (
        "import json, os, sys\n"
        "found = {k: v for k, v in os.environ.items() if k.startswith('EDGEFED_')}\n"
        "json.dump([sys.argv[2], json.load(sys.stdin), found], open(sys.argv[1], 'w'))"
    )
    assert AlertCommand(python(code, tmp_path / "told", "$HOME; ls")).send(TOLD) == ""
    word, body, variables = json.loads((tmp_path / "told").read_text())
    assert (word, body) == ("$HOME; ls", TOLD)
    assert variables == {
        "EDGEFED_ALERT_NAME": "lost_devices",
        "EDGEFED_ALERT_TEXT": "2 of 3 devices lost",
        "EDGEFED_ALERT_FLEET": "plant-a",
        "EDGEFED_ALERT_RUN": "",
        "EDGEFED_ALERT_TIME": "2026-03-04T14:02:31.000Z",
    }


def test_a_command_that_fails_says_so_with_its_last_line() -> None:
    code = "import sys; print('first\\nno route', file=sys.stderr); sys.exit(3)"
    assert AlertCommand(python(code)).send(TOLD) == "ended with status 3: no route"


def test_a_command_that_is_not_there_says_so(tmp_path: Path) -> None:
    told = AlertCommand([str(tmp_path / "absent")]).send(TOLD)
    assert told == "cannot be started: No such file or directory"


def test_a_command_that_takes_too_long_is_stopped_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "open(sys.argv[1] + '.part', 'w').write(str(child.pid))\n"
        "import os; os.rename(sys.argv[1] + '.part', sys.argv[1])\n"
        "time.sleep(60)"
    )
    pid = tmp_path / "pid"
    told: list[str] = []
    command = AlertCommand(python(code, pid), seconds=5)
    thread = threading.Thread(target=lambda: told.append(command.send(TOLD)))
    thread.start()
    wait_until(pid.exists, "the child")
    thread.join()
    assert told == ["was stopped after 5 s"]
    wait_until(lambda: not _is_running(int(pid.read_text())), "the end of the child")


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_text_with_a_nul_is_told_all_the_same(tmp_path: Path) -> None:
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['EDGEFED_ALERT_TEXT'])"
    command = AlertCommand(python(code, tmp_path / "told"))
    assert command.send({**TOLD, "text": "a\0b"}) == ""
    assert (tmp_path / "told").read_text() == "a b"


@contextmanager
def webhook(*answers: int, wait: threading.Event | None = None) -> Iterator[tuple[str, list[Any]]]:
    """A server that gives these answers in turn, the last one for ever, and what it was posted."""
    posted: list[Any] = []
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, self.headers["Content-Type"], json.loads(body)))
            if wait is not None:
                wait.wait(60)
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alert?t=1", posted
    finally:
        if wait is not None:
            wait.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach this machine without a proxy."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


def test_a_webhook_is_posted_the_alert_as_json() -> None:
    with webhook(204) as (address, posted):
        assert AlertWebhook(address).send(TOLD) == ""
    assert posted == [("/alert?t=1", "application/json", TOLD)]


@pytest.mark.parametrize(
    ("answers", "told", "times"),
    [
        ((503, 200), "", 2),
        ((500,), "answered 500", 2),
        ((404,), "answered 404", 1),
        ((302,), "answered 302", 1),
    ],
)
def test_a_webhook_is_posted_again_where_that_may_help(
    answers: tuple[int, ...], told: str, times: int
) -> None:
    with webhook(*answers) as (address, posted):
        assert AlertWebhook(address, retry_after=0.01).send(TOLD) == told
    assert len(posted) == times


def test_a_webhook_that_is_slow_is_given_up() -> None:
    with webhook(200, wait=threading.Event()) as (address, posted):
        told = AlertWebhook(address, seconds=0.2, retry_after=0.01).send(TOLD)
        assert "timed out" in told
        wait_until(lambda: len(posted) == 2, "the second attempt")


def test_a_webhook_where_nobody_listens_says_so() -> None:
    with webhook(200) as (address, _):
        pass
    told = AlertWebhook(address, retry_after=0.01).send(TOLD)
    assert told == "cannot be reached: Connection refused"


class Slow:
    """A receiver that waits until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.told: list[Any] = []

    def send(self, told: Any) -> str:
        self.go.wait(60)
        self.told.append(told["known"])
        return "broke" if told["known"] == 1 else ""

    def close(self) -> None:
        self.go.set()


def test_whoever_gives_an_alert_never_waits_and_too_many_are_left_out() -> None:
    slow, warnings = Slow(), list[str]()
    courier = AlertCourier("the command", slow, warnings.append)
    for number in range(MOST_WAITING + 5):
        courier.give({"known": number})
    assert slow.told == []
    assert 4 <= len(warnings) <= 5
    assert "too many wait" in warnings[0]
    slow.go.set()
    courier.stop()
    assert slow.told[:3] == [0, 1, 2]
    assert "the command of an alert broke" in warnings


def test_alerts_that_wait_are_still_told_at_the_end() -> None:
    slow = Slow()
    courier = AlertCourier("the webhook", slow, lambda text: None)
    courier.give({"known": 7})
    slow.go.set()
    courier.stop()
    assert slow.told == [7]


def test_a_receiver_with_a_bug_costs_one_alert() -> None:
    slow, warnings = Slow(), list[str]()
    slow.go.set()
    courier = AlertCourier("the command", slow, warnings.append)
    courier.give({})
    courier.give({"known": 2})
    courier.stop()
    assert slow.told == [2]
    assert warnings == ["the command of an alert failed: KeyError: 'known'"]
