"""Both ``doctor`` commands warn of a torch that is newer than the newest tested one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from broker.address import LOOPBACK, free_port
from device_agent.commands.cli import app
from edgefed.terminal.diagnostics import Diagnosis, as_rows, torch_and_accelerator
from edgefed.version import TESTED_TORCH
from tests.cli.commands import edgefed

MAJOR, MINOR = (int(part) for part in TESTED_TORCH.split("."))
NEWER = f"{MAJOR}.{MINOR + 1}.0a0+git1"


def found(monkeypatch: pytest.MonkeyPatch, version: str) -> Diagnosis:
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return torch_and_accelerator(())


def test_a_torch_without_the_gpu_of_its_board_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu = tmp_path / "nvgpu"
    missing = str(tmp_path / "nvidia0")
    assert "although" not in torch_and_accelerator((missing,)).text
    gpu.touch()
    told = torch_and_accelerator((missing, str(gpu)))
    assert (told.state, told.fix) == ("warning", "install the torch that is built for this GPU")
    assert told.text.endswith(f"no CUDA device, although there is {gpu}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert torch_and_accelerator((str(gpu),)).state == "good", "its owner hides it"


@pytest.mark.parametrize(
    "version", [TESTED_TORCH, f"{TESTED_TORCH}.9+cu130", f"{MAJOR}.{MINOR - 1}.0", "2.1.0a0+nv23.6"]
)
def test_versions_up_to_the_tested_one_are_good(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{version} on the CPU; no CUDA device"
    assert found(monkeypatch, version) == Diagnosis("torch", "good", text)


@pytest.mark.parametrize("version", [NEWER, f"{MAJOR}.{MINOR + 1}.1+cpu", f"{MAJOR + 1}.0.0"])
def test_a_newer_version_is_one_line_with_a_warning(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (row,) = as_rows([found(monkeypatch, version)])
    assert row == (
        "!",
        "torch",
        f"{version} on the CPU; no CUDA device; newer than {TESTED_TORCH}, the newest version that"
        f" was tested  fix: if training fails, install torch {TESTED_TORCH}",
    )


def test_both_commands_show_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", NEWER)
    nowhere = f"mqtt://{LOOPBACK}:{free_port()}"
    own = edgefed("--broker", nowhere, "doctor", "--json", state=tmp_path)
    words = ["doctor", "--no-config", "--state", str(tmp_path), "--broker", nowhere, "--json"]
    device = CliRunner().invoke(app, [*words, "--data", f"npz:{tmp_path / 'none.npz'}"])
    for findings, problem in ((own.json, own.err), (json.loads(device.stdout), device.stderr)):
        (line,) = (each for each in findings if each["name"] == "torch")
        assert line["state"] == "warning"
        assert NEWER in line["text"]
        assert "torch" not in problem.partition("problems:")[2]  # a warning fails no check
