"""The agent's side of the training process: start it, watch it, meter its energy, and end it.

An agent does not import torch. Its training process does, and holds the samples and the trainers,
so that a crash costs one attempt at a task, and all of its memory is given back when it ends.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Protocol

from device_agent.tasks.training_data import TrainingData
from device_agent.tasks.training_messages import (
    PAUSE,
    ModelChecked,
    ModelTest,
    Progressed,
    TrainingDone,
    TrainingOrder,
    order_fields,
    outcome_from,
    packed,
    unpacked,
)
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.errors import EdgeFedError
from edgefed.process.clock import Clock
from edgefed.worker.outcomes import Outcome

log = logging.getLogger(__name__)

MODULE = "device_agent.tasks.training_child"
"""What a training process runs."""

ATTEMPTS = 2
"""How often a task is begun; if its process ends as often, the task has failed."""

START_FACTOR = 2
"""A process that starts may be silent for this many times as long as one that trains: it imports
torch, and initialises the GPU."""

END_SECONDS = 2.0
"""Seconds that a process has to end by itself."""

LAST_LINES = 5
"""Lines of a process's log in the reason of a failure."""


class Child(Protocol):
    """A process, such as a ``subprocess.Popen``."""

    pid: int

    def kill(self) -> None:
        """Send it SIGKILL."""

    def wait(self, timeout: float) -> int:
        """Return its exit code; negative for a signal."""


def start_child(connection: int) -> Child:
    """Start a training process with its end of a socket; it writes to the agent's stderr."""
    words = [sys.executable, "-m", MODULE, str(connection), str(os.getpid())]
    return subprocess.Popen(
        words,
        pass_fds=(connection,),
        stdin=subprocess.DEVNULL,
        stdout=2,  # standard error: what a library prints is no answer of the agent
        start_new_session=True,  # Ctrl-C in a terminal is for the agent alone
    )


@dataclass(frozen=True)
class _Started:
    """A training process that runs."""

    child: Child
    connection: Connection


class _Stop:
    """Ends the thread."""


Order = TrainingOrder | ModelTest
Item = Progressed | TrainingDone | ModelChecked


@dataclass(frozen=True)
class _Paused:
    """Pauses the task at work, or lets it go on."""

    on: bool


_Command = Order | TrainingData | bool | _Paused | None


class TrainingProcess:
    """Has one task after another done by a process, which is started when a task needs it.

    Args:
        settings: the device's.
        folder: the device's, with its blobs.
        device: its name.
        data: its samples.
        clock: for the silence of the process.
        report: takes the items of orders, on a thread of this object.
    """

    def __init__(
        self,
        settings: AgentSettings,
        folder: Path,
        device: str,
        data: DeviceData,
        clock: Clock,
        report: Callable[[Item], None],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._device = device
        self._data = TrainingData(data)
        self._clock = clock
        self._report = report
        self._current, self._kept = "", False  # as the agent's thread knows them
        self._commands: queue.SimpleQueue[_Command | _Stop]
        self._commands = queue.SimpleQueue()
        self._woken, self._wake = Pipe(duplex=False)
        self._process: _Started | None = None
        self._order: Order | None = None
        self._deaths = 0
        self._run_at_work = self._paused = False
        self._ready = False
        self._heard = self._idle_since = clock.monotonic()
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._thread = threading.Thread(target=self._run, name="training", daemon=True)
        self._thread.start()

    # -- on the agent's thread ----------------------------------------------------------------

    def begin(self, order: Order) -> None:
        """Begin a task or the test of a model; the previous one is given up."""
        self._current = order.name
        self._send(order)

    def renew(self, data: DeviceData) -> None:
        """Have the tasks that are begun from now on use other samples."""
        self._send(TrainingData(data))

    def keep(self, run_at_work: bool) -> None:
        """Keep the process while a run is at work; without one it ends after a while."""
        if run_at_work != self._kept:
            self._kept = run_at_work
            self._send(run_at_work)

    def work_on(self, name: str) -> bool:
        """Whether an order of this name was begun; its outcome is here or will follow."""
        return self._current == name

    def give_up(self) -> None:
        """Stop working; no outcome follows."""
        if self._current:
            self._current = ""
            self._send(None)

    def pause(self, on: bool) -> None:
        """Have the process wait before its next step, or go on; so does one that is begun again."""
        self._send(_Paused(on))

    def stop(self) -> None:
        """End the process and the thread."""
        self._send(_Stop())
        self._thread.join(timeout=10)

    def _send(self, command: _Command | _Stop) -> None:
        self._commands.put(command)
        self._wake.send_bytes(b"\0")

    # -- on this object's thread --------------------------------------------------------------

    def _run(self) -> None:
        while True:
            process = self._process
            sources = [] if process is None else [process.connection]
            ready = wait([self._woken, *sources], self._patience())
            if self._woken in ready:
                self._woken.recv_bytes()
                command = self._commands.get()
                if isinstance(command, _Stop):
                    break
                self._obey(command)
            elif process is not None and ready:
                self._hear(process)
            self._check()
        self._end()
        self._data.close()

    def _patience(self) -> float | None:
        """Return the seconds until the process is to be looked at; None without one."""
        if self._process is None or (self._order is None and self._run_at_work):
            return None
        return max(0.0, self._due() - self._clock.monotonic())

    def _due(self) -> float:
        """Return the second at which the process is ended, unless it is heard of before."""
        if self._order is None:
            return self._idle_since + self._settings.training_idle
        return self._heard + self._settings.training_silence * (1 if self._ready else START_FACTOR)

    def _check(self) -> None:
        """End a process that is silent, or that has had nothing to do for a while."""
        patience = self._patience()
        if patience is None or patience > 0:
            return
        if self._order is None:
            log.info("the training process ends; the next task starts another one")
            self._end()
        else:
            silence = round(self._clock.monotonic() - self._heard)
            self._lost(f"no sign of life for {silence} s")

    def _obey(self, command: _Command) -> None:
        match command:
            case TrainingOrder() | ModelTest():
                self._order, self._deaths = command, 0
                self._begin()
            case TrainingData():
                self._end()  # between two runs; the next process has the new samples
                self._data.close()
                self._data = command
                self._begin()  # the test of a model
            case bool():
                self._run_at_work = command
                self._idle_since = self._clock.monotonic()
            case _Paused():
                self._paused = command.on
                if self._process is not None and self._order is not None:
                    self._tell(self._process, packed(PAUSE, on=command.on))
            case None:
                self._finish_order()
                if self._process is not None:
                    self._tell(self._process, packed("give up"))

    def _finish_order(self) -> None:
        self._order = None
        self._idle_since = self._clock.monotonic()

    def _begin(self) -> None:
        """Send the order at hand to the process, after starting it where there is none."""
        if self._order is None:
            return
        self._heard = self._clock.monotonic()
        try:
            process = self._process = self._process or self._start()
        except OSError as error:
            self._lost(f"it cannot be started: {error}")
            return
        if isinstance(self._order, ModelTest):
            self._tell(process, packed("test", order=asdict(self._order)))
        else:
            self._tell(process, packed("begin", order=order_fields(self._order)))
        if self._paused:
            self._tell(process, packed(PAUSE, on=True))

    def _start(self) -> _Started:
        ours, theirs = socket.socketpair()
        limit = struct.pack("ll", max(1, round(self._settings.training_silence)), 0)
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):  # the process may be stopped
            ours.setsockopt(socket.SOL_SOCKET, option, limit)
        self._ready = False
        self._lines.clear()
        with theirs:
            child = start_child(theirs.fileno())
        connection = Connection(ours.detach())
        process = _Started(child, connection)
        start = {
            "settings": self._settings.model_dump_json(),
            "folder": str(self._folder),
            "device": self._device,
            "level": logging.getLogger().level,
        }
        self._tell(process, packed("start", **start))
        try:
            send_handle(connection, self._data.file.fileno(), child.pid)
        except OSError:  # it has ended, which is noticed when it is read
            log.debug("the training process does not take the samples")
        return process

    def _tell(self, process: _Started, data: bytes) -> None:
        try:
            process.connection.send_bytes(data)
        except OSError:  # it has ended, which is noticed when it is read
            log.debug("the training process does not take a message")

    def _hear(self, process: _Started) -> None:
        """Take a message of the process."""
        try:
            self._take(unpacked(process.connection.recv_bytes()), process.connection.recv_bytes)
        except (EOFError, OSError):
            self._lost("")
        except (EdgeFedError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            self._lost(f"a message that is none: {error}")

    def _take(self, message: dict[str, Any], next_piece: Callable[[], bytes]) -> None:
        self._heard, self._ready = self._clock.monotonic(), True
        order = self._order
        at_work = order is not None and message.get("exchange") == order.name
        match message["kind"]:
            case "log":
                self._lines.extend(str(message["text"]).splitlines())
                logging.getLogger(str(message["name"])).log(int(message["level"]), message["text"])
            case "progress" if at_work:
                self._report(Progressed(str(message["exchange"]), float(message["fraction"])))
            case "done":
                outcome = outcome_from(message["outcome"], next_piece)
                if at_work and isinstance(order, TrainingOrder):  # else it came too late
                    self._finish_order()
                    self._report(TrainingDone(order.task, outcome))
            case "checked" if at_work and isinstance(order, ModelTest):
                self._finish_order()
                self._report(ModelChecked(**message["checked"]))

    def _lost(self, problem: str) -> None:
        """Begin the task again after its process has ended or is ended now, or answer for it."""
        ended = self._end(now=True)
        problem = problem or ended
        order = self._order
        log.warning("the training process ended: %s", problem)
        if order is None:
            return
        self._deaths += 1
        if self._deaths < ATTEMPTS:
            log.warning("task %s is begun again", order.name)
            self._begin()
            return
        reason = f"the training process ended {self._deaths} times during this task: {problem}"
        if self._lines and self._settings.share_log:
            reason += f"; its last lines: {' | '.join(self._lines)}"
        self._finish_order()
        if isinstance(order, ModelTest):
            self._report(ModelChecked(order.name, "failed", reason))
        else:
            self._report(TrainingDone(order.task, Outcome(status="failed", reason=reason)))

    def _end(self, now: bool = False) -> str:
        """End the process, if there is one, and return how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "it did not run"
        process.connection.close()
        try:
            code = process.child.wait(0.5 if now else END_SECONDS)
        except subprocess.TimeoutExpired:
            process.child.kill()
            code = process.child.wait(END_SECONDS)
        return _in_words(code)


def _in_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"signal {name}" + (", as where memory is short" if name == "SIGKILL" else "")


LOOK_AGAIN = 60.0
"""Seconds after which a sensor is looked for again where there was none."""


class EnergyMeter:
    """Integrates the board's draw over the work of one task after another, without pauses.

    Between two readings the draw is taken to change evenly.

    Args:
        power: reads the draw in W; None without a sensor.
        clock: for the time between readings.
    """

    def __init__(self, power: Callable[[], float | None], clock: Clock) -> None:
        self._power = power
        self._clock = clock
        self._joules: float | None = None
        self._last: tuple[float, float] | None = None
        self._look_at = clock.monotonic()

    def begin(self) -> None:
        """Begin with another task; without a sensor nothing is measured until the next one."""
        self._joules, self._last = None, None
        if self._clock.monotonic() < self._look_at:
            return
        watts, now = self._power(), self._clock.monotonic()
        if watts is None:
            self._look_at = now + LOOK_AGAIN
        else:
            self._joules, self._last = 0.0, (now, watts)

    def read(self) -> None:
        """Read the draw while the task is at work; after a pause, this is where it goes on."""
        if self._joules is None or (watts := self._power()) is None:
            return
        now = self._clock.monotonic()
        if self._last is not None:
            since, before = self._last
            self._joules += (now - since) * (before + watts) / 2
        self._last = now, watts

    def pause(self) -> None:
        """End the work, for good or until ``read``."""
        if self._last is not None:
            self.read()
            self._last = None

    def end(self) -> float | None:
        """Return the J that the task took; None if they were not measured."""
        self.pause()
        return None if self._joules is None else round(self._joules, 3)
