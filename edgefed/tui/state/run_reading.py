"""Read past runs for a screen in threads; the result of the last request is shown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from textual.screen import Screen

from edgefed.errors import EdgeFedError, UnknownNameError
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.history.recording import Recording
from edgefed.files.writing import file_exists
from edgefed.tui.state.messages import ThreadDone

T = TypeVar("T")


EVENTS = "events.jsonl"
"""The event file in a run's folder."""


def recording_of(run: RunDetails, command: str) -> Recording:
    """Return the recording of a run, from its folder on this machine.

    Args:
        run: with its folder.
        command: replays it on the coordinator's machine.

    Raises:
        UnknownNameError: ``recording.missing``: this machine does not have its events.
        StorageError: they cannot be read.
        DataError: there are none.
    """
    path = Path(run.folder) / EVENTS
    if not (run.folder and file_exists(path)):
        raise UnknownNameError(
            f"The events of {run.run} are not on this machine.",
            code="recording.missing",
            hint=f"on the coordinator's machine: {command}",
        )
    return Recording.read_nonempty(path)


def read_or_problem(read: Callable[[], T]) -> tuple[T | None, str]:
    """Return the result of ``read`` and "", or None and the problem, in a line or two."""
    try:
        return read(), ""
    except EdgeFedError as error:
        return None, f"{error.message}\n{error.hint}".rstrip()
    except Exception as error:
        return None, f"The runs cannot be read: {type(error).__name__}: {error}"


class RunReading(Generic[T]):
    """Readings of one kind for one screen, which may overlap.

    Args:
        screen: shows them, and outlives them.
        then: takes the result and "", or None and the problem, in the app's thread; never that of
            an older reading after a newer one.
    """

    def __init__(self, screen: Screen[Any], then: Callable[[T | None, str], None]) -> None:
        self._screen = screen
        self._then = then
        self._asked = 0
        self._reported = 0

    def ask(self, read: Callable[[], T]) -> None:
        """Read in a thread of its own."""
        self._asked += 1
        number, app = self._asked, self._screen.app

        def work() -> None:
            app.post_message(ThreadDone(partial(self._tell, number, *read_or_problem(read))))

        self._screen.run_worker(work, thread=True, group="runs")

    def _tell(self, number: int, result: T | None, problem: str) -> None:
        if number > self._reported and self._screen.is_attached:
            self._reported = number
            self._then(result, problem)
