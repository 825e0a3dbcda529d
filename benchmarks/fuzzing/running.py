"""Feed a target inputs that Hypothesis makes, in a process of its own with bounded memory."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy

from edgefed.errors import EdgeFedError

HANG = 20
"""Seconds of processor time after which one input has hung."""

MEMORY = 1024 * 2**20
"""Bytes of address space that inputs may take beside what the program takes before them."""

BATCH = 200
"""Examples of one search, after which Hypothesis forgets what it has tried: it keeps a tree."""

STEPS = 40
"""Rules that a stateful machine applies in one example."""

PHASES = (Phase.generate, Phase.shrink)

MAX_CORPUS_BYTES, KEPT = 4096, 4
"""Size of the largest input that is kept for the corpus, and how many of each outcome are."""

FOLDER = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where targets keep their files: in memory where possible, since databases wait for the disk."""

Reader = Callable[[bytes], object]
"""Reads one input; anything but an ``EdgeFedError`` that it raises is a crash."""

Keep = Callable[[str, bytes], None]


@dataclass(frozen=True)
class Target:
    """One thing that reads what others send or supply.

    Attributes:
        name: of its folder in the corpus.
        open: returns the reader of inputs, given a folder of its own.
        inputs: makes several similar inputs at once.
        share: of all inputs of its kind, relative to the others'.
        kind: ``wire`` for input from the network, ``file`` for files that users supply.
        machine: feeds the same reader and does more with it; None where inputs are independent.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[Any]]
    inputs: SearchStrategy[list[bytes]]
    share: float = 3
    kind: str = "wire"
    machine: type[Machine] | None = None


@dataclass
class Report:
    """The outcomes of a target's inputs.

    Attributes:
        outcomes: inputs by the code of the error; ``ok`` for those that were read.
        crashes: other exceptions, each with the smallest input found that raises it.
        memory: bytes by which the largest resident size grew.
        slowest: seconds of the slowest input, and its number.
    """

    target: str
    inputs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    crashes: list[str] = field(default_factory=list)
    memory: int = 0
    slowest: tuple[float, int] = (0.0, 0)


class HungError(BaseException):
    """One input took too long; not caught by handlers of exceptions."""


class Feeder:
    """Hands inputs to a reader, bounds their time and counts their outcomes."""

    def __init__(self, report: Report, keep: Keep) -> None:
        self.report, self.keep, self.last = report, keep, b""
        signal.signal(signal.SIGVTALRM, _hung)

    def feed(self, read: Reader, data: bytes) -> None:
        """Hand one input to a reader.

        Raises:
            Exception, HungError: it is a crash.
        """
        report, self.last = self.report, data
        started = time.perf_counter()
        signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
        try:
            found = outcome(read, data)
        except (Exception, HungError) as error:
            found = f"crash: {type(error).__name__}"
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            report.slowest = max(report.slowest, (time.perf_counter() - started, report.inputs))
            if report.outcomes[found] < KEPT and len(data) <= MAX_CORPUS_BYTES:
                self.keep(found, data)
            report.outcomes[found] += 1
            report.inputs += 1


class Machine(RuleBasedStateMachine):
    """Rules over the reader of a target, which is opened anew for each example.

    Attributes:
        reader: reads the inputs.
        fed: how many it was given.
    """

    target: ClassVar[Target]
    feeder: ClassVar[Feeder]

    def __init__(self) -> None:
        super().__init__()
        self.fed = 0
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(dir=FOLDER))
        self.reader = self._stack.enter_context(self.target.open(Path(folder)))

    def feed(self, inputs: list[bytes]) -> None:
        """Hand inputs to the reader, one after another."""
        for data in inputs:
            self.feeder.feed(self.reader, data)
        self.fed += len(inputs)

    def teardown(self) -> None:
        """Close the reader."""
        self._stack.close()


def opening(make: Callable[[Path], Any]) -> Callable[[Path], AbstractContextManager[Any]]:
    """Return how a target is opened whose reader is made for a folder, and closed."""

    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Any]:
        with contextlib.closing(make(folder)) as made:
            yield made

    return opened


def always(read: Reader) -> Callable[[Path], AbstractContextManager[Any]]:
    """Return how a target is opened whose reader needs no folder."""
    return lambda folder: contextlib.nullcontext(read)


def outcome(read: Reader, data: bytes) -> str:
    """Return the outcome of an input: ``ok`` or an error's code.

    Raises:
        AssertionError: the error has no message, or hides that memory was short.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            read(data)
    except EdgeFedError as error:
        assert error.message, "the error has no message"
        assert not isinstance(error.__cause__, MemoryError), "memory was short"
        return error.code
    return "ok"


def run(target: Target, inputs: int, seed: int, keep: Keep = lambda outcome, data: None) -> Report:
    """Feed a target at least so many inputs, or until one crashes it.

    Args:
        target: reads the inputs.
        inputs: how many.
        seed: of the inputs.
        keep: takes the first inputs of each outcome.
    """
    report = Report(target.name)
    feeder, begun, before = Feeder(report, keep), time.monotonic(), _resident()
    batch = 0
    while report.inputs < inputs and not report.crashes:
        # One example alone would be the simplest one, which may feed nothing.
        examples = max(8, min(BATCH, (inputs - report.inputs) // 64))
        try:
            _search(target, feeder, examples, seed * 10**6 + batch)
        except (Exception, HungError) as error:
            report.crashes.append(f"{target.name} {seed} {batch}: {_shown(error, feeder.last)}")
        batch += 1
    report.seconds = time.monotonic() - begun
    report.memory = max(0, _resident() - before)
    return report


def _shown(error: BaseException, data: bytes) -> str:
    """Return an error, the input that raised it, and the steps before it, each cut to a line."""
    notes = "\n".join(getattr(error, "__notes__", ())).splitlines()
    trace = traceback.format_tb(error.__traceback__)[-3:]
    head = f"{type(error).__name__}: {error}\n{data!r:.2000}\n"
    return "".join((head, *trace, *(f"{line:.120}\n" for line in notes)))


def _search(target: Target, feeder: Feeder, examples: int, seed: int) -> None:
    """Let Hypothesis look for a crash, and shrink the first one that it finds."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        database=None,
        deadline=None,
    )
    if target.machine is not None:
        made = type(target.name, (target.machine,), {"target": target, "feeder": feeder})
        search: Callable[..., None] = run_state_machine_as_test
        search(hypothesis.seed(seed)(made), settings=chosen)
        return
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, target.open(Path(folder)) as read:

        def check(inputs: list[bytes]) -> None:
            for data in inputs:
                feeder.feed(read, data)

        hypothesis.seed(seed)(chosen(given(target.inputs)(check)))()


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _hung(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise HungError


def in_own_process(target: str, inputs: int, seed: int, corpus: Path | None = None) -> Report:
    """Run a target in a process with bounded memory; one that ends it has crashed it."""
    words = [sys.executable, "-m", "benchmarks.fuzzing.running", target, str(inputs), str(seed)]
    ended = subprocess.run(
        [*words, str(corpus or "")], stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        return Report(target, crashes=[f"{target}: the process ended with {ended.returncode}"])
    return Report(**json.loads(ended.stdout.splitlines()[-1]))


def saver(folder: Path) -> Keep:
    """Return a function that writes inputs into a corpus, named by outcome and number."""
    counts = Counter[str]()

    def keep(found: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        counts[found] += 1
        (folder / f"{found.replace(': ', '-')}-{counts[found]}").write_bytes(data)

    return keep


def main() -> None:
    """Run one target and print its report as JSON."""
    from benchmarks.fuzzing.targets import TARGETS

    name, inputs, seed, corpus = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    more = (saver(Path(corpus) / name),) if corpus else ()
    print(json.dumps(vars(run(TARGETS[name], int(inputs), int(seed), *more))))
    sys.stdout.flush()
    os._exit(0)  # threads of a target may still be at work


if __name__ == "__main__":
    main()
