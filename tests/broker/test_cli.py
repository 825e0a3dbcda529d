from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port, port_is_free
from broker.configuration import configuration
from broker.embedded import EmbeddedBroker
from broker.mosquitto import MosquittoBroker
from edgefed.cli.fleet.broker import app
from edgefed.config.values.address import Address
from tests.broker.clients import PATIENCE, connected, is_gone, until
from tests.broker.servers import USER, running

PROGRAM = [sys.executable, "-W", "error", "-c", "from edgefed.cli.fleet.broker import app; app()"]


@contextmanager
def up(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``broker up`` as a process, without anybody's settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EDGEFED_")}
    environment = {**kept, "EDGEFED_NO_CONFIG": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [*PROGRAM, "up", "--folder", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@pytest.mark.mosquitto
def test_up_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    with up(tmp_path / "broker", "--port", str(address.port)) as process:
        assert first_line(process) == f"{address}  mosquitto"
        with connected(address) as client:
            assert client.answer == "Success"
        process.send_signal(signal.SIGINT)
        rest, talk = process.communicate(timeout=PATIENCE)
    said = "edgefed: error: Interrupted.  [interrupted]\n"
    assert (process.returncode, rest, talk) == (130, "", said)
    assert port_is_free(address)


def test_up_can_run_the_demo_broker_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("amqtt")
    port = free_port()
    with up(tmp_path, "--port", str(port), "--kind", "embedded", "--json") as process:
        said = json.loads(first_line(process))
        process.terminate()
        _, talk = process.communicate(timeout=PATIENCE)
    assert said["address"] == f"mqtt://{LOOPBACK}:{port}"
    assert said["kind"] == "embedded"
    assert is_gone(said["pid"])
    assert "demo broker" in talk
    assert process.returncode == 0


def test_up_ends_with_an_error_when_its_broker_ends(tmp_path: Path) -> None:
    pytest.importorskip("amqtt")
    arguments = ("--port", str(free_port()), "--kind", "embedded", "--json")
    with up(tmp_path, *arguments) as process:
        os.kill(json.loads(first_line(process))["pid"], signal.SIGKILL)
        assert until(lambda: process.poll() is not None)
        assert process.stderr is not None
        talk = process.stderr.read()
    assert process.returncode == 3
    assert "broker.ended" in talk


def invoke(*arguments: str, **options: object) -> tuple[int, str, str]:
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    result = CliRunner().invoke(app, ["--no-config", *given, *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.mosquitto
def test_a_taken_port_ends_up_with_2(mosquitto: MosquittoBroker, tmp_path: Path) -> None:
    code, out, err = invoke("up", broker=str(mosquitto.address), state=tmp_path)
    assert (code, out) == (2, "")
    assert "broker.port_in_use" in err
    assert str(mosquitto.address.port) in err


def test_up_serves_no_other_machine_with_the_demo_broker(tmp_path: Path) -> None:
    other = ("up", "--bind", "0.0.0.0", "--kind", "embedded")
    code, _, err = invoke("--insecure", *other, state=tmp_path)
    assert code == 2
    assert "broker.demo_only" in err
    code, _, err = invoke(*other, state=tmp_path)
    assert code == 4
    assert "broker.insecure" in err


def test_config_prints_what_mosquitto_reads() -> None:
    code, out, err = invoke("config", "--port", "1999", broker="mqtt://192.0.2.7:1884")
    assert (code, err) == (0, "")
    assert out.startswith("listener 1999 192.0.2.7\n")
    assert "allow_anonymous false" in out
    _, out, _ = invoke("config", "--allow-anonymous", broker="mqtt://192.0.2.7:1884")
    assert out.startswith("listener 1884 192.0.2.7\n")
    assert "allow_anonymous true" in out


@pytest.mark.parametrize(
    ("typed", "listener"),
    [
        (["--bind", "127.0.0.1:1999"], "listener 1999 127.0.0.1"),
        (["--bind", "127.0.0.1"], "listener 1884 127.0.0.1"),
        (["--bind", "127.0.0.1", "--port", "1999"], "listener 1999 127.0.0.1"),
        (["--bind", "127.0.0.1:1999", "--port", "1999"], "listener 1999 127.0.0.1"),
        (["--bind", "broker.lan:1999"], "listener 1999 broker.lan"),
        (["--bind", "::1"], "listener 1884 ::1"),
        (["--bind", "[::1]:1999"], "listener 1999 ::1"),
    ],
)
def test_config_listens_where_bind_says(typed: list[str], listener: str) -> None:
    code, out, err = invoke("config", *typed, broker="mqtt://192.0.2.7:1884")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == listener


@pytest.mark.parametrize(
    "bind", ["127.0.0.1:", ":1999", "127.0.0.1:x", "a b", "a\nuser root", "h:0", "h:65536", "[h]:1"]
)
def test_a_wrong_bind_is_refused(bind: str) -> None:
    code, out, err = invoke("config", "--bind", bind)
    assert (code, out) == (2, "")
    assert "broker.bind" in err


def test_two_ports_and_the_port_of_tls_are_refused() -> None:
    code, out, err = invoke("config", "--bind", "127.0.0.1:1999", "--port", "1998")
    assert (code, out) == (2, "")
    assert "two ports" in err
    code, out, err = invoke("config", "--bind", "127.0.0.1:8883")
    assert (code, out) == (2, "")
    assert "broker.tls" in err


def test_config_prints_the_rules_of_the_fleet() -> None:
    code, out, _ = invoke("config", "--acl", fleet="lab")
    assert code == 0
    assert "pattern write edgefed/lab/up/%u/birth" in out
    assert "up/%u/#" not in out


def test_check_reports_a_broker(embedded_broker: EmbeddedBroker) -> None:
    url = str(embedded_broker.address)
    code, out, err = invoke("check", "--json", broker=url)
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["url"] == url
    assert report["ok"] is True
    code, out, _ = invoke("check", broker=url)
    assert code == 0
    assert "last will" in out
    assert "FAILED" not in out


@pytest.mark.mosquitto
def test_check_of_a_broker_that_lacks_something_ends_with_8(tmp_path: Path) -> None:
    address = Address(LOOPBACK, free_port())
    text = configuration(address, user=USER) + "max_packet_size 130000\n"
    with running(text, address, tmp_path):
        code, out, _ = invoke("check", "--timeout", "1", broker=str(address))
    assert code == 8
    assert [line.split()[0] for line in out.splitlines() if "FAILED" in line] == ["largest"]


def test_check_of_no_broker_ends_with_3() -> None:
    code, out, err = invoke("check", "--json", broker=f"mqtt://{LOOPBACK}:{free_port()}")
    assert (code, out) == (3, "")
    assert json.loads(err)["error"]["code"] == "broker.unreachable"


def test_nothing_heavy_is_imported_for_help() -> None:
    program = (
        "import sys, edgefed.cli.fleet.broker; "
        "print(*({'paho', 'amqtt', 'broker', 'torch', 'pydantic'} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == ""
