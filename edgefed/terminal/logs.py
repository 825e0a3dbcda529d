"""The log of a service: one line per record on stderr, as text or JSON."""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from enum import Enum
from typing import Annotated

import typer

from edgefed.process.clock import timestamp
from edgefed.terminal.console import talk
from edgefed.terminal.printable import printable
from edgefed.terminal.progress import log_progress, tell_progress_to

OWN = ("edgefed", "device_agent", "broker")
"""Our own packages; of others, warnings are enough."""


class _OneLine(logging.Formatter):
    """Keeps a message on its line, since names and reasons in it come from other machines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return printable(super().formatMessage(record))


class LogFormat(str, Enum):
    """The format of a service's log."""

    text = "text"
    json = "json"


LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Format of the log.")]


class _JsonLine(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {
            "time": timestamp(moment),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def line_formatter(name: str = "") -> logging.Formatter:
    """Return the formatter of log lines; ``name`` is the part that names the module."""
    return _OneLine(f"%(asctime)s %(levelname)s{name} %(message)s")


def introduce(text: str, form: LogFormat) -> None:
    """Print a note on stderr, as an entry of the log where that is JSON."""
    if form is LogFormat.json:
        logging.getLogger(OWN[0]).info("%s", text)
    else:
        talk(text)


def start_log(
    *, quiet: bool = False, verbose: bool = False, form: LogFormat = LogFormat.text
) -> None:
    """Send log records to stderr.

    Args:
        quiet: warnings only.
        verbose: also records for debugging, with the names of their modules.
        form: of each line.
    """
    tell_progress_to(log_progress)
    name = " %(name)s:" if verbose else ""
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLine() if form is LogFormat.json else line_formatter(name))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    logging.raiseExceptions = False  # a reader of stderr that went away must not end a thread
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    for package in OWN:
        logging.getLogger(package).setLevel(level)
