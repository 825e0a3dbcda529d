"""``edgefed report`` packs what a bug report needs, and none of the secrets planted here."""

from __future__ import annotations

import gzip
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from broker.address import LOOPBACK, free_port
from edgefed.cli.support.redaction import REMOVED, Redactor
from tests.base.test_files import files_up_to
from tests.cli.commands import TINY, edgefed, recipe_file
from tests.processes import clean_environment
from tests.programs.forked_programs import ended

LOGIN, PASSWORD = "plantuser", "Pl4nted%2FPassw0rd"
PLAIN_PASSWORD = "Pl4nted/Passw0rd"
API_KEY = "plantedapikey42"
TOKEN = "aeaqcaibaeaqcaibaeaqcaibaeaqcaibplantedtokenaeaqcaibaeaq2"
KEY_LINES = ("MIGHAgEAMBMGByplantedqGSM49", "AwEHBG0wawIB")
PEM = "\n".join(("-----BEGIN PRIVATE KEY-----", *KEY_LINES, "-----END PRIVATE KEY-----"))
BEARER = "planted.jwt.value"
FIELD = "pl-7"
TOPIC, PAGER = "plantedtopic", "planted-pager"
SECRETS = (LOGIN, PASSWORD, PLAIN_PASSWORD, API_KEY, TOKEN, *KEY_LINES, BEARER, FIELD)
ALERT_SECRETS = (TOPIC, PAGER)
NAMES = (
    *("jetson-hall-7", "line-3-camera", "10.20.30.40", "broker.plant.example", "annaplant"),
    *("camera-of-old", "agent-of-mine"),
)


def parts(file: Path) -> dict[str, str]:
    """Return the texts of a report by name, without its folder."""
    with tarfile.open(file) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        found = {}
        for member in members:
            content = archive.extractfile(member)
            assert content is not None
            found[member.name.partition("/")[2]] = content.read().decode()
    return found


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A state folder and an environment full of secrets and names."""
    state = tmp_path / "state"
    run = state / "simulations" / "runs" / "r-0001-abcd"
    run.mkdir(parents=True)
    log = f"could not read https://{LOGIN}:{PASSWORD}@plant.example/x"
    events = [
        {"time": "", "kind": "roster", "devices": ["jetson-hall-7"]},
        {"time": "", "kind": "device", "device": "line-3-camera", "join_token": [FIELD]},
        {"time": "", "kind": "note", "text": f"{log}\n{PEM}\npassword={PLAIN_PASSWORD}"},
        {"time": "", "kind": "order", "by": "operator.annaplant", "about": "jetson-hall-7"},
        {"time": "", "kind": "note", "text": f"jetson-hall-7 at 10.20.30.40: Bearer {BEARER}"},
    ]
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    (run / "recipe.toml").write_text(f'name = "tiny"\n# {TOKEN}\n')
    (run / "model.safetensors").write_bytes(b"planted weights")
    older = state / "coordinator/plant/runs/r-0000-abcd"
    older.mkdir(parents=True)
    joined = {"time": "", "kind": "device", "device": "camera-of-old", "joined": True}
    (older / "events.jsonl").write_text(f"{json.dumps(joined)}\n")
    os.utime(older, (1, 1))
    (state / "agents/plant/agent-of-mine").mkdir(parents=True)
    (state / "fleet").mkdir()
    (state / "fleet" / "operator.key").write_text(PEM)
    (state / "logs").mkdir()
    lines = [f"line {number}" for number in range(700)]
    told = [
        f"api_key: {API_KEY}",
        "annaplant logged in",
        "camera-of-old and agent-of-mine connected",
        f"enroll {TOKEN}",
        PEM,
        f"host {socket.gethostname()}",
        log,
        f"posted to https://ntfy.example/{TOPIC}",
    ]
    (state / "logs" / "coordinator.log").write_text("\n".join([*lines, *told]))
    settings = tmp_path / "edgefed.toml"
    settings.write_text(
        f'broker = "mqtt://{LOGIN}:{PASSWORD}@broker.plant.example:{free_port()}"\n'
        "insecure = true\n"
        f'[alerts]\nwebhook = "https://ntfy.example/{TOPIC}"\n'
        f'command = ["/usr/bin/notify", "--to", "{PAGER}"]\n'
    )
    environment = {
        **clean_environment(),
        "EDGEFED_STATE": str(state),
        "EDGEFED_CONFIG": str(settings),
        "PLANT_API_KEY": API_KEY,
        "HOME": str(tmp_path),
    }
    environment.pop("EDGEFED_NO_CONFIG", None)
    return state, environment


def reported(environment: dict[str, str], file: Path, *words: str) -> dict[str, str]:
    """Write a report in a process of its own, and return its parts."""
    done = ended(["edgefed.cli.main", "report", "--output", str(file), *words], environment)
    assert done.returncode == 0, done.stderr
    return parts(file)


def test_no_planted_secret_is_in_the_bytes(
    planted: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    _, environment = planted
    for words in ((), ("--with-names",)):
        file = tmp_path / f"{len(words)}.tar.gz"
        found = reported(environment, file, *words)
        plain = gzip.decompress(file.read_bytes()).decode(errors="replace")
        assert [secret for secret in (*SECRETS, *ALERT_SECRETS) if secret in plain] == []
        assert "planted weights" not in plain and "BEGIN" not in plain
        assert (socket.gethostname() in plain) == bool(words)
        assert [name for name in NAMES if name in plain] == (list(NAMES) if words else [])
        assert str(tmp_path) not in found["logs/01.txt"]
        assert REMOVED in found["newest-run/events.jsonl"]
        if not words:
            one_name_has_one_pseudonym(found["newest-run/events.jsonl"])


def one_name_has_one_pseudonym(text: str) -> None:
    events = [json.loads(line) for line in text.splitlines()]
    assert events[0]["devices"] == ["DEVICE-3"]
    assert events[1]["device"] == "DEVICE-4"
    assert events[3]["about"] == "DEVICE-3"
    assert events[4]["text"] == f"DEVICE-3 at ADDRESS-1: {REMOVED}"


def test_a_report_has_versions_checks_settings_and_the_last_lines_of_logs(
    planted: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    found = reported(planted[1], tmp_path / "report.tar.gz", "--lines", "20")
    assert "torch" in json.loads(found["versions.json"])
    assert json.loads(found["platform.json"])["cores"] == os.cpu_count()
    settings = json.loads(found["settings.json"])
    assert settings["insecure"]["value"] is True
    assert settings["broker"]["value"].startswith(f"mqtt://{REMOVED}@HOST-")
    assert settings["alerts.webhook"]["value"] == "https://ntfy.example/…"
    assert settings["alerts.command"]["value"] == ["/usr/bin/notify", REMOVED, REMOVED]
    checks = {each["name"]: each["state"] for each in json.loads(found["doctor.json"])}
    assert (checks["python"], checks["broker"]) == ("good", "bad")
    log = found["logs/01.txt"]
    assert "line 699" in log and "line 600\n" not in log
    assert "EDGEFED_CONFIG" in json.loads(found["environment.json"])


def test_a_real_run_is_listed_with_its_events(tmp_path: Path) -> None:
    recipe, state = recipe_file(tmp_path, TINY), tmp_path / "state"
    run = edgefed("--quiet", "sim", "run", recipe, "--json", state=state).json["run"]
    nowhere = f"mqtt://{LOOPBACK}:{free_port()}"
    file = tmp_path / "bug.tar.gz"
    told = edgefed("--broker", nowhere, "report", "--output", file, "--json", state=state)
    assert told.code == 0 and told.err == ""
    found = parts(file)
    assert set(told.json["parts"]) == set(found)
    assert told.json["file"] == str(file)
    assert json.loads(found["runs.json"])[0]["run"] == run
    kinds = {json.loads(line)["kind"] for line in found["newest-run/events.jsonl"].splitlines()}
    assert {"run", "round", "scored"} <= kinds
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "bug.tar.gz"
    file.write_text("mine")
    told = edgefed("report", "--output", file, state=tmp_path)
    told.failed(2, "report.exists", str(file))
    assert file.read_text() == "mine"


def test_broken_settings_and_logs_are_part_of_the_report(tmp_path: Path) -> None:
    settings = tmp_path / "edgefed.toml"
    settings.write_text("flet = 3\n")
    file = tmp_path / "bug.tar.gz"
    lost, pipe = tmp_path / "lost.log", tmp_path / "pipe.log"
    os.mkfifo(pipe)
    words = ("--config", settings, "report", "--log", lost, "--log", pipe, "--output", file)
    assert edgefed(*words, state=tmp_path / "state").code == 0
    found = parts(file)
    assert json.loads(found["settings.json"])["error"]["code"] == "recipe.unknown_key"
    assert "cannot be read: No such file" in found["logs/01.txt"]
    assert "cannot be read: not a file" in found["logs/02.txt"]


def test_a_disk_that_does_not_take_it_is_one_line(tmp_path: Path) -> None:
    with files_up_to(100):
        told = edgefed("report", "--output", tmp_path / "b.tar.gz", state=tmp_path / "state")
    told.failed(1, "storage.limit")
    assert list(tmp_path.glob("*.gz")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mqtt://anna:secret@h:1883", f"mqtt://{REMOVED}@h:1883"),
        ("Authorization: Bearer abcdefgh12", f"Authorization: {REMOVED}"),
        ('password = "two words"', f"password = {REMOVED}"),
        ("EDGEFED_TOKEN=x1", f"EDGEFED_TOKEN={REMOVED}"),
        ("private_key: 'k'", f"private_key: {REMOVED}"),
        ("-----BEGIN CERTIFICATE-----\nMIIB", REMOVED),
        ("from 192.0.2.7:1883 and 127.0.0.1", "from ADDRESS-1:1883 and 127.0.0.1"),
        ("fe80::1 and 2001:db8:0:0:1:2:3:4", "ADDRESS-1 and ADDRESS-2"),
        ("at 05:29:20 run r-0001-8e27 of 3.11.7", "at 05:29:20 run r-0001-8e27 of 3.11.7"),
        ("cam-1 cam-10 webcam-1", "DEVICE-1 cam-10 webcam-1"),
    ],
)
def test_what_is_redacted_in_a_text(text: str, expected: str) -> None:
    assert Redactor(names={"DEVICE": ["cam-1"]}).text(text) == expected
