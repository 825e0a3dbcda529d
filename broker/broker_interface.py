"""The interface of a broker that was started here, for any broker program."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TypeVar

from broker.child_process import ChildProcess
from edgefed.config.values.address import Address

BrokerT = TypeVar("BrokerT", bound="BrokerProcess")


class BrokerProcess:
    """A broker in a child process. It ends with ``stop``, or with this process.

    Attributes:
        address: of its listener.
    """

    def __init__(self, address: Address, child: ChildProcess) -> None:
        self.address = address
        self._child = child

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self._child.pid

    @property
    def log(self) -> Path:
        """The file that the broker writes its log to."""
        return self._child.log

    def is_running(self) -> bool:
        """Whether the broker has not ended."""
        return self._child.is_running()

    def stop(self) -> None:
        """End the broker; Mosquitto saves its retained messages first, the demo broker nothing."""
        self._child.stop()

    def __enter__(self: BrokerT) -> BrokerT:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
