"""Profiles of small fleets for tests of advice."""

from __future__ import annotations

from typing import Any

from edgefed.advise.profile import DeviceProfile, Profile


def one_label_each(devices: int = 4, samples: int = 40, **more: Any) -> Profile:
    """Return a fleet in which every device has one label of its own."""
    return Profile(
        fleet="plant",
        classes=devices,
        devices=tuple(
            DeviceProfile(
                name=f"cam-{number}",
                samples=samples,
                labels=tuple(samples * (label == number) for label in range(devices)),
                seconds_per_sample=0.01 * (1 + number),
                uplink=1000.0,
            )
            for number in range(devices)
        ),
        **more,
    )
