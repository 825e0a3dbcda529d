"""Run a trial in a process of its own, which is forked: it has the caller's classes and functions.

The process reports through a pipe. It ends when the other side of the pipe is gone, so that a sweep
that is killed leaves no run at work.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from edgefed.errors import EdgeFedError
from edgefed.simulator.process_pool import undisturbed
from edgefed.simulator.sweep.one_trial import TrialFailure, TrialSetup, run_trial
from edgefed.simulator.sweep.plan import Trial
from edgefed.terminal.progress import log_progress, tell_progress_to


class TrialProcess:
    """A trial at work.

    Args:
        number: of the trial, for reports.
        trial: to run; the process keeps its result.
        setup: of the sweep.
        others: trials at work.

    Raises:
        EdgeFedError: the system gives no process, or no memory for one.
    """

    def __init__(
        self, number: int, trial: Trial, setup: TrialSetup, others: Iterable[TrialProcess]
    ) -> None:
        self.number = number
        self.trial = trial
        self.failure: TrialFailure | None = None
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        # A process that held another's pipe open would keep it from noticing that we are gone.
        strange = [self._pipe, *(other._pipe for other in others)]
        # It is not daemonic: a daemonic process may have no workers.
        self._process: BaseProcess = context.Process(
            target=_run, args=(theirs, strange, trial, setup)
        )
        try:
            with undisturbed():
                self._process.start()
        except OSError as error:
            self._pipe.close()
            raise EdgeFedError(
                f"A process for a run cannot be started: {error.strerror or error}.",
                code="sweep.process",
                hint="try fewer at once with --jobs",
            ) from error
        finally:
            # With this end open here as well, the pipe would not end with the process
            theirs.close()

    def received(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next report, which is there or will be; None once the process has ended.

        Its failure is in ``failure`` then; None if it did its work.

        Raises:
            EdgeFedError: the sweep cannot go on.
        """
        try:
            state, more = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            # A failure that the process reported says more than its exit code
            if self._process.exitcode and self.failure is None:
                self.failure = TrialFailure(_death(self._process.exitcode))
            return None
        if state == "broken":
            raise more["error"]
        if state == "failed":
            self.failure = more["failure"]
            # The end of the pipe follows
            return self.received()
        return state, more

    def end(self) -> None:
        """End the process if it is at work."""
        self._pipe.close()
        self._process.terminate()
        self._process.join()
        self._process.close()


def ready(processes: Sequence[TrialProcess]) -> list[TrialProcess]:
    """Wait until trials have reports, or have ended, and return these."""
    by_pipe = {id(process._pipe): process for process in processes}
    return [by_pipe[id(pipe)] for pipe in wait([process._pipe for process in processes])]


def _death(code: int) -> str:
    """Return what an exit code says of a process that did not report its failure."""
    if code == -signal.SIGKILL:
        return "its process was killed, as the system does when memory runs out"
    if code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"


# -- in the trial's process -----------------------------------------------------------------------


def _run(pipe: Connection, strange: Sequence[Connection], trial: Trial, setup: TrialSetup) -> None:
    """Run the trial; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    for connection in strange:
        connection.close()
    tell_progress_to(log_progress)  # the bar is the parent's
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()

    def report(state: str, **more: object) -> None:
        pipe.send((state, more))

    try:
        ended = run_trial(trial, setup, report)
        if isinstance(ended, TrialFailure):
            report("failed", failure=ended)
    except EdgeFedError as error:
        report("broken", error=error)


def _end_with_parent(pipe: Connection) -> None:
    """End this process when the parent has; nothing else ever comes through the pipe."""
    with suppress(OSError):
        pipe.poll(None)
    os._exit(1)
