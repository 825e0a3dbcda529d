"""``edgefed init``: what it says of the next steps."""

from __future__ import annotations

import socket
from pathlib import Path

from broker.address import LOOPBACK, free_ports
from tests.cli.commands import edgefed


def test_the_next_commands_work_as_they_are_and_a_taken_port_is_named(tmp_path: Path) -> None:
    port = free_ports()
    with socket.socket() as other:
        other.bind((LOOPBACK, port + 2))
        other.listen()
        made = edgefed("--fleet", "hall-2", "--state", tmp_path, "init", "--port", str(port))
    same = f"edgefed --fleet hall-2 --state {tmp_path}"
    for command in ("broker up", "coordinator", "device invite NAME"):
        assert f"\n  {same} {command}\n" in made.err
    move = f"{same} broker address --port"
    assert f"! Port {port + 2} on localhost is in use by another program." in made.err
    assert f"To choose others: {move} PORT\n" in made.err
    moved = edgefed(*move.split()[1:], str(free_ports()))
    assert moved.code == 0, moved
    (tmp_path / "free").mkdir()
    assert "is in use" not in edgefed("init", "--port", str(port), state=tmp_path / "free").err
