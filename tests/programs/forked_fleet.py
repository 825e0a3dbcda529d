"""The processes of a fleet on one machine, forked as ``tests.programs.forked_programs`` tells."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from broker.child_process import STOP_SECONDS, ChildProcess
from edgefed.cli.programs.processes import Processes
from edgefed.config.values.address import Address
from edgefed.files.writing import make_folder
from tests.cli.commands import Told, edgefed
from tests.programs.forked_programs import ForkedProgram


class ForkedChild(ChildProcess):
    """A child process that runs a module; it ends with the tests."""

    def __init__(
        self, words: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        self._log_start = log.stat().st_size if log.exists() else 0
        self._program = ForkedProgram(words, environment, log, folder=make_folder(folder))

    @property
    def pid(self) -> int:
        return self._program.pid

    def is_running(self) -> bool:
        return self._program.poll() is None

    def terminate(self) -> None:
        self._program.terminate()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        self._program.terminate()
        try:
            self._program.wait(seconds)
        except TimeoutError:
            self._program.kill()
            self._program.wait()


class ForkedProcesses(Processes):
    """A broker, and a coordinator and agents that need not import torch."""

    def _child(self, name: str, arguments: Sequence[str]) -> ChildProcess:
        """Start one of our own programs, which is to be a module."""
        option, *words = arguments
        assert option == "-m"
        log = make_folder(self.folder / "logs") / f"{name}.log"
        return ForkedChild(words, folder=self.folder, log=log, environment=self._environment())


def demo_here(state: Path, *words: str, then: Callable[[Address], None] | None = None) -> Told:
    """Run ``edgefed demo`` in this process; its coordinator and agents are forked.

    Args:
        state: the state folder.
        words: arguments of the demo.
        then: is called beside it with the broker's address, once the agents have been started.
    """
    beside: list[threading.Thread] = []

    class Started(ForkedProcesses):
        def start_agent(self, device: str, source: str, holdout: float = 0.0) -> None:
            super().start_agent(device, source, holdout)
            if then is not None and not beside:
                beside.append(threading.Thread(target=then, args=(self.near_address(),)))
                beside[0].start()

    with mock.patch("edgefed.cli.programs.processes.Processes", Started):
        told = edgefed("--state", str(state), "demo", "--headless", *words)
    for thread in beside:
        thread.join()
    return told
