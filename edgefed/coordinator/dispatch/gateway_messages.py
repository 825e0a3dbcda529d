"""The messages of gateways: their announcements, and those of the devices at their sites."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.sites import Sites
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.journal.rate_limited_notes import RateLimitedNotes
from edgefed.errors import WireError
from edgefed.transport.link import Link
from edgefed.wire.messages import Birth, Message, Progress
from edgefed.wire.site_messages import FROM_DEVICES, GatewayState, SiteMessages, unpack_batch
from edgefed.wire.topics import Topics


@dataclass(frozen=True)
class SiteDeviceHandler:
    """The dispatcher's functions for the messages of devices behind gateways.

    Attributes:
        join: takes an announcement or a will of a device.
        take: takes any other message, with its size in bytes.
    """

    join: Callable[[str, Birth], None]
    take: Callable[[str, Message, int], None]


class GatewayMessages:
    """Takes the messages of gateways; owned by the dispatcher's thread.

    Args:
        sites: which gateway speaks for which device.
        registry: the connected devices.
        handler: takes the messages of their devices.
        link, topics: for the answer to an announcement.
        journal, notes: receive notes and warnings for operators.
    """

    def __init__(
        self,
        sites: Sites,
        registry: DeviceRegistry,
        handler: SiteDeviceHandler,
        link: Link,
        topics: Topics,
        journal: EventJournal,
        notes: RateLimitedNotes,
    ) -> None:
        self._sites = sites
        self._registry = registry
        self._handler = handler
        self._link = link
        self._topics = topics
        self._journal = journal
        self._notes = notes

    def meet(self, gateway: str, state: GatewayState) -> None:
        """Take a gateway's announcement or will, and ask for its devices."""
        # A name is of a device or of a gateway, never of both
        if self._registry.knows(gateway):
            self._notes.warn(gateway, "gateway", "a device of this name is connected; refused")
            return
        # A will of a gateway that has not announced itself here
        if not self._sites.is_gateway(gateway) and state.status == "lost":
            return
        before = self._sites.session(gateway)
        if self._sites.meet(gateway, state):
            self.lose(gateway)
        if state.status == "lost":
            if before == state.session:
                self._journal.emit("note", text=f"gateway {gateway} is lost, with its devices")
            return
        # A gateway repeats its announcement, which is noted once
        if before != state.session:
            self._journal.emit("note", text=f"gateway {gateway} of site {state.site} is connected")
        # An empty batch asks for the announcements of its devices
        self._link.send(self._topics.down_site(gateway), SiteMessages(session=state.session))

    def lose(self, gateway: str) -> None:
        """Note that the devices of a gateway are lost."""
        for device in self._sites.devices(gateway):
            session = self._registry.session(device)
            if session:
                reason = f"gateway {gateway} is lost"
                farewell = Progress(session=session, state="lost", reason=reason)
                self._registry.take_farewell(device, farewell)
                # As if the broker of the device had published its will
                self._handler.join(device, Birth(session=session, status="lost"))

    def take(self, gateway: str, messages: SiteMessages) -> None:
        """Take the messages of devices from a gateway that has announced itself."""
        # Of another life of the gateway, whose devices will be announced again
        if self._sites.session(gateway) != messages.session:
            return
        try:
            for device, message, size in unpack_batch(messages.batch, *FROM_DEVICES):
                self._take(gateway, device, message, size)
        except WireError as error:
            self._notes.warn(gateway, "site", error.message)

    def _take(self, gateway: str, device: str, message: Message, size: int) -> None:
        if isinstance(message, Birth):
            online = self._registry.online(device)
            refused = self._sites.admit(gateway, device, message, online=online)
            if refused:
                text = f"device {device} was refused: {refused}"
                self._notes.warn(gateway, text, text)
            elif self._is_news(device, message):
                self._handler.join(device, message)
        elif self._sites.gateway_of(device) == gateway and self._registry.knows(device):
            self._handler.take(device, message, size)
        elif self._registry.knows(device):  # a device that was refused has had its warning
            self._notes.warn(gateway, "sender", f"it speaks for {device}, which is not at its site")

    def _is_news(self, device: str, birth: Birth) -> bool:
        """Whether an announcement says more than the last one: a gateway repeats them."""
        known = self._registry.announced(device)
        if known is None:
            return True
        before = known[0]
        return (birth.session, birth.status, birth.revision) != (
            before.session,
            before.status,
            before.revision,
        )
