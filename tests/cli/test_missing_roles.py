"""A command whose role is not installed on this machine names the extra that installs it."""

from __future__ import annotations

import importlib
import sys

import pytest
import typer

from edgefed.terminal.console import reported


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("textual", "'edgefed[ui]'"),
        ("segno", "'edgefed[coordinator]'"),
        ("torchvision", "torch torchvision"),  # from a Debian package
    ],
)
def test_a_missing_package_is_told_with_its_extra(
    module: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(typer.Exit) as caught, reported():
        importlib.import_module(module)
    assert caught.value.exit_code == 2
    error = capsys.readouterr().err
    assert "[role.missing]" in error and f"pip install {words}" in error


def test_another_missing_module_is_a_defect() -> None:
    with pytest.raises(ModuleNotFoundError), reported():
        importlib.import_module("edgefed_without_such_a_module")
