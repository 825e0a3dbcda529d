"""The commands of the getting-started guide, on machines of their own: TLS, and a finished run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks, commands
from tests.docs.test_console_blocks import pattern
from tests.machines import Machine, machines, missing

Rewrite = Callable[[str], str]

PAGE = ROOT / "docs" / "getting-started.md"
BLOCKS = blocks(PAGE)
DEVICES = ("cam-1", "cam-2")
MOST_COMMANDS = 8
SERVICES = {
    "edgefed broker up": "mosquitto, with certificates",
    "edgefed coordinator": "connected to the broker",
    "edgefed-agent run": "connected to the broker",
}
"""Commands that stay, and what they say once they are up."""


def console(example: str) -> list[Block]:
    return [each for each in BLOCKS if each.language == "console" and each.example == example]


def test_each_machine_takes_at_most_eight_commands() -> None:
    for example in ("hub", "device"):
        count = sum(len(commands(block)) for block in console(example))
        assert 0 < count <= MOST_COMMANDS
    assert sum(len(commands(block)) for block in console("hub")) == 8
    assert sum(len(commands(block)) for block in console("device")) == 3


@dataclass
class Guide:
    """The page, as somebody follows it.

    Attributes:
        hub: the machine with the broker.
        devices: by name.
        logs: a folder.
    """

    hub: Machine
    devices: dict[str, Machine]
    logs: Path
    _tokens: dict[str, str] = field(default_factory=dict)

    def follow(self) -> None:
        """Do what the page says, in its order, on every machine."""
        for block in BLOCKS:
            if block.example == "hub":
                self._do(self.hub, block, str)
            elif block.example == "device":
                for name, machine in self.devices.items():
                    self._do(machine, block, self._for(name))
            elif block.language == "toml" and block.file:
                self.hub.run(f"cat > {block.file} <<'END'\n{block.text}END")

    def _for(self, name: str) -> Rewrite:
        def rewrite(text: str) -> str:
            return text.replace("cam-1", name).replace("TOKEN", self._tokens[name])

        return rewrite

    def _do(self, machine: Machine, block: Block, rewrite: Rewrite) -> None:
        for command, shown in commands(block):
            told = self._run(machine, rewrite(command))
            for line in shown:
                expected = pattern(rewrite(line))
                assert re.search(expected, told, re.MULTILINE), f"{line}\nis not in\n{told}"

    def _run(self, machine: Machine, command: str) -> str:
        for service, up in SERVICES.items():
            if command.startswith(service):
                return machine.serve(command, up, self.logs)
        told = machine.run(command)
        if command.startswith("edgefed device invite "):
            self._tokens[command.rsplit(maxsplit=1)[-1]] = told.split()[0]
        return told


@pytest.mark.slow
@pytest.mark.mosquitto
def test_the_guide_leads_to_a_finished_run_over_tls(tmp_path: Path) -> None:
    absent = missing()
    if absent:
        pytest.skip(absent)
    with machines(("hub", *DEVICES), tmp_path / "disk", first=7) as (hub, *others):
        guide = Guide(hub, dict(zip(DEVICES, others, strict=True)), tmp_path)
        program = next(block.text for block in BLOCKS if block.language == "python")
        for machine in others:
            machine.run(f"cat > data.py <<'END'\n{program}END\npython data.py")
        guide.follow()
        assert set(hub.run("ls").split()) == {"first.toml"}
        for machine in others:
            assert "authority.pem" in machine.run("find . -name '*.pem'")
            assert machine.run("find . -path '*authority/*'") == ""
            refused = "! edgefed --insecure --broker mqtt://192.0.2.7:8883 broker check"
            machine.run(refused)
