"""Where browsers find the dashboard, and what stops it before it is served."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.programs.web_dashboard import DEFAULT_PORT, listening_socket, url_of, web_address
from edgefed.cli.programs.web_server import refusal
from edgefed.config.values.address import Address
from edgefed.errors import UsageError
from tests.cli.commands import Told, edgefed
from tests.processes import clean_environment
from tests.tui.recorded_fleet import record

ABSENT = """
import sys
sys.modules["textual_serve"] = None
from edgefed.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "events.jsonl")


def web(recording: Path, *words: str) -> Told:
    return edgefed("ui", "--replay", recording, "--web", *words)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.7", "[::]:8001", "example.org:8001"])
def test_an_address_that_others_reach_is_refused_and_a_tunnel_named(
    recording: Path, bind: str
) -> None:
    port = 8001 if bind.endswith("8001") else 8000
    tunnel = f"ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}"
    web(recording, "--bind", bind).failed(2, "web.bind", f"--bind {bind}:", tunnel)


@pytest.mark.parametrize("bind", ["here:there", "127.0.0.1:70000", "127.0.0.1:0", "a b"])
def test_what_is_no_address_is_refused(recording: Path, bind: str) -> None:
    web(recording, "--bind", bind).failed(2, "web.bind", "HOST:PORT", "127.0.0.1:8001")


def test_two_ports_are_refused(recording: Path) -> None:
    told = web(recording, "--bind", "127.0.0.1:8001", "--port", "8002")
    told.failed(2, "usage", "name two ports")


@pytest.mark.parametrize("port", ["0", "65536", "http"])
def test_a_port_that_there_is_not_is_refused(recording: Path, port: str) -> None:
    web(recording, "--port", port).failed(2, "usage", "--port")


@pytest.mark.parametrize("words", [["--port", "8001"], ["--bind", "127.0.0.1"]], ids=str)
def test_an_address_needs_a_browser(recording: Path, words: list[str]) -> None:
    edgefed("ui", "--replay", recording, *words).failed(2, "usage", "add --web")


def test_the_address_is_that_of_the_options() -> None:
    assert web_address(None, None) == Address(LOOPBACK, DEFAULT_PORT)
    assert web_address(None, 81) == Address(LOOPBACK, 81)
    assert web_address("localhost:81", 81) == Address("localhost", 81)
    assert web_address("127.0.0.2", 81) == Address("127.0.0.2", 81)
    assert url_of(web_address("::1", None)) == "http://[::1]:8000"


def test_a_port_that_is_taken_is_told(recording: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = str(other.getsockname()[1])
        told = web(recording, "--port", port)
    told.failed(2, "web.port_in_use", f"Port {port} on 127.0.0.1", f"sport = :{port}", "--port")


def test_an_address_that_this_machine_lacks_is_told() -> None:
    with pytest.raises(UsageError) as caught:
        listening_socket(Address("192.0.2.7", free_port()))
    assert caught.value.code == "web.bind"
    assert "Cannot assign requested address" in caught.value.message


def test_a_recording_that_there_is_not_is_told_before_it_is_served(tmp_path: Path) -> None:
    web(tmp_path / "none.jsonl").failed(5, "recording.missing")


def test_a_broker_that_does_not_answer_is_told_before_it_is_served() -> None:
    told = edgefed("--broker", f"mqtt://{LOOPBACK}:{free_port()}", "ui", "--web")
    told.failed(3, "broker.unreachable")


def test_without_textual_serve_it_says_what_to_install(recording: Path) -> None:
    words = ["ui", "--replay", str(recording), "--web", "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, *words],
        capture_output=True,
        text=True,
        check=False,
        env=clean_environment(),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "edgefed: error: The package textual-serve is not installed.  [web.missing]",
        "  try: pip install 'edgefed[web]'",
    ]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost:9000", "[::1]:8000", "127.0.0.1", "LOCALHOST"]
)
def test_the_own_pages_of_a_loopback_address_are_answered(host: str) -> None:
    assert refusal(host, None) == ""
    assert refusal(host, f"http://{host}") == ""
    assert "other pages" in refusal(host, f"https://{host}")
    assert "other pages" in refusal(host, f"http://{host}1")


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1@evil.example", "evil.example:127", "192.0.2.7:8000",
             "localhost.evil.example", "127.0.0.1;x", "[::1", "::1", "127.0.0.1:8000\n", "0.0.0.0"]
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    assert "this machine only" in refusal(host, f"http://{host}")
