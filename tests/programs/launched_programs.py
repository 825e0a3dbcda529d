"""Programs of ours that somebody else starts, such as a shell: a launcher asks for a fork."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import select
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

from tests.programs.forked_programs import ForkedProgram

LAUNCHER = Path(__file__).with_name("launcher.py")
SCRIPTS = {"edgefed": "edgefed.cli.main", "edgefed-agent": "device_agent.commands.cli"}


def launching(module: str, *arguments: str) -> list[str]:
    """Return the words that run ``python -m module`` without an import of torch."""
    return [sys.executable, "-ISE", str(LAUNCHER), str(_server()), module, *arguments]


def scripts(folder: Path) -> Path:
    """Write the commands of ours into a folder, which is to be the first one of a PATH."""
    for name, module in SCRIPTS.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join(launching(module))} "$@"\n')
        path.chmod(0o755)
    return folder


@functools.cache
def _server() -> Path:
    """Listen for launchers until this process ends, and return the socket's path."""
    path = Path(tempfile.mkdtemp()) / "launch"
    atexit.register(shutil.rmtree, path.parent)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def accept() -> None:
        while True:
            launcher, _ = server.accept()
            threading.Thread(target=_launch, args=(launcher,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return path


def _launch(launcher: socket.socket) -> None:
    """Run the program of a launcher, which ends it by its own end."""
    with launcher:
        said, files, _, _ = socket.recv_fds(launcher, 65536, 3)
        while said and not said.endswith(b"\n"):
            said += launcher.recv(65536)
        if not said:
            return  # the launcher was killed
        words, environment, folder, mask, pid = json.loads(said)
        program = ForkedProgram(words, environment, files, folder=folder, mask=mask, like=pid)
        atexit.register(program.kill)  # before multiprocessing waits for its end
        both = [launcher.fileno(), program.sentinel]
        while program.sentinel not in select.select(both, [], [])[0]:
            for number in _signals(launcher):
                program.send_signal(number)
        code = program.wait()
        atexit.unregister(program.kill)
        with contextlib.suppress(OSError):  # it was killed
            launcher.sendall(str(code).encode())


def _signals(launcher: socket.socket) -> bytes:
    """Return the signals that a launcher has passed on; SIGKILL where it has ended."""
    with contextlib.suppress(ConnectionResetError):
        if numbers := launcher.recv(16):
            return numbers
    return bytes([signal.SIGKILL])
