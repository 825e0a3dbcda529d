"""Feed a target inputs in a process of its own, and report what came of them."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from benchmarks.fuzzing.targets import Reader, Target
from edgefed.errors import EdgeFedError

HANG = 20
"""Seconds of processor time after which one input has hung."""

MEMORY = 1024 * 2**20
"""Bytes of address space that inputs may take beside what the program takes before them."""

MAX_CORPUS_BYTES = 4096
"""Largest input that is kept for the corpus."""

KEPT = 4
"""Inputs of each outcome that are kept for the corpus."""


@dataclass
class Report:
    """What came of a target's inputs.

    Attributes:
        outcomes: inputs by the code of the error; ``ok`` for those that were read.
        crashes: what was raised beside errors of ours, with the number of the input.
        memory: bytes by which the largest resident size grew.
        slowest: seconds of the slowest input, and its number.
    """

    target: str
    inputs: int = 0
    seconds: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    crashes: list[str] = field(default_factory=list)
    memory: int = 0
    slowest: tuple[float, int] = (0.0, 0)


class HungError(BaseException):
    """One input took too long; not caught by what catches errors."""


def draws_of(target: str, seed: int, number: int) -> random.Random:
    """Return the random generator of one input."""
    return random.Random(f"{target} {seed} {number}")


def outcome(read: Reader, data: bytes) -> str:
    """Return what came of an input: ``ok`` or an error's code.

    Raises:
        AssertionError: the error says nothing, or hides that memory was short.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            read(data)
    except EdgeFedError as error:
        assert error.message, "the error has no message"
        assert not isinstance(error.__cause__, MemoryError), "memory was short"
        return error.code
    return "ok"


def run(target: Target, inputs: int, seed: int, keep: Callable[[str, bytes], None]) -> Report:
    """Feed a target so many inputs and return what came of them.

    Args:
        target: what reads them.
        inputs: how many.
        seed: of the inputs.
        keep: takes the first inputs of each outcome.
    """
    report, outcomes = Report(target.name), Counter[str]()
    signal.signal(signal.SIGVTALRM, _hung)
    with tempfile.TemporaryDirectory() as text, target.open(Path(text)) as read:
        begun, before = time.monotonic(), _resident()
        for number in range(inputs):
            data = target.make(draws_of(target.name, seed, number))
            started = time.perf_counter()
            signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
            try:
                found = outcome(read, data)
            except (Exception, HungError) as error:
                found = f"crash: {type(error).__name__}"
                if outcomes[found] < 5:
                    told = "".join(traceback.format_exception(error)[-3:])
                    report.crashes.append(f"{target.name} {seed} {number}: {told}")
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            report.slowest = max(report.slowest, (time.perf_counter() - started, number))
            if outcomes[found] < KEPT and len(data) <= MAX_CORPUS_BYTES:
                keep(found, data)
            outcomes[found] += 1
        report.inputs, report.seconds = inputs, time.monotonic() - begun
        report.memory = max(0, _resident() - before)
    report.outcomes = dict(outcomes.most_common())
    return report


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _hung(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise HungError


def in_own_process(target: str, inputs: int, seed: int, corpus: Path | None = None) -> Report:
    """Run a target in a process with bounded memory; one that ends it has crashed it."""
    words = [sys.executable, "-m", "benchmarks.fuzzing.harness", target, str(inputs), str(seed)]
    ended = subprocess.run(
        [*words, str(corpus or "")], stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        return Report(target, crashes=[f"{target}: the process ended with {ended.returncode}"])
    return Report(**json.loads(ended.stdout.splitlines()[-1]))


def saver(folder: Path) -> Callable[[str, bytes], None]:
    """Return what writes inputs into a corpus, named by what came of them and a number."""
    counts = Counter[str]()

    def keep(found: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        counts[found] += 1
        (folder / f"{found.replace(': ', '-')}-{counts[found]}").write_bytes(data)

    return keep


def main() -> None:
    """Run one target and print its report as JSON."""
    from benchmarks.fuzzing.all_targets import TARGETS

    name, inputs, seed, corpus = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    keep = saver(Path(corpus) / name) if corpus else lambda found, data: None
    print(json.dumps(asdict(run(TARGETS[name], int(inputs), int(seed), keep))))
    sys.stdout.flush()
    os._exit(0)  # threads of a target may still be at work


if __name__ == "__main__":
    main()
