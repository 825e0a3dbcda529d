"""The rounds of ``simulate`` as a bar: in a notebook by itself, on a terminal if asked for."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import edgefed
from edgefed.terminal.notebook_bar import in_notebook
from tests.api.small import TEST, TRAIN, arrays, recipe
from tests.base.test_progress_bar import Terminal
from tests.processes import PATIENCE, clean_environment

DATA: dict[str, Any] = {"data": arrays(TRAIN), "test": arrays(TEST)}

SETUP = """
import edgefed
from tests.api.small import TEST, TRAIN, arrays, recipe
def simulate(**more):
    edgefed.simulate(recipe(), data=arrays(TRAIN), test=arrays(TEST), **more)
"""


@pytest.mark.parametrize(("progress", "is_shown"), [(None, False), (True, True)])
def test_a_terminal_has_a_bar_if_it_is_asked_for(
    progress: bool | None, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    edgefed.simulate(recipe(), **DATA, progress=progress)
    shown = terminal.getvalue()
    assert (" 0/2  ? s left" in shown, " 2/2  accuracy " in shown) == (is_shown, is_shown)
    assert terminal.line == ""
    assert not in_notebook()


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """The kernel of a notebook."""
    pytest.importorskip("ipykernel")
    from jupyter_client.manager import start_new_kernel

    folders = os.pathsep.join(sys.path)
    manager, client = start_new_kernel(env={**clean_environment(), "PYTHONPATH": folders})
    client.execute_interactive(SETUP, timeout=PATIENCE, output_hook=lambda message: None)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def outputs(kernel: Any, code: str) -> list[tuple[str, dict[str, Any]]]:
    """Return what a cell shows: kinds of outputs, and their contents."""
    shown: list[tuple[str, dict[str, Any]]] = []

    def take(message: Any) -> None:
        if message["msg_type"] not in ("status", "execute_input"):
            shown.append((message["msg_type"], message["content"]))

    kernel.execute_interactive(code, timeout=PATIENCE, output_hook=take)
    return shown


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_notebook_has_one_bar_that_is_drawn_anew(kernel: Any) -> None:
    (first, begun), *others = outputs(kernel, "simulate()")
    assert first == "display_data"
    assert {kind for kind, _ in others} == {"update_display_data"}
    place = begun["transient"]["display_id"]
    assert {content["transient"]["display_id"] for _, content in others} == {place}
    assert re.search(r"^rounds   0%\| {20}\| 0/2 \[\d.* < \? s\]$", begun["data"]["text/plain"])
    last = others[-1][1]["data"]
    assert re.search(r"^rounds 100%\|█{20}\| 2/2 \[.* m?s, accuracy 0\.\d+", last["text/plain"])
    assert '<progress value="2" max="2"></progress> 2/2 [' in last["text/html"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_notebook_has_a_bar_of_a_sweep(kernel: Any, tmp_path: Path) -> None:
    source = {"recipe": recipe(data={"name": "tests.api.own_classes:read"}), "seeds": [1, 2]}
    shown = outputs(kernel, f"_ = edgefed.sweep({source!r}, out={str(tmp_path)!r})")
    assert shown[0][0] == "display_data"
    assert {kind for kind, _ in shown[1:]} == {"update_display_data"}
    last = shown[-1][1]["data"]["text/plain"]
    assert re.search(r"^runs 100%\|█{20}\| 2/2 \[.*run 2 of 2: recipe, seed 2\]$", last), last


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_notebook_without_progress_shows_nothing(kernel: Any) -> None:
    assert outputs(kernel, "simulate(progress=False)") == []
