"""Carry out an operator's orders about devices: forget, pause, resume, quarantine, release."""

from __future__ import annotations

from collections.abc import Callable

from edgefed.coordinator.devices.device_pauses import NOT_PAUSED, DevicePauses, OperatorPause
from edgefed.coordinator.devices.device_registry import DeviceRegistry
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import UnknownNameError
from edgefed.events.base.coordinator_states import RELEASE
from edgefed.process.clock import Clock, timestamp


class DeviceOrders:
    """Carries out orders about devices; safe from any thread.

    Args:
        registry: the devices that are connected.
        trust: the quarantined devices.
        pauses: the paused devices.
        journal: receives the changes.
        clock: for timestamps.
        clear: deletes a device's retained messages from the broker.
    """

    def __init__(
        self,
        registry: DeviceRegistry,
        trust: TrustScores,
        pauses: DevicePauses,
        journal: EventJournal,
        clock: Clock,
        clear: Callable[[str], object],
    ) -> None:
        self._registry = registry
        self._trust = trust
        self._pauses = pauses
        self._journal = journal
        self._clock = clock
        self._clear = clear

    def forget(self, device: str) -> list[str]:
        """Forget a lost device, or every lost device for an empty name; return their names.

        The broker's retained messages of a device are cleared, so that a restart does not restore
        it. Its trust score stays, including a quarantine, and so does a pause.

        Raises:
            UnknownNameError: there is no such device.
            NotAllowedError: it is online.
        """
        forgotten = [device] if device else self._registry.lost()
        for name in forgotten:
            self._registry.forget(name)
            self._clear(name)
        return forgotten

    def quarantine(self, device: str, operator: str) -> None:
        """Stop asking a device, and refuse its further replies.

        Raises:
            UnknownNameError: ``device.unknown``: the device never joined.
            UsageError: ``device.quarantined``: it is quarantined already.
        """
        self._check_known(device)
        self._trust.quarantine(device, operator, timestamp(self._clock.now()))
        self._tell()

    def release(self, device: str) -> None:
        """End a device's quarantine, and its exclusion for the samples that it announces.

        Raises:
            UnknownNameError: ``device.not_quarantined``: it is neither.
        """
        announced = self._trust.announced.release(device)
        if not announced or self._trust.is_quarantined(device):
            self._trust.release(device, timestamp(self._clock.now()))
        self._tell()
        shown = (view for view in self._journal.snapshot.devices if view.device == device)
        if announced and any(RELEASE in view.excluded for view in shown):
            self._journal.emit("device", device=device, excluded="")
        self._registry.wake()

    def pause(self, device: str, operator: str, reason: str) -> None:
        """Stop asking a device until it is resumed; it may finish its current task.

        Raises:
            UnknownNameError: ``device.unknown``: the device never joined.
            UsageError: ``device.paused``: it is paused already.
        """
        self._check_known(device)
        pause = OperatorPause(device, operator, reason, timestamp(self._clock.now()))
        self._pauses.pause(pause)
        self._journal.emit("device", device=device, **pause.fields())

    def resume(self, device: str) -> None:
        """End a device's pause.

        Raises:
            UnknownNameError: ``device.not_paused``: no operator has paused it.
        """
        self._pauses.resume(device)
        if self._is_known(device):  # else an event would bring back a device that was forgotten
            self._journal.emit("device", device=device, **NOT_PAUSED)
        self._registry.wake()

    def _is_known(self, device: str) -> bool:
        return any(view.device == device for view in self._journal.snapshot.devices)

    def _check_known(self, device: str) -> None:
        if not self._is_known(device):
            raise UnknownNameError(
                f"No device {device}.", code="device.unknown", hint="edgefed device list"
            )

    def _tell(self) -> None:
        """Emit an event for each device whose standing changed."""
        for change in self._trust.changes():
            self._journal.emit("device", **change)
