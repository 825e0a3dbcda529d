"""Connect a command to its fleet's coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgefed.cli.context import Globals

if TYPE_CHECKING:
    from edgefed.control.coordinator_client import CoordinatorClient


@contextmanager
def connected(options: Globals) -> Iterator[CoordinatorClient]:
    """Yield the fleet's coordinator, connected within the block.

    Raises:
        UnreachableError: there is no broker.
    """
    from edgefed.config.broker_address import broker_address
    from edgefed.control.coordinator_client import CoordinatorClient

    settings = options.settings().value
    coordinator = CoordinatorClient(broker_address(settings), settings.fleet)
    coordinator.connect()
    try:
        yield coordinator
    finally:
        coordinator.close()
