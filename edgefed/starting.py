"""Begin a command line so that Ctrl-C is told in one line even while its modules are imported.

It imports nothing that takes time; a console script that began with the command line itself would
show a traceback of whatever import was interrupted. The process ends at once: a module may swallow
a ``KeyboardInterrupt`` inside its import, or turn it into another error.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130
TOLD = "edgefed: error: Interrupted.  [interrupted]\n"


def begin(module: str) -> None:
    """Import a module and call its ``main``."""
    try:
        import signal

        # A shell that ignores Ctrl-C for a program in the background is to be left alone.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)
        __import__(module)
        sys.modules[module].main()
    except KeyboardInterrupt:
        sys.stderr.write(TOLD)
        sys.exit(INTERRUPTED)


def begun() -> None:
    """Let Ctrl-C raise ``KeyboardInterrupt`` again: from now on somebody handles it."""
    import signal

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    """Say it and end, whatever is imported at the moment."""
    import os

    del number, frame
    os.write(2, TOLD.encode())
    os._exit(INTERRUPTED)
