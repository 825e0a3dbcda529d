"""A coordinator's orders about devices, and its pings and requests for logs, without waiting."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from benchmarks.fuzzing.broker_message import UnconnectedLink
from edgefed.clock import Clock
from edgefed.coordinator.device_actions import device_actions
from edgefed.coordinator.device_diagnostics import DeviceDiagnostics, _Question
from edgefed.coordinator.device_orders import DeviceOrders
from edgefed.coordinator.device_pauses import DevicePauses
from edgefed.coordinator.device_registry import DeviceRegistry
from edgefed.coordinator.event_journal import EventJournal
from edgefed.coordinator.request_actions import Action
from edgefed.coordinator.trust_scores import TrustScores
from edgefed.wire.topics import Topics

NONCE = "0" * 8


class ImpatientDiagnostics(DeviceDiagnostics):
    """Waits for no answer."""

    def expect(self, nonces: Iterable[str], devices: Collection[str], session: str) -> None:
        """Take answers to these nonces from now on, each from one of the devices."""
        for nonce, device in zip(nonces, (*devices,) * 1000, strict=False):
            self._open[nonce] = _Question(device, session, nonce, 0.0)

    def _wait(self, asked: Iterable[_Question], timeout: float) -> None:
        del asked, timeout


def fuzz_diagnostics(
    link: UnconnectedLink,
    topics: Topics,
    registry: DeviceRegistry,
    journal: EventJournal,
    clock: Clock,
) -> ImpatientDiagnostics:
    """Return what pings devices and asks for their logs."""
    return ImpatientDiagnostics(link, topics, registry, journal, clock, lambda: NONCE)


def fuzz_actions(
    registry: DeviceRegistry,
    journal: EventJournal,
    clock: Clock,
    diagnostics: DeviceDiagnostics,
) -> Mapping[str, Action]:
    """Return the actions about devices, which change only what is in memory."""
    orders = DeviceOrders(
        registry, TrustScores(), DevicePauses(), journal, clock, lambda device: None
    )
    return device_actions(orders, diagnostics)
