"""The gateways of a fleet, and the devices for which each of them speaks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from edgefed.errors import NotAllowedError
from edgefed.terminal.units import counted
from edgefed.wire.messages import Birth
from edgefed.wire.site_messages import GatewayState

Limits = tuple[int, int]
"""Most devices of a site, and most samples of all of them."""

NO_LIMITS: Limits = (2**53, 2**53)


@dataclass
class _Gateway:
    session: str
    online: bool
    site: str
    samples: dict[str, int] = field(default_factory=dict)


class Sites:
    """Which gateway speaks for which device; safe from any thread.

    A device belongs to one site at a time. It may appear at another one only after it was lost at
    the first, and never under the name of a device that is connected without a gateway.

    Args:
        is_direct: whether a device is enrolled in this fleet itself, or connected to its broker.
        limits: returns the most devices and samples that a gateway's invitation allows.
    """

    def __init__(
        self,
        is_direct: Callable[[str], bool],
        limits: Callable[[str], Limits] = lambda gateway: NO_LIMITS,
    ) -> None:
        self._is_direct = is_direct
        self._limits = limits
        self._gateways: dict[str, _Gateway] = {}
        self._site: dict[str, str] = {}
        self._lock = threading.Lock()

    def is_gateway(self, name: str) -> bool:
        """Whether a party has announced itself as a gateway."""
        return name in self._gateways

    def gateway_of(self, device: str) -> str:
        """Return the gateway that speaks for a device; empty for one without."""
        return self._site.get(device, "")

    def owns(self, device: str) -> bool:
        """Whether a device is at a site."""
        return device in self._site

    def session(self, gateway: str) -> str:
        """Return the current session of a gateway; empty when it is not there."""
        known = self._gateways.get(gateway)
        return known.session if known is not None and known.online else ""

    def limits(self, gateway: str) -> tuple[int | None, int | None]:
        """Return the most devices and samples of a gateway's site; None for no limit."""
        devices, samples = self._limits(gateway)
        return (devices, samples) if (devices, samples) != NO_LIMITS else (None, None)

    def devices(self, gateway: str) -> list[str]:
        """Return the devices of a gateway's site."""
        with self._lock:
            return [device for device, its in self._site.items() if its == gateway]

    def all(self) -> list[tuple[str, str, dict[str, int]]]:
        """Return each gateway, its site, and the samples of its devices by name."""
        with self._lock:
            known = sorted(self._gateways.items())
            return [(name, gateway.site, dict(gateway.samples)) for name, gateway in known]

    def meet(self, gateway: str, state: GatewayState) -> bool:
        """Take a gateway's announcement or will; return whether its devices are lost by it.

        They are by its will, and by a new session: whatever it knew before is gone.
        """
        with self._lock:
            known = self._gateways.get(gateway)
            same = known is not None and known.session == state.session
            if state.status == "lost":
                if known is None or not same:
                    return False
                known.online = False
                return True
            if known is None:
                self._gateways[gateway] = _Gateway(state.session, True, state.site)
                return False
            known.session, known.online, known.site = state.session, True, state.site
            return not same

    def admit(self, gateway: str, device: str, birth: Birth, *, online: bool) -> str:
        """Note that a device is at a site, or return why it cannot be there.

        Args:
            gateway: its gateway.
            device: its name.
            birth: its announcement.
            online: whether a device of this name is connected now.
        """
        with self._lock:
            its = self._site.get(device, "")
            if not its and self._is_direct(device):
                return f"{device} is a device of this fleet without a gateway"
            if its not in ("", gateway) and online:
                return f"{device} is at site {its}"
            known, (devices, samples) = self._gateways[gateway], self._limits(gateway)
            others = {name: n for name, n in known.samples.items() if name != device}
            if len(others) >= devices:
                return _beyond(counted(devices, "device"))
            if sum(others.values()) + birth.samples > samples:
                return _beyond(counted(samples, "sample"))
            if its not in ("", gateway):
                self._gateways[its].samples.pop(device, None)
            self._site[device] = gateway
            known.samples[device] = birth.samples
            return ""

    def forget(self, device: str) -> None:
        """Forget a device that is no longer wanted."""
        with self._lock:
            gateway = self._site.pop(device, "")
            if gateway:
                self._gateways[gateway].samples.pop(device, None)

    def remove(self, gateway: str) -> list[str]:
        """Forget a gateway that is no longer a member; return its devices."""
        devices = self.devices(gateway)
        with self._lock:
            self._gateways.pop(gateway, None)
            for device in devices:
                self._site.pop(device, None)
        return devices


def _beyond(limit: str) -> str:
    return (
        f"its gateway was invited with {limit} at most, those of lost devices included;"
        " edgefed device forget NAME makes room"
    )


def relays_across_sites(device: str, other: str) -> NotAllowedError:
    """Return the error for a run whose devices, at different sites, send each other data."""
    return NotAllowedError(
        f"Devices {device} and {other} are at different sites, and this run has devices send each"
        " other data.",
        code="site.relays",
        hint="choose a method without secure aggregation, label mixes or relays, or run it with"
        " the devices of one site",
    )
