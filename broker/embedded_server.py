"""Run amqtt's server in this process until a signal, with additions for the demo."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import Any

from amqtt.adapters import StreamReaderAdapter, StreamWriterAdapter
from amqtt.broker import Broker
from amqtt.errors import BrokerError
from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from broker.address import bind_host
from edgefed.config.values.address import Address
from edgefed.errors import UnreachableError
from edgefed.wire.limits import MAX_PACKET_BYTES

_STOP_SECONDS = 3.0


class LetEverybodyIn(BaseAuthPlugin):  # type: ignore[misc]  # amqtt has no types
    """Accepts every client, as Mosquitto on loopback does.

    amqtt's own plug-in either refuses clients without a user name, or treats all as anonymous and
    keeps no messages for them.
    """

    async def authenticate(self, *, session: Session) -> bool:
        """Return that the session is accepted."""
        del session
        return True


class LimitedReader(StreamReaderAdapter):  # type: ignore[misc]
    """Ends the stream at a packet that is larger than a packet may be, before reading it."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self._cut = False

    async def read(self, n: int = -1) -> bytes:
        """Return ``n`` bytes.

        Raises:
            asyncio.IncompleteReadError: they are too many, or the stream ended.
        """
        self._cut = self._cut or n > MAX_PACKET_BYTES
        if self._cut:
            raise asyncio.IncompleteReadError(b"", n)
        data: bytes = await super().read(n)
        return data


class DemoBroker(Broker):  # type: ignore[misc]
    """amqtt's broker with a packet limit, and with retained messages for their subscribers only."""

    async def stream_connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, listener_name: str
    ) -> None:
        """Serve one client."""
        limited = LimitedReader(reader)
        await self._client_connected(listener_name, limited, StreamWriterAdapter(writer))

    async def _publish_retained_messages_for_subscription(
        self, subscription: tuple[str, int], session: Session
    ) -> None:
        """Hand over retained messages, unless the subscription is another client's.

        amqtt asks for those of every subscription it knows whenever somebody connects.
        """
        subscribers = self._subscriptions.get(subscription[0], [])
        if any(subscriber is session for subscriber, _ in subscribers):
            await super()._publish_retained_messages_for_subscription(subscription, session)


def settings(address: Address) -> dict[str, Any]:
    """Return amqtt's configuration for the address."""
    host = bind_host(address)
    bind = f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
    return {
        "listeners": {"default": {"type": "tcp", "bind": bind}},
        "plugins": {f"{__name__}.{LetEverybodyIn.__name__}": {}},
    }


def serve(address: Address) -> None:
    """Serve clients until SIGTERM or SIGINT.

    Raises:
        UnreachableError: the address cannot be listened on.
    """
    logging.basicConfig(level=logging.ERROR)
    # Its errors at start reach the user as an exception; those later are clients that went away.
    for name in ("amqtt", "transitions"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    asyncio.run(_serve(address))


async def _serve(address: Address) -> None:
    loop = asyncio.get_running_loop()
    end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    broker = DemoBroker(settings(address))
    try:
        await broker.start()
    except BrokerError as error:
        raise UnreachableError(str(error), code="broker.start") from error
    await end.wait()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(broker.shutdown(), _STOP_SECONDS)
