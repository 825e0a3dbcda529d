"""Begin and end a command line so that Ctrl-C is told in one line, at whatever moment it comes.

It imports nothing that takes time; a console script that began with the command line itself would
show a traceback of whatever import was interrupted.
"""

from __future__ import annotations

import sys

from edgefed.ctrl_c import INTERRUPTED, LINE, end_at_once_on_ctrl_c


def begin(module: str) -> None:
    """Import a module and call its ``main``."""
    end_at_once_on_ctrl_c()
    from importlib import import_module

    try:
        import_module(module).main()
    except KeyboardInterrupt:
        sys.stderr.write(LINE)
        sys.exit(INTERRUPTED)
