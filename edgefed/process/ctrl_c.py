"""End a program at once on Ctrl-C while it starts, with one line in place of a traceback.

It is the first module that a console script imports. It imports only ``signal`` and modules that
Python has already loaded, because Ctrl-C shows Python's own traceback until the handler is in
place.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130
LINE = "edgefed: error: Interrupted.  [interrupted]\n"


def end_at_once(number: int, frame: object) -> None:
    """End this process in a signal handler: with one line after Ctrl-C, in silence after SIGTERM.

    An exception raised from a handler is lost when it meets an import, a destructor or a callback.
    """
    del frame
    if number == signal.SIGINT:
        os.write(2, LINE.encode())
        os._exit(INTERRUPTED)
    os._exit(0)


def end_at_once_on_ctrl_c() -> None:
    """Let Ctrl-C end this process at once from now on, outside ``interruptible`` blocks."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, end_at_once)
