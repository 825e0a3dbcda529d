"""The compiled kernels: found, disabled by a setting, and replaced if they cannot be used."""

from __future__ import annotations

import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import torch

from edgefed.learn.networks.blocks import ConvPoolReLU
from edgefed.native.library import ABI, CALLS, find, load, native

SOURCE = Path(__file__).resolve().parents[2] / "edgefed" / "native"


def compile_to(path: Path, source: Path) -> Path:
    """Build a library with this machine's compiler."""
    command = ["cc", "-O1", "-std=gnu11", "-shared", "-fPIC", str(source), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def test_a_library_that_was_not_built_is_done_without(tmp_path: Path) -> None:
    assert find(tmp_path) is None
    assert load(None, {}).library is None
    assert load(None, {}).reason == "not built"


def test_a_corrupt_library_is_done_without(tmp_path: Path) -> None:
    path = tmp_path / f"_kernels{EXTENSION_SUFFIXES[0]}"
    path.write_bytes(b"no library at all")
    assert find(tmp_path) == path
    found = load(path, {})
    assert found.library is None
    assert found.reason.startswith(path.name)


@pytest.mark.parametrize(
    ("code", "reason"),
    [("int edgefed_abi(void) { return 1; }", "undefined symbol"), ("int nothing;", "undefined")],
)
def test_a_library_without_the_functions_is_done_without(
    tmp_path: Path, code: str, reason: str
) -> None:
    source = tmp_path / "other.c"
    source.write_text(code)
    assert reason in load(compile_to(tmp_path / "other.so", source), {}).reason


@pytest.mark.skipif(find(SOURCE) is None, reason="the kernels are not built")
def test_the_built_library_is_used() -> None:
    found = load(find(SOURCE), {})
    if "lacks" not in found.reason:
        assert found.library is not None
        assert found.lanes in (4, 8, 16)


def test_a_library_of_another_version_is_done_without(tmp_path: Path) -> None:
    source = tmp_path / "other.c"
    source.write_text("".join(f"int {name}(void) {{ return {ABI + 1}; }}\n" for name in CALLS))
    assert "another version" in load(compile_to(tmp_path / "other.so", source), {}).reason


@pytest.mark.parametrize("value", ["0", "false", "NO", " off "])
def test_the_variable_turns_it_off(value: str) -> None:
    assert load(find(SOURCE), {"EDGEFED_NATIVE": value}).library is None


def test_without_it_a_process_trains_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFED_NATIVE", "0")
    native.cache_clear()
    try:
        layer = ConvPoolReLU(1, 2, 3)
        torch.autograd.backward(layer(torch.ones(1, 1, 6, 6)).sum())
        assert layer.weight.grad is not None
        assert native().reason == "EDGEFED_NATIVE=0"
    finally:
        native.cache_clear()


def test_the_variable_is_known() -> None:
    from edgefed.config.loading.environment import unknown_variables

    assert unknown_variables({"EDGEFED_NATIVE": "0"}) == []


def test_doctor_says_whether_it_is_in_use() -> None:
    from edgefed.terminal.diagnostics import kernels

    found = kernels()
    assert (found.state == "good") == (native().library is not None)
    assert found.text
