"""The training process: it loads torch, holds the samples and the trainers, and does tasks.

It is started by ``TrainingProcess`` as ``python -m device_agent.tasks.training_child SOCKET``, and
ends with the agent: when the socket closes and, on Linux, by SIGKILL from the kernel.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, NoReturn

from broker.parent_death import execute_with_parent
from device_agent.identity.owners_policy import owners_policy
from device_agent.tasks.task_training import StoredArrays, TaskTraining
from device_agent.tasks.training_data import read_training_data
from device_agent.tasks.training_messages import (
    PAUSE,
    ModelTest,
    Progressed,
    TrainingDone,
    order_from,
    outcome_fields,
    packed,
    unpacked,
)
from edgefed.config.fleet.broker_address import broker_address
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.learn.base.processors import set_threads
from edgefed.learn.training.trainer import Stopped
from edgefed.natural_noise.cache import NoiseCache
from edgefed.process.clock import SystemClock
from edgefed.terminal.diagnostics import unused_gpu
from edgefed.trust.credentials import Credentials
from edgefed.trust.known_keys import KnownKeys
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker

BEAT_EVERY = 0.5
"""Least seconds between two beats."""

NOISE_BYTES = 512 * 1024**2
"""Of natural noise that is kept on disk, and in memory."""


class _WorkClock(SystemClock):
    """Stands still while the task at work is paused.

    Attributes:
        paused: seconds of all pauses.
    """

    paused = 0.0

    def monotonic(self) -> float:
        """Return the seconds of work."""
        return super().monotonic() - self.paused


class _Agent:
    """The agent at the other end of the socket; any thread may send, as it may log.

    Attributes:
        work_clock: measures work.
    """

    def __init__(self, connection: Connection) -> None:
        self.work_clock = _WorkClock()
        self._connection = connection
        self._arrived = select.poll()
        self._arrived.register(connection.fileno(), select.POLLIN)
        self._clock = SystemClock()
        self._guard = threading.Lock()
        self._next_beat = 0.0
        self._order: dict[str, Any] | None = None

    def beat(self) -> bool:
        """Send a sign of life, unless one was sent just now; return whether there is an order.

        The agent then gives the task at work up, begins another one, or has ended. While it has
        paused the task, this waits, still with signs of life.
        """
        since: float | None = None  # when the pause began
        while True:
            now = self._clock.monotonic()
            if now >= self._next_beat:
                self._next_beat = now + BEAT_EVERY
                self.send("beat")
            if self._order is None and self._arrived.poll(
                0 if since is None else 1000 * BEAT_EVERY
            ):
                try:
                    self._order = unpacked(self._connection.recv_bytes())
                except (EOFError, OSError):  # it has ended, which is noticed when the task has
                    return True
            if self._order is not None and self._order["kind"] != PAUSE:
                return True
            if self._order is not None:
                on, self._order, now = self._order["on"], None, self._clock.monotonic()
                self.work_clock.paused += 0.0 if since is None else now - since
                since = now if on else None
            elif since is None:
                return False

    def order(self) -> dict[str, Any]:
        """Wait for the next message, which is about no task at work."""
        order, self._order = self._order, None
        return unpacked(self._connection.recv_bytes()) if order is None else order

    def report(self, item: Progressed | TrainingDone) -> None:
        """Send the progress or the outcome of a task."""
        if isinstance(item, Progressed):
            self.send("progress", exchange=item.exchange, fraction=item.fraction)
        else:
            exchange = item.task.exchange
            self.send("done", exchange=exchange, outcome=outcome_fields(item.outcome))

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; without an agent this process ends."""
        data = packed(kind, **fields)
        with self._guard:
            try:
                self._connection.send_bytes(data)
            except OSError:
                os._exit(1)


class _LogToAgent(logging.Handler):
    """Sends records of the log to the agent, whose log they are part of."""

    def __init__(self, agent: _Agent) -> None:
        super().__init__()
        self._agent = agent

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, with its traceback as text."""
        text = logging.Formatter("%(message)s").format(record)
        self._agent.send("log", level=record.levelno, name=record.name, text=text)


class _OwnCredentials:
    """A device's credentials, read again for each task: its agent renews them."""

    def __init__(self, settings: AgentSettings, device: str) -> None:
        self._settings = settings
        self._device = device
        self.read()

    def read(self) -> None:
        """Read the files."""
        self._credentials = broker_address(self._settings, (self._device,)).credentials

    def _current(self) -> Credentials:
        assert self._credentials is not None
        return self._credentials

    def trust(self, folder: Path) -> DeviceCredentials | None:
        """Return what signs for the device; None in a fleet without certificates."""
        if self._credentials is None:
            return None
        return DeviceCredentials(self._current, KnownKeys(folder / "known-devices"))


def _worker(
    settings: AgentSettings, folder: Path, data: DeviceData, own: _OwnCredentials
) -> Worker:
    """Return the worker of a device."""
    return Worker(
        TrainerCache(user_models=settings.user_models, memory=settings.memory),
        data.train,
        data.test,
        owners_policy(settings),
        data.class_names,
        preparation=data.preparation,
        noise=NoiseCache(folder / "noise", NOISE_BYTES).samples,
        credentials=own.trust(folder),
    )


def run(socket: int) -> NoReturn:
    """Do the tasks that come through a socket until it closes, then end this process."""
    try:
        _work(socket)
    except (EOFError, OSError):  # the agent has ended, or ends this process
        os._exit(0)
    except BaseException:
        logging.getLogger(__name__).exception("error in the training process")
        os._exit(1)


def _work(socket: int) -> NoReturn:
    os.set_inheritable(socket, False)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agent ends this process
    faulthandler.enable()
    connection = Connection(socket)
    agent = _Agent(connection)
    logging.getLogger().handlers = [_LogToAgent(agent)]
    start = unpacked(connection.recv_bytes())
    logging.getLogger().setLevel(start["level"])
    settings = AgentSettings.model_validate_json(start["settings"])
    folder = Path(start["folder"])
    set_threads(settings.threads)
    os.nice(settings.when.nice)
    if gpu := unused_gpu():
        warning = "training on the CPU, although there is %s: this torch is not built for that GPU"
        logging.getLogger(__name__).warning(warning, gpu)
    data = read_training_data(recv_handle(connection))
    own = _OwnCredentials(settings, start["device"])
    worker = _worker(settings, folder, data, own)
    stored = StoredArrays(folder / "blobs")
    training = TaskTraining(worker, stored, agent.work_clock, agent.report, agent.beat)
    agent.beat()
    while True:
        message = agent.order()
        if message["kind"] == "begin":
            own.read()
            training.begin(order_from(message["order"]))
        elif message["kind"] == "test":
            _test_model(ModelTest(**message["order"]), data, settings, agent)


def _test_model(order: ModelTest, data: DeviceData, settings: AgentSettings, own: _Agent) -> None:
    from device_agent.tasks.model_check import check_model

    with suppress(Stopped):
        checked = check_model(order, data, settings.user_models, own.beat)
        own.send("checked", exchange=order.name, checked=asdict(checked))


if __name__ == "__main__":
    if sys.platform.startswith("linux"):
        execute_with_parent(int(sys.argv[2]), signal.SIGKILL)
    run(int(sys.argv[1]))
