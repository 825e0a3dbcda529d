"""Start and end a command line so that Ctrl-C is reported in one line at any moment.

It makes no slow imports. A console script that imported the command line directly would print a
traceback if Ctrl-C interrupted an import.
"""

from __future__ import annotations

import os
import sys

from edgefed.process.ctrl_c import INTERRUPTED, LINE, end_at_once_on_ctrl_c


def begin(module: str) -> None:
    """Import a module and call its ``main``."""
    end_at_once_on_ctrl_c()
    if _is_completing():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    from importlib import import_module

    try:
        import_module(module).main()
    except KeyboardInterrupt:
        sys.stderr.write(LINE)
        sys.exit(INTERRUPTED)


def _is_completing() -> bool:
    """Whether a shell asks for completions; a word on stderr would garble its line."""
    return any(os.environ.get(f"_{name}_COMPLETE") for name in ("EDGEFED", "EDGEFED_AGENT"))
