"""The tree of errors: each has a code, a message, a hint, and an exit code.

EdgeFedError                     1
├── UsageError                   2   wrong usage, wrong setting
│   ├── RecipeError              2   a recipe or settings file that cannot be used
│   └── PluginError              2   a plug-in of an installed package that cannot be used
│       └── PluginFailedError    2   a plug-in whose code failed
├── UnreachableError             3   broker or coordinator does not answer
├── NotAllowedError              4   not enrolled, refused, or owned by somebody else
├── UnknownNameError             5   no such run, device, algorithm
├── TimeLimitError               6   time limit or quorum not reached
├── PartlyDoneError              7   some devices failed
├── CheckFailedError             8   a check found problems
├── UnmergeableError             1   answers that have no valid merge; they are asked for again
├── WireError                    1   bytes that are not a valid message, blob or tensor
├── DataError                    1   data that cannot be trained on
│   └── MissingDataError         2   data that is missing; a service must not be restarted
├── StorageError                 1   a file that cannot be read or written
└── InterruptedRunError        130   Ctrl-C
"""

from __future__ import annotations

DIVERGED = "Training diverged"
"""How a reason begins, on a device and on the wire, when weights or loss left all bounds."""

LOWER_RATE = "lower training.learning_rate"
"""Advice after a training that diverged."""


class EdgeFedError(Exception):
    """An error that the user can understand.

    Args:
        message: one sentence that names the problem and its object.
        code: a stable dotted name, such as ``broker.unreachable``.
        hint: advice; a command where there is one.
    """

    exit_code = 1
    default_code = "internal"

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hint = hint

    def as_line(self) -> str:
        """Return message, code and hint in one line, for a log or for another machine."""
        text = f"{self.message}  [{self.code}]"
        return f"{text}; try: {self.hint}" if self.hint else text

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the error as the object that ``--json`` prints on stderr."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


class UsageError(EdgeFedError):
    """A command or a setting was used wrongly."""

    exit_code = 2
    default_code = "usage"


class RecipeError(UsageError):
    """A recipe or a settings file cannot be used."""

    default_code = "recipe.invalid"


class PluginError(UsageError):
    """A plug-in of an installed package cannot be used."""

    default_code = "plugin"


class PluginFailedError(PluginError):
    """The code of a plug-in failed."""


class UnreachableError(EdgeFedError):
    """The broker or the coordinator does not answer."""

    exit_code = 3
    default_code = "broker.unreachable"


class NotAllowedError(EdgeFedError):
    """The other side refuses, or the object belongs to another party."""

    exit_code = 4
    default_code = "not_allowed"


class UnknownNameError(EdgeFedError):
    """There is no run, device or algorithm of that name."""

    exit_code = 5
    default_code = "unknown"


class TimeLimitError(EdgeFedError):
    """A time limit passed or a quorum was missed."""

    exit_code = 6
    default_code = "time_limit"


class PartlyDoneError(EdgeFedError):
    """Some devices failed and are listed."""

    exit_code = 7
    default_code = "partly_done"


class CheckFailedError(EdgeFedError):
    """A check (``doctor``, ``config check``) found problems."""

    exit_code = 8
    default_code = "check.failed"


class UnmergeableError(EdgeFedError):
    """The answers to an exchange have no valid merge.

    The round is asked again, as after a missed quorum.

    Args:
        message: the problem, as the end of a sentence.
        code: a stable dotted name.
        devices: those whose answers are the cause, where that is known.
    """

    default_code = "round.unmergeable"

    def __init__(self, message: str, *, code: str = "", devices: tuple[str, ...] = ()) -> None:
        super().__init__(message, code=code)
        self.devices = devices


class WireError(EdgeFedError):
    """Bytes that are not an EdgeFed message, blob or tensor."""

    default_code = "wire.invalid"


class DataError(EdgeFedError):
    """Data that cannot be trained on."""

    default_code = "data.invalid"


class MissingDataError(DataError):
    """A file, a folder or a package with data is missing."""

    exit_code = 2
    default_code = "data.missing"


class StorageError(EdgeFedError):
    """A file cannot be read or written."""

    default_code = "storage.failed"


DISK_MAY_RETURN = frozenset(("storage.full", "storage.moved", "storage.read_only"))
"""Codes of a disk that a person can mend; coordinator and agent wait and repeat the write."""


class InterruptedRunError(EdgeFedError):
    """The user pressed Ctrl-C."""

    exit_code = 130
    default_code = "interrupted"
