"""Run a program of ours as ``python -m`` does, but forked by a process that has imported torch.

``python -ISE launcher.py SOCKET MODULE ARGUMENT...``, with ``launched_programs`` at the
socket. The program has the launcher's files, folder, environment and namespaces; signals that
arrive here are passed on, and the launcher ends as the program does. It imports next to nothing.
"""

# ruff: noqa: PTH109 (pathlib takes longer to import than the rest)
import json
import os
import signal
import socket
import sys

PASSED_ON = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH")


def main() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        mask = os.umask(0)
        os.umask(mask)
        numbers = [getattr(signal, name) for name in PASSED_ON]
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # until there is a program to have them
        for number in numbers:
            signal.signal(number, lambda number, _: server.sendall(bytes([number])))
        server.connect(sys.argv[1])
        given = [sys.argv[2:], dict(os.environ), os.getcwd(), mask, os.getpid()]
        socket.send_fds(server, [json.dumps(given).encode() + b"\n"], [0, 1, 2])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        code = int(server.recv(16) or b"1")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
