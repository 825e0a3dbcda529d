"""Each console block of README and docs/ does what the page says, with real programs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.address import LOOPBACK
from broker.mosquitto import MosquittoBroker
from tests.docs.pages import PAGES, blocks, commands
from tests.processes import PATIENCE, clean_environment
from tests.programs.forked_programs import ForkedProgram, ended
from tests.programs.launched_programs import scripts

MACHINES = ("hub", "device")
"""Blocks that ``test_two_machines.py`` runs."""

CONSOLE = {page: [each for each in blocks(page) if each.language == "console"] for page in PAGES}
RUN = [
    page
    for page in PAGES
    if any(not each.reason and each.example not in MACHINES for each in CONSOLE[page])
]
SERVICE = re.compile(r"edgefed (coordinator|up|broker up)\b|edgefed-agent run\b")
"""Commands that run until they are ended."""

BASH = shutil.which("bash") or ""

DOWNLOADED = 'weights = "default"'

PREPARED = {
    "tutorial-photos.md": ("cam-1", "cam-2", "cam-3", "new.jpg"),
    "using-a-model.md": ("photos", "new"),
}
"""Files that a page's first Python block makes."""


MODULES = {"edgefed": "edgefed.cli.main", "edgefed-agent": "device_agent.commands.cli"}
SYNTAX = set('|&;<>()$`\\"*?[]#~{}!')
"""Characters that mean something to the shell, outside of quotes."""


def own_words(command: str) -> list[str]:
    """Return the words of a command of ours; none where a shell has more to do than to split it."""
    command = re.sub(r" +# .*", "", command)
    bare = re.sub(r"'[^']*'", "", command)
    program, *words = shlex.split(command)
    if program not in MODULES or SYNTAX & set(bare):
        return []
    return [MODULES[program], *words]


class Shell:
    """Runs the commands of a page in one folder, against one broker.

    Commands of ours are forked: the import of torch would take most of the time. Lines for which a
    shell has more to do than to split them go through bash, and find launchers of our commands.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self._address = f"{LOOPBACK}:{port}"
        programs = folder.with_name(f"{folder.name}-programs")
        programs.mkdir()
        python = Path(sys.executable).parent
        self._environment = {
            **clean_environment(),
            "PATH": f"{scripts(programs)}:{python}:{os.environ['PATH']}",
            "EDGEFED_BROKER": f"mqtt://{self._address}",
            "EDGEFED_STATE": str(folder / "state"),
            "COLUMNS": "200",
        }
        self._services: list[ForkedProgram] = []

    def run(self, command: str) -> str:
        """Run a command, or start it where it is a service, and return what it printed."""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value
            return ""
        if SERVICE.match(command):
            return self._serve(command)
        words = own_words(command)
        done = ended(words, self._environment, self._folder) if words else self._bash(command)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def _bash(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BASH, "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
            check=False,
        )

    def _serve(self, command: str) -> str:
        """Start a service and return what it said until it was up."""
        log = self._folder / f"service-{len(self._services)}.log"
        log.touch()
        words = own_words(command)
        service = ForkedProgram(words, self._environment, log, folder=self._folder)
        self._services.append(service)
        ends = time.monotonic() + PATIENCE
        while "connected" not in log.read_text():
            assert service.poll() is None, f"$ {command}\n{log.read_text()}"
            assert time.monotonic() < ends, f"$ {command}\nis not up:\n{log.read_text()}"
            time.sleep(0.1)
        return log.read_text()

    def stop(self) -> None:
        """End the services, the last one first."""
        for service in reversed(self._services):
            service.terminate()
        for service in self._services:
            service.wait(PATIENCE)


@pytest.fixture
def shell(tmp_path: Path, mosquitto: MosquittoBroker) -> Iterator[Shell]:
    made = Shell(tmp_path, mosquitto.address.port)
    try:
        yield made
    finally:
        made.stop()


def pattern(line: str) -> str:
    """Return what a line that a page shows must look like: any numbers, … for anything."""
    words = [re.sub(r"\d+", r"\\w+", re.escape(word)).replace("…", ".*") for word in line.split()]
    return r"^\s*" + r"\s+".join(words) + r"\s*$"


def untrained(folder: Path) -> Path:
    """Write a file of a network's untrained weights."""
    import torch
    import torchvision

    path = folder / "untrained.pth"
    torch.save(torchvision.models.mobilenet_v3_small().state_dict(), path)
    return path


def prepare(page: Path, folder: Path) -> None:
    """Make the files that the page's blocks use, as the page tells.

    Torchvision's weights would have to be downloaded, so a file of untrained ones replaces them.
    Recipes are run for a few rounds only.
    """
    for block in blocks(page):
        if block.language == "toml" and block.file:
            text = block.text
            if DOWNLOADED in text:
                text = text.replace(DOWNLOADED, f'weights = "{untrained(folder)}"')
            text = re.sub(r"^count = \d+", "count = 3", text, flags=re.MULTILINE)
            (folder / block.file).write_text(text)
    if page.name in PREPARED:
        program = next(block for block in blocks(page) if block.language == "python")
        (folder / "page_program.py").write_text(program.text)
        environment = {**clean_environment(), "PYTHONPATH": str(folder)}
        done = ended(["page_program"], environment, folder)
        assert done.returncode == 0, done.stderr
        assert all((folder / file).exists() for file in PREPARED[page.name])


@pytest.mark.slow
@pytest.mark.mosquitto
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_commands_of_a_page_do_what_it_says(page: Path, shell: Shell, tmp_path: Path) -> None:
    prepare(page, tmp_path)
    for block in CONSOLE[page]:
        if block.reason:
            continue
        for command, shown in commands(block):
            told = shell.run(command)
            for line in shown:
                assert re.search(pattern(line), told, re.MULTILINE), f"{line}\nis not in\n{told}"
            if "--name cam-1" in command:  # "likewise on cam-2"
                shell.run(command.replace("cam-1", "cam-2"))


def test_each_block_has_commands() -> None:
    for page, found in CONSOLE.items():
        for block in found:
            told = commands(block)
            assert told, (page.name, block.line)
            assert all(command.strip() for command, _ in told), (page.name, block.line)


def test_every_mark_stands_right_before_a_console_block() -> None:
    for page in PAGES:
        marks = page.read_text(encoding="utf-8").count("<!-- not run:")
        assert marks == sum(bool(each.reason) for each in CONSOLE[page]), page


@pytest.mark.parametrize(
    ("shown", "told", "fits"),
    [
        ("latency   0.17 ms", "broker x\nlatency 12.5 ms", True),
        ("latency   0.17 ms", "latency unknown", False),
        ("first.toml: no problems", "first.toml: 2 problems", False),
        ("folder  …", "folder a/b c", True),
    ],
)
def test_what_a_page_shows_is_compared(shown: str, told: str, fits: bool) -> None:
    assert bool(re.search(pattern(shown), told, re.MULTILINE)) == fits
