"""``edgefed-agent``: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from broker.mosquitto import MosquittoBroker
from device_agent.commands.cli import app
from device_agent.reports.status_file import read_status_file
from edgefed.config.values.address import parse_address
from edgefed.errors import UnknownNameError, UsageError
from tests.agent.agent_harness import start_agent, write_data
from tests.processes import outcome, start_module
from tests.support.generated_images import write_pictures

NOWHERE = f"mqtt://{LOOPBACK}:{free_port()}"


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's settings, and a state folder of the test's own."""
    for name in [name for name in os.environ if name.startswith("EDGEFED_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EDGEFED_NO_CONFIG", "1")
    monkeypatch.setenv("EDGEFED_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_data(tmp_path / "data.npz")


def invoke(*arguments: str) -> tuple[int, str, str]:
    told = CliRunner().invoke(app, list(arguments))
    return told.exit_code, told.stdout, told.stderr


def save(path: Path, **arrays: object) -> None:
    np.savez(path, **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("missing", "data.missing", "missing.npz does not exist."),
        ("damaged", "data.unreadable", "damaged.npz cannot be read as an NPZ file"),
        ("nan", "data.invalid", "has an input that is not a finite number, in sample 1."),
    ],
)
def test_data_that_cannot_be_trained_on_is_one_clear_line(
    tmp_path: Path, data: Path, name: str, code: str, words: str
) -> None:
    save(tmp_path / "nan.npz", x=np.array([[1.0], [np.nan]], np.float32), y=np.zeros(2, np.int64))
    (tmp_path / "damaged.npz").write_bytes(data.read_bytes()[:200])
    arguments = ("--broker", NOWHERE, "--name", "board", "--data", f"npz:{name}.npz")
    exit_code, out, err = invoke("run", *arguments)
    # A service that ends with 2 is not started again: what is not there, only a person can mend.
    expected = 2 if code == "data.missing" else 1
    assert (exit_code, out) == (expected, "")
    errors = [line for line in err.splitlines() if line.startswith("edgefed: error: ")]
    assert len(errors) == 1
    assert words in errors[0]
    assert errors[0].endswith(f"  [{code}]")
    assert "pickle" not in err
    assert invoke("data", "--data", f"npz:{name}.npz", "--json")[0] == expected


def test_settings_that_are_not_there_end_it_with_2(tmp_path: Path) -> None:
    code, out, err = invoke("run", "--config", str(tmp_path / "none.toml"))
    assert (code, out) == (2, "")
    assert "[recipe.missing]" in err


@pytest.mark.parametrize("source", ["nzp:data.npz", "folder:none"])
def test_a_wrong_source_ends_it_with_2(source: str) -> None:
    assert invoke("run", "--broker", NOWHERE, "--name", "board", "--data", source)[0] == 2


@pytest.mark.parametrize("program", ["agent", "coordinator"])
def test_the_services_are_not_started_again_after_2(program: str) -> None:
    unit = Path(__file__).parents[2] / "deploy" / f"edgefed-{program}.service"
    lines = unit.read_text(encoding="utf-8").splitlines()
    assert {"Restart=always", f"RestartPreventExitStatus={UsageError.exit_code}"} <= set(lines)


def test_a_name_in_a_file_is_not_empty(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('name = ""\n')
    code, out, err = invoke("run", "--config", str(file))
    assert (code, out) == (2, "")
    assert "name: must be 1 to 64 lower-case letters" in err


def test_without_data_it_says_how_to_name_some() -> None:
    code, out, err = invoke("run", "--broker", NOWHERE, "--name", "board")
    assert (code, out) == (2, "")
    assert err.splitlines()[-2:] == [
        "edgefed: error: This device has no data to train on.  [data.unset]",
        "  try: name it with --data npz:FILE or --data folder:FOLDER",
    ]


TORCH_FREE = """
import sys
from typer.testing import CliRunner
from device_agent.commands.cli import app
from device_agent.reports.status_file import read_status_file
told = CliRunner().invoke(app, sys.argv[1:])
print(told.exit_code, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("source", "code"), [("", 2), ("npz:missing.npz", 2), ("folder:missing", 2), ("nzp:x", 2)]
)
def test_what_is_wrong_with_its_data_is_told_before_torch_is_loaded(source: str, code: int) -> None:
    words = ("run", "--broker", NOWHERE, "--name", "board", "--data", source)
    told = subprocess.run(
        [sys.executable, "-c", TORCH_FREE, *words], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == [str(code), "False"]


def test_run_and_doctor_print_what_the_owner_should_know(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", ["ants", "bees"])
    (folder / "ants" / "bad.png").write_bytes(b"hello")
    warning = f"1 of 25 image files in {folder} cannot be read and were skipped"
    words = ("--data", f"folder:{folder}", "--broker", NOWHERE)
    code, out, _ = invoke("doctor", *words, "--json")
    findings = [(each["state"], each["text"]) for each in json.loads(out) if each["name"] == "data"]
    assert code == 8  # there is no broker
    assert findings[0][0] == "good"
    assert findings[1][0] == "warning"
    assert findings[1][1].startswith(warning)
    agent = start_module("device_agent.commands.cli", "run", *words, "--name", "board")
    try:
        assert agent.stderr is not None
        assert agent.stderr.readline().startswith("agent board of fleet")
        assert f" WARNING {warning}" in agent.stderr.readline()
        agent.send_signal(signal.SIGTERM)
    finally:
        agent.kill()
        outcome(agent)


def test_data_shows_the_names_of_labels(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "pictures", ["bees", "ants"], 4)
    _, out, _ = invoke("data", "--data", f"folder:{folder}", "--holdout", "0")
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["label", "0", "4", "ants"],
        ["label", "1", "4", "bees"],
    ]


def test_a_wrong_name_is_refused() -> None:
    code, out, err = invoke("run", "--name", "A board", "--data", "npz:x.npz")
    assert (code, out) == (2, "")
    assert err.startswith("edgefed: error: --name: must be 1 to 64 lower-case letters")


def test_data_shows_samples_and_labels(data: Path) -> None:
    code, out, err = invoke("data", "--data", f"npz:{data}", "--holdout", "0.25")
    assert (code, err) == (0, "")
    shown = {line[:8].strip(): line[8:].strip() for line in out.splitlines()}
    assert shown["samples"] == "30 to train on, 10 held out"
    assert (shown["inputs"], shown["classes"]) == ("1x4x4", "3")
    code, out, err = invoke("data", "--data", f"npz:{data}", "--holdout", "0", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "data": f"npz:{data}",
        "samples": 40,
        "held_out": 0,
        "shape": [1, 4, 4],
        "classes": 3,
        "class_names": [],
        "labels": [14, 13, 13],
        "columns": {},
        "warnings": [],
        "ignored": {},
        "ignored_files": {},
    }


def test_data_shows_columns(tmp_path: Path) -> None:
    arrays = {"x": np.zeros((4, 3), np.float32), "y": np.arange(4), "column/site": np.arange(4)}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    source = f"npz:{tmp_path / 'a.npz'}"
    assert "column site  4 categories" in invoke("data", "--data", source)[1]
    assert json.loads(invoke("data", "--data", source, "--json")[1])["columns"] == {"site": 4}


def test_doctor_names_what_is_bad_and_how_to_mend_it(data: Path) -> None:
    code, out, err = invoke("doctor", "--broker", NOWHERE, "--data", f"npz:{data}")
    assert code == 8
    marks = {line.split()[1]: line.split()[0] for line in out.splitlines()}
    assert marks["broker"] == "✗"
    assert {marks[name] for name in ("python", "plug-ins", "board", "data")} == {"✓"}
    assert "fix: start one with: edgefed broker up" in out
    assert err.startswith("edgefed: error: 1 of 8 checks found problems: broker.  [doctor]")


@pytest.mark.mosquitto
def test_doctor_is_content_when_all_is_well(data: Path, mosquitto: MosquittoBroker) -> None:
    arguments = ("--broker", str(mosquitto.address), "--data", f"npz:{data}", "--json")
    code, out, err = invoke("doctor", *arguments)
    findings = {each["name"]: each["state"] for each in json.loads(out)}
    assert findings.pop("disk") in ("good", "warning")
    assert findings.pop("kernels") in ("good", "warning")
    assert findings.pop("torch") in ("good", "warning")
    assert set(findings.values()) == {"good"}
    assert (code, err) == (0, "")


def test_a_status_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    for text in ("", "[" * 100_000, "5", "null"):
        (tmp_path / "status.json").write_text(text)
        with pytest.raises(UnknownNameError):
            read_status_file(tmp_path, "board")


def test_status_of_an_agent_that_never_ran_is_unknown() -> None:
    code, out, err = invoke("status", "--name", "board", "--json")
    assert (code, out) == (5, "")
    assert json.loads(err)["error"]["code"] == "agent.unknown"


def test_without_a_broker_it_says_so_once_and_keeps_trying(tmp_path: Path, data: Path) -> None:
    agent = start_agent(parse_address(NOWHERE), tmp_path / "state", data, "board")
    try:
        assert agent.stderr is not None
        lines = [agent.stderr.readline() for _ in range(2)]
        assert (
            f"No MQTT broker at {NOWHERE}: Connection refused; trying again  [broker.un" in lines[1]
        )
        code, out, _ = invoke("status", "--fleet", "stage", "--name", "board", "--json")
        notice = json.loads(out)
        assert (code, notice["running"], notice["connected"]) == (0, True, False)
        agent.send_signal(signal.SIGTERM)
        assert outcome(agent) == (0, "", "")
    finally:
        agent.kill()


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from device_agent.commands.cli import app\n"
        "told = CliRunner().invoke(app, ['run', '--help'])\n"
        "assert told.exit_code == 0 and '--data' in told.stdout, told.output\n"
        "print(sorted({'torch', 'paho', 'numpy', 'psutil'} & set(sys.modules)))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "[]"
