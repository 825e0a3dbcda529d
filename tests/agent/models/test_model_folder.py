"""The swap of models: a reader sees a whole model after SIGKILL at any moment."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from device_agent.models.model_folder import ModelFolder, require_model
from edgefed.errors import UnknownNameError

A, B, C = "m-aaaaaaaa", "m-bbbbbbbb", "m-cccccccc"

CHANGES = {"open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir"}
"""Audit events of calls that change a folder; all others leave what a reader sees as it is."""


def install(models: ModelFolder, rollout: str) -> None:
    draft = models.draft(f"{rollout}.0")
    data = rollout.encode() * 5000
    (draft / "model.safetensors").write_bytes(data)
    (draft / "model.onnx").write_bytes(data)
    told = {"rollout": rollout, "digest": hashlib.sha256(data).hexdigest()}
    models.install(draft, rollout, told)


def whole(models: ModelFolder, link: str = "current") -> str:
    """Return the rollout of the model that a reader sees, which is whole; empty for none."""
    if not (models.folder / link).is_symlink():
        return ""
    folder = (models.folder / link).resolve(strict=True)
    told: dict[str, Any] = json.loads((folder / "model.json").read_text())
    for name in ("model.safetensors", "model.onnx"):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == told["digest"]
    assert folder.name == told["rollout"]
    return folder.name


def killed(action: Callable[[], object], at: int) -> bool:
    """Do something in a process that kills itself before its n-th change; whether it did."""
    child = os.fork()
    if not child:
        left = at

        def count(event: str, arguments: object) -> None:
            nonlocal left
            left -= event in CHANGES
            if event in CHANGES and left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            sys.addaudithook(count)
            action()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def made(folder: Path, *rollouts: str) -> ModelFolder:
    models = ModelFolder(folder)
    for rollout in rollouts:
        install(models, rollout)
    return models


def points(folder: Path, before: list[str], action: Callable[[ModelFolder], object]) -> int:
    """Kill an action before each of its changes; check what a reader sees, and that it goes on."""
    at = 1
    while True:
        models = made(folder / str(at), *before)
        survived = not killed(partial(action, models), at)
        allowed = {*before[-2:], B} if before else {"", B}
        assert whole(models) in allowed, f"before change {at}"
        whole(models, "previous")
        check_that_it_goes_on(models, before, action)
        if survived:
            return at - 1
        at += 1


def check_that_it_goes_on(
    models: ModelFolder, before: list[str], action: Callable[[ModelFolder], object]
) -> None:
    """Check that the same action, begun again, ends as if nothing had happened."""
    if action is roll_back:
        if (models.folder / "previous").is_symlink():  # else it had ended
            action(models)
        outcome = models.outcome()
        assert outcome is not None
        assert (whole(models), outcome["rollout"]) == (A, B)
        assert not (models.folder / "previous").is_symlink()
        return
    action(models)
    assert (whole(models), whole(models, "previous")) == (B, before[-1] if before else "")
    kept = {path.name for path in models.folder.iterdir() if path.is_dir()}
    assert kept - {"current", "previous"} == {B, *before[-1:]}, "others are deleted"


def roll_back(models: ModelFolder) -> object:
    return models.roll_back("its owner")


def put_b(models: ModelFolder) -> object:
    install(models, B)
    return B


def test_a_model_is_whole_after_a_kill_before_any_change(tmp_path: Path) -> None:
    swept = points(tmp_path / "first", [], put_b)
    swept += points(tmp_path / "third", [C, A], put_b)
    swept += points(tmp_path / "back", [A, B], roll_back)
    assert swept > 40, "it looked before each change"


def test_without_a_previous_model_a_rollback_leaves_none(tmp_path: Path) -> None:
    models = ModelFolder(tmp_path / "models")
    assert models.roll_back("its owner") is None
    with pytest.raises(UnknownNameError):
        require_model(models)
    install(models, A)
    assert require_model(models)["rollout"] == A
    outcome = {"rollout": A, "outcome": "rolled_back", "reason": "its owner"}
    assert models.roll_back("its owner") == outcome
    assert (whole(models), models.outcome()) == ("", outcome)
    install(models, B)
    install(models, C)
    models.roll_back("its owner")
    assert (whole(models), whole(models, "previous")) == (B, "")
