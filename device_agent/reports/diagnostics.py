"""Answer an operator's diagnostics of this device: pings, and requests for lines of its log."""

from __future__ import annotations

from device_agent.reports.log_ring import LogRing
from device_agent.reports.publisher import Publisher
from edgefed.wire.diagnostic_messages import LogRequest, LogTail, Ping, Pong
from edgefed.wire.messages import Message


class Diagnostics:
    """Answers at once, during any work of the device.

    Args:
        publisher: sends the answers.
        session: of this agent process; messages for another one are ignored.
        log: the last lines; None where the device's owner does not share them.
    """

    def __init__(self, publisher: Publisher, session: str, log: LogRing | None) -> None:
        self._publisher = publisher
        self._session = session
        self._log = log

    def take(self, message: Message) -> None:
        """Answer a message that is one of these."""
        match message:
            case Ping() if message.session == self._session:
                self._publisher.pong(Pong(nonce=message.nonce, session=self._session))
            case LogRequest() if message.session == self._session:
                self._publisher.log_tail(self._tail(message))

    def _tail(self, asked: LogRequest) -> LogTail:
        if self._log is None:
            return LogTail(nonce=asked.nonce, session=self._session, shared=False, first=0)
        if asked.after is None:
            first, lines = self._log.newest(asked.lines)
        else:
            first, lines = self._log.after(asked.after, asked.lines)
        return LogTail(nonce=asked.nonce, session=self._session, first=first, lines=lines)
