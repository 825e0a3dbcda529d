"""Ctrl-C and SIGTERM: a program ends at once during start-up, and shuts down cleanly afterwards.

A SIGINT that was ignored when the program was started, for instance by ``nohup`` or ``&`` in a
script, stays ignored.
"""

from __future__ import annotations

import _thread
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from edgefed.process.ctrl_c import end_at_once


def call_soon(act: Callable[[], object]) -> None:
    """Call a function on a thread of its own, from a signal handler.

    A handler runs inside whatever the main thread does, perhaps inside a lock that ``act`` takes,
    such as that of a ``threading.Event``; so does the start of a ``threading.Thread``.
    """
    _thread.start_new_thread(act, ())


class StopSignals:
    """Handles the signals that end a service.

    Attributes:
        number: of the received signal; 0 for none.
    """

    def __init__(self) -> None:
        self.number = 0
        self._stop: Callable[[], None] | None = None

    def call(self, stop: Callable[[], None]) -> None:
        """Shut down cleanly from now on: ``stop`` is called on a thread of its own.

        A second signal ends at once.
        """
        self._stop = stop

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self._stop is None:
            end_at_once(number, frame)
        elif self.number:
            os._exit(128 + number)
        else:
            self.number = number
            call_soon(self._stop)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` inside the block, unless it has another handler."""
    if signal.getsignal(signal.SIGINT) != end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end_at_once)
        _forget_interrupted_source()


def _forget_interrupted_source() -> None:
    """Let this process end with its own exit code after Ctrl-C inside ``exec`` of source text.

    CPython notes an interrupt that leaves executed source text, as ``dataclass`` and ``namedtuple``
    use it, and kills a process started with ``python -m`` by SIGINT at its end, although the
    interrupt was caught. Executing another text takes the note back.
    """
    exec("")


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``SystemExit`` inside the block, so that files are left intact.

    Processes that are forked inside the block end by these signals as usual.
    """
    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != own:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        # The exit status that a shell gives to a program ended by this signal
        raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    taken = {number: old for number, old in before.items() if old == signal.SIG_DFL}
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, old in taken.items():
            signal.signal(number, old)


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Take SIGINT and SIGTERM inside the block."""
    signals = StopSignals()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    taken = {number: old for number, old in before.items() if old != signal.SIG_IGN}
    for number in taken:
        signal.signal(number, signals.take)
    try:
        yield signals
    finally:
        for number, old in taken.items():
            signal.signal(number, old)
