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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from broker.parent_death import execute_with_parent
from device_agent.identity.owners_policy import owners_policy
from device_agent.tasks.training_data import read_training_data
from device_agent.tasks.training_messages import (
    PAUSE,
    ModelTest,
    Piece,
    Progressed,
    TrainingDone,
    TrainingOrder,
    order_from,
    outcome_fields,
    outcome_pieces,
    packed,
    unpacked,
)
from edgefed.config.fleet.broker_address import broker_address
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.errors import EdgeFedError, WireError
from edgefed.files.mapped import opened_bytes
from edgefed.learn.base.processors import set_threads
from edgefed.learn.training.trainer import Stopped
from edgefed.natural_noise.cache import NoiseCache
from edgefed.process.clock import Clock, SystemClock
from edgefed.process.memory import LARGE, return_freed
from edgefed.terminal.diagnostics import unused_gpu
from edgefed.trust.credentials import Credentials
from edgefed.trust.known_device_keys import KnownKeys
from edgefed.wire.tensors import packed_names, unpack
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.outcomes import Outcome, PersistentState
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker

if TYPE_CHECKING:
    from edgefed.learn.base.types import Tensors

REPORT_EVERY = 0.5
"""Seconds between two reports of progress."""

BEAT_EVERY = 0.5
"""Least seconds between two beats."""

NOISE_BYTES = 512 * 1024**2
"""Of natural noise that is kept on disk, and in memory."""


class TaskTraining:
    """Does one task after another.

    Args:
        worker: does the work.
        stored: the arrays that orders name.
        clock: for how often progress is reported.
        report: takes ``Progressed`` and ``TrainingDone``.
        stop: called before each step; True gives the task up, and no outcome follows.
    """

    def __init__(
        self,
        worker: Worker,
        stored: StoredArrays,
        clock: Clock,
        report: Callable[[Progressed | TrainingDone], None],
        stop: Callable[[], bool],
    ) -> None:
        self._worker = worker
        self._stored = stored
        self._clock = clock
        self._report = report
        self._stop = stop

    def begin(self, order: TrainingOrder) -> None:
        """Do a task; nothing refers to its outcome here while the next one is awaited."""
        if sum(ref.size for ref in order.task.blobs.values()) >= LARGE:
            return_freed()  # what the task before has left
        with suppress(Stopped):
            steps = StepTime(self._clock)
            outcome = self._outcome(order, steps)
            self._report(TrainingDone(order.task, replace(outcome, seconds=steps.seconds())))

    def _outcome(self, order: TrainingOrder, steps: StepTime) -> Outcome:
        stored = self._stored
        try:
            return self._worker.work(
                order.task,
                lambda role: stored.arrays(order.task.blobs[role].digest),
                stored.private(order.private),
                self._reporter(order.task.exchange, steps),
                self._stop,
                persistent=stored.persistent(order),
                read_relay=stored.read,
            )
        except EdgeFedError as error:  # its stored state cannot be read
            return Outcome(status="failed", reason=error.as_line())

    def _reporter(self, exchange: str, steps: StepTime) -> Callable[[float], None]:
        reported = self._clock.monotonic()

        def report(fraction: float) -> None:
            nonlocal reported
            now = self._clock.monotonic()
            steps.note(fraction, now)
            if now - reported >= REPORT_EVERY:
                reported = now
                self._report(Progressed(exchange, fraction))

        return report


class StepTime:
    """The time of a task's steps, from the end of its first one on.

    The first step also waits for the model, the samples and the processor to be ready, which takes
    as long for few samples as for many.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._first: tuple[float, float] | None = None
        self._last = (0.0, self._began)

    def note(self, fraction: float, now: float) -> None:
        """Note when a share of the steps was done."""
        self._last = (fraction, now)
        self._first = self._first or self._last

    def seconds(self) -> float:
        """Return the seconds of all steps; those of the whole work if it has one step or none."""
        whole = self._clock.monotonic() - self._began
        done, ended = self._last
        first, began = self._first or self._last
        return min(whole, (ended - began) * done / (done - first)) if done > first else whole


class StoredArrays:
    """Reads blobs that were checked before; groups of state across runs stay in memory.

    Args:
        folder: of the blobs, each in a file that its digest names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unpacked: dict[str, Tensors] = {}

    def read(self, digest: str) -> bytes:
        """Return the bytes of a blob.

        Raises:
            WireError: ``wire.blob``: it is not here.
        """
        try:
            return (self._folder / digest).read_bytes()
        except OSError as error:
            raise WireError(f"Blob {digest[:12]} is not in the cache.", code="wire.blob") from error

    def arrays(self, digest: str, wanted: Callable[[str], bool] = lambda name: True) -> Tensors:
        """Return the arrays of a blob with a wanted name; those of a large one are mapped.

        Raises:
            WireError: it is not here, or holds no arrays.
        """
        data = self._contents(digest)
        copied = isinstance(data, bytes)
        return unpack(data, None, max_bytes=len(data), wanted=wanted, copied=copied)

    def names(self, digest: str) -> tuple[str, ...]:
        """Return the names of a blob's arrays.

        Raises:
            WireError: it is not here, or holds no arrays.
        """
        return packed_names(self._contents(digest))

    def _contents(self, digest: str) -> bytes | memoryview:
        path = self._folder / digest
        with suppress(OSError):
            if path.stat().st_size >= LARGE:
                return opened_bytes(path).data
        return self.read(digest)

    def private(self, digest: str) -> Mapping[str, Tensors]:
        """Return groups of private state, each read when it is used; empty for no digest."""
        return _StoredGroups(self, digest) if digest else {}

    def persistent(self, order: TrainingOrder) -> PersistentState:
        """Return the state across runs that an order names."""
        before, self._unpacked = self._unpacked, {}
        for digest in order.device_state.values():
            self._unpacked[digest] = before[digest] if digest in before else self.arrays(digest)
        groups = {name: self._unpacked[digest] for name, digest in order.device_state.items()}
        return PersistentState(groups, order.ledger)


class _StoredGroups(Mapping[str, "Tensors"]):
    """Groups of arrays in a blob. Each is read anew when it is used, and not kept."""

    def __init__(self, stored: StoredArrays, digest: str) -> None:
        self._stored = stored
        self._digest = digest
        self._groups = dict.fromkeys(name.partition("|")[0] for name in stored.names(digest))

    def __getitem__(self, group: str) -> Tensors:
        if group not in self._groups:
            raise KeyError(group)
        prefix = f"{group}|"
        arrays = self._stored.arrays(self._digest, lambda name: name.startswith(prefix))
        return {name.removeprefix(prefix): array for name, array in arrays.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


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
            pieces = outcome_pieces(item.outcome)
            self.send("done", pieces, exchange=exchange, outcome=outcome_fields(item.outcome))

    def send(self, kind: str, pieces: Iterable[Piece] = (), **fields: Any) -> None:
        """Send a message and the pieces that follow it; without an agent this process ends."""
        data = packed(kind, **fields)
        with self._guard:
            try:
                for piece in chain([data], pieces):
                    self._connection.send_bytes(piece)
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
