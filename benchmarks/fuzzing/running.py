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
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import FrameType
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from hypothesis.strategies import SearchStrategy, sampled_from

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
        make: returns the reader of inputs, given a folder of its own.
        inputs: makes several similar inputs at once.
        share: of all inputs of its kind, relative to the others'.
        kind: ``wire`` for input from the network, ``file`` for files that users supply.
        steps: what else may happen to the reader, each the name of a method and its arguments;
            none where inputs are independent.
    """

    name: str
    make: Callable[[Path], Reader]
    inputs: SearchStrategy[list[bytes]]
    share: float = 3
    kind: str = "wire"
    steps: tuple[tuple[Any, ...], ...] = ()

    @contextlib.contextmanager
    def open(self) -> Iterator[Reader]:
        """Make the reader, and close it in the end."""
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            reader = self.make(Path(folder))
            try:
                yield reader
            finally:
                getattr(reader, "close", lambda: None)()


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


def machine(target: Target, feeder: Feeder) -> type[RuleBasedStateMachine]:
    """Return a machine of inputs and steps; each example opens the target's reader anew."""

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self._stack = contextlib.ExitStack()
            self._reader = self._stack.enter_context(target.open())

        # The first rule by name makes up the simplest example, which is always tried.
        @rule(step=sampled_from(target.steps))
        def act(self, step: tuple[Any, ...]) -> None:
            attrgetter(step[0])(self._reader)(*step[1:])

        @rule(inputs=target.inputs)
        def process(self, inputs: list[bytes]) -> None:
            for data in inputs:
                feeder.feed(self._reader, data)

        def teardown(self) -> None:
            self._stack.close()

    return Machine


def always(read: Reader) -> Callable[[Path], Reader]:
    """Return how a reader is made that needs no folder."""
    return lambda folder: read


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
    if target.steps:
        search: Callable[..., None] = run_state_machine_as_test
        search(hypothesis.seed(seed)(machine(target, feeder)), settings=chosen)
        return
    with target.open() as read:

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
