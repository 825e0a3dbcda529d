"""The messages for an operator's diagnostics of one device: a ping, and the end of the agent's log.

The coordinator asks on behalf of an operator; the device answers at once, during any work. An agent
that does not know these topics ignores them.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from edgefed.wire import limits
from edgefed.wire.message_parts import Count
from edgefed.wire.messages import Message, Session


def _bounded_lines(lines: tuple[str, ...]) -> tuple[str, ...]:
    if sum(len(line.encode()) for line in lines) > limits.MAX_LOG_BYTES:
        raise ValueError(f"log lines exceed {limits.MAX_LOG_BYTES} bytes")
    return lines


LogLine = Annotated[str, Field(max_length=limits.MAX_LOG_LINE)]
LogLines = Annotated[
    tuple[LogLine, ...], Field(max_length=limits.MAX_LOG_LINES), AfterValidator(_bounded_lines)
]


class Ping(Message):
    """Answer with a ``pong`` at once.

    Attributes:
        nonce: names the ping; the answer carries it.
        session: of the agent; an agent with another session ignores the ping.
    """

    kind = "ping"
    nonce: Session
    session: Session


class Pong(Message):
    """A device's answer to a ping.

    Attributes:
        nonce: of the ping.
        session: of the agent.
    """

    kind = "pong"
    nonce: Session
    session: Session


class LogRequest(Message):
    """Send lines of the agent's log.

    Attributes:
        nonce: names the request; the answer carries it.
        session: of the agent; an agent with another session ignores the request.
        lines: most lines of the answer.
        after: number of the last known line, so that the oldest newer ones are sent; None for the
            newest lines.
    """

    kind = "log_request"
    nonce: Session
    session: Session
    lines: Annotated[int, Field(ge=1, le=limits.MAX_LOG_LINES)]
    after: Count | None = None


class LogTail(Message):
    """Lines of an agent's log, oldest first.

    Attributes:
        nonce: of the request.
        session: of the agent, in which lines are numbered from 1.
        shared: whether the device's owner allows operators to read the log; otherwise there are no
            lines.
        first: number of the first line that is sent; of the next one that will be, without lines.
        lines: without line ends.
    """

    kind = "log_tail"
    nonce: Session
    session: Session
    shared: bool = True
    first: Count
    lines: LogLines = ()


DIAGNOSTIC_MESSAGES: tuple[type[Message], ...] = (Ping, Pong, LogRequest, LogTail)
