"""Write the systemd units of this folder, as ``service install`` writes them.

python deploy/make_units.py
"""

from __future__ import annotations

from pathlib import Path

from edgefed.process.service_unit import ServiceKind, ServiceUnit

COMMANDS: dict[ServiceKind, str] = {
    "agent": "edgefed-agent run",
    "coordinator": "edgefed coordinator",
    "broker": "edgefed broker up",
}

HEAD = """\
# Written by deploy/make_units.py. On a machine with systemd, this command writes such a unit,
# checks what would keep it from starting, and starts it: {program} service install{words}
"""


def unit(kind: ServiceKind) -> str:
    """Return the unit of a service with the programs in /opt/edgefed/bin."""
    words = tuple(f"/opt/edgefed/bin/{COMMANDS[kind]}".split())
    program = COMMANDS[kind].split()[0]
    head = HEAD.format(program=program, words="" if kind == "agent" else f" {kind}")
    return head + ServiceUnit(kind, words, f"edgefed-{kind}.service").text()


if __name__ == "__main__":
    for name in COMMANDS:
        Path(__file__).with_name(f"edgefed-{name}.service").write_text(unit(name), "utf-8")
