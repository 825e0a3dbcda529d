"""The views of all devices; those of a large fleet that joined at once are made when they are read.

A view takes 2.5 KB, and of so many devices most are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

from edgefed.events.base.snapshot import DeviceSnapshot


@dataclass(frozen=True, slots=True)
class Joined:
    """Devices that joined at once.

    Attributes:
        view: of each of them, but for its own fields.
        names: of their own fields beside the id.
    """

    view: DeviceSnapshot
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JoinedDevice:
    """One of several devices that joined at once, with the values of its own fields."""

    joined: Joined
    values: tuple[Any, ...]

    def view(self, device: str) -> DeviceSnapshot:
        """Return the view of this device, whose id is ``device``."""
        own = zip(self.joined.names, self.values, strict=True)
        return self.joined.view.model_copy(update={"device": device, **dict(own)})


class DeviceViews(MutableMapping[str, DeviceSnapshot]):
    """Devices by id."""

    def __init__(self, views: Iterable[DeviceSnapshot]) -> None:
        self._made = {view.device: view for view in views}
        self._views: dict[str, DeviceSnapshot | JoinedDevice] = {**self._made}

    def __getitem__(self, device: str) -> DeviceSnapshot:
        view = self._views[device]
        return view.view(device) if isinstance(view, JoinedDevice) else view

    def __setitem__(self, device: str, view: DeviceSnapshot | JoinedDevice) -> None:
        self._views[device] = view
        if isinstance(view, JoinedDevice):
            self._made.pop(device, None)
        else:
            self._made[device] = view

    def __delitem__(self, device: str) -> None:
        del self._views[device]
        self._made.pop(device, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def __contains__(self, device: object) -> bool:
        return device in self._views

    def kept(self, device: str) -> DeviceSnapshot:
        """Return a view, which is made once."""
        view = self[device] = self[device]
        return view

    def changed(self) -> list[DeviceSnapshot]:
        """Return the views of all devices but those of which nothing is known since they joined."""
        return list(self._made.values())

    def excluded(self) -> dict[str, str]:
        """Return why the run does not ask a device, for each that it does not ask."""
        return {view.device: view.excluded for view in self.changed() if view.excluded}
