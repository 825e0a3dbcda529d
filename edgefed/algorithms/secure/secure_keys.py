"""The public keys of a cohort that masks its updates, with texts for signatures and purposes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from edgefed.errors import WireError
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.pairwise_keys import KEY_BYTES

MASK, CHANNEL, SEED = "mask", "channel", "seed"
"""Of each device: the public key of its pairwise masks, the public key under which shares are
encrypted for it, and the commitment to the seed of its own mask."""

SIGNATURE, CERTIFICATE = "signature", "certificate"

MAX_DEVICES = 256
"""Most devices of a cohort: each sends a blob to each other one."""

MAX_SIGNATURE, MAX_CERTIFICATE = 1024, 16 * 1024
"""Most bytes of a signature and of a certificate."""


@dataclass(frozen=True)
class DeviceKeys:
    """The public keys that one device advertises.

    Attributes:
        mask, channel, seed: 32 bytes each.
        signature, certificate: empty where devices have no certificates.
    """

    mask: bytes
    channel: bytes
    seed: bytes
    signature: bytes = b""
    certificate: bytes = b""

    def to_arrays(self) -> Tensors:
        """Return the keys as arrays that a reply carries."""
        named = {MASK: self.mask, CHANNEL: self.channel, SEED: self.seed}
        if self.signature:
            named |= {SIGNATURE: self.signature, CERTIFICATE: self.certificate}
        return {name: np.frombuffer(value, np.uint8) for name, value in named.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> DeviceKeys:
        """Return the keys of a reply that ``wrong_keys`` accepts."""
        return cls(**{name: array.tobytes() for name, array in arrays.items()})


def wrong_keys(arrays: Mapping[str, Array]) -> str:
    """Return why arrays are not the keys of a device, or nothing."""
    wanted, signed = {MASK, CHANNEL, SEED}, {SIGNATURE, CERTIFICATE}
    if arrays.keys() not in (wanted, wanted | signed):
        return "its keys are not those that were asked for"
    if any(array.dtype != np.uint8 or array.ndim != 1 for array in arrays.values()):
        return "its keys are not bytes"
    if any(arrays[name].size != KEY_BYTES for name in wanted):
        return "its keys have a wrong size"
    sizes = {SIGNATURE: MAX_SIGNATURE, CERTIFICATE: MAX_CERTIFICATE}
    if any(not 0 < arrays[name].size <= sizes[name] for name in arrays.keys() & signed):
        return "its signature has a wrong size"
    return ""


@dataclass(frozen=True)
class CohortKeys:
    """The keys of all devices of a cohort, as every one of them must see them.

    Attributes:
        number: of the session in its run.
        threshold: how many shares uncover a secret.
        devices: sorted.
        keys: of each.
    """

    number: int
    threshold: int
    devices: tuple[str, ...]
    keys: tuple[DeviceKeys, ...]

    def of(self, device: str) -> DeviceKeys:
        """Return the keys of a device."""
        return self.keys[self.devices.index(device)]

    def place(self, device: str) -> int:
        """Return the place of a device's shares, from 1."""
        return self.devices.index(device) + 1

    @cached_property
    def digest(self) -> bytes:
        """A digest of all fields: devices that received different keys cannot read each other."""
        rows = [
            [name, keys.mask.hex(), keys.channel.hex(), keys.seed.hex()]
            for name, keys in zip(self.devices, self.keys, strict=True)
        ]
        return hashlib.sha256(_text("cohort", self.number, self.threshold, rows)).digest()

    def mask_purpose(self, task_digest: str, one: str, other: str) -> bytes:
        """Return the purpose of a pair's key that makes their mask for a training task.

        The masks of devices with different tasks do not cancel.
        """
        return _text("mask", self.digest.hex(), task_digest, *sorted((one, other)))

    def share_context(self, sender: str, receiver: str) -> bytes:
        """Return the purpose of a key under which one device sends shares to another one."""
        return _text("share", self.digest.hex(), sender, receiver)

    def to_group(self) -> Tensors:
        """Return the keys as arrays; devices, number and threshold are stored separately."""
        group: Tensors = {
            name: np.frombuffer(b"".join(getattr(k, name) for k in self.keys), np.uint8).reshape(
                -1, KEY_BYTES
            )
            for name in (MASK, CHANNEL, SEED)
        }
        if any(key.signature for key in self.keys):
            for name in (SIGNATURE, CERTIFICATE):
                group |= joined(name, [getattr(key, name) for key in self.keys])
        return group

    @classmethod
    def from_group(
        cls, number: int, threshold: int, devices: Sequence[str], group: Mapping[str, Array]
    ) -> CohortKeys:
        """Return the keys in arrays of ``to_group``.

        Raises:
            WireError: ``secure.keys``: the arrays are not keys of these devices.
        """
        names = tuple(devices)
        # In one order, so that all devices compute the same digest
        if list(names) != sorted(set(names)) or not 0 < len(names) <= MAX_DEVICES:
            raise _malformed("its devices are not in order")
        rows = {name: _rows(group, name, len(names)) for name in (MASK, CHANNEL, SEED)}
        extra = {name: split_up(name, group, len(names)) for name in (SIGNATURE, CERTIFICATE)}
        keys = tuple(
            DeviceKeys(**{name: values[place] for name, values in {**rows, **extra}.items()})
            for place in range(len(names))
        )
        return cls(number, threshold, names, keys)


def keys_text(run: str, number: int, threshold: int, device: str, keys: DeviceKeys) -> bytes:
    """Return the text that a device signs about its keys."""
    rows = [keys.mask.hex(), keys.channel.hex(), keys.seed.hex()]
    return _text("keys", run, number, threshold, device, rows)


def list_text(run: str, number: int, task_digest: str, devices: Sequence[str]) -> bytes:
    """Return the text that a device signs about the devices whose updates are summed.

    Args:
        run: id of the run.
        number: of the session.
        task_digest: of the task that they trained for, in hexadecimal.
        devices: sorted.
    """
    return _text("list", run, number, task_digest, list(devices))


def joined(name: str, parts: Sequence[bytes]) -> Tensors:
    """Return byte strings of any lengths as two arrays."""
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    return {f"{name}.data": np.frombuffer(b"".join(parts), np.uint8), f"{name}.ends": ends}


def split_up(name: str, group: Mapping[str, Array], count: int) -> list[bytes]:
    """Return the byte strings that ``joined`` joined; empty ones where the group has none.

    Raises:
        WireError: ``secure.keys``: there are not so many.
    """
    if f"{name}.ends" not in group:
        return [b""] * count
    data, ends = group[f"{name}.data"].tobytes(), [0, *map(int, group[f"{name}.ends"])]
    if len(ends) != count + 1 or ends != sorted(ends) or ends[-1] != len(data):
        raise _malformed("its signatures are not one for each device")
    return [data[start:end] for start, end in pairwise(ends)]


def _rows(group: Mapping[str, Array], name: str, count: int) -> list[bytes]:
    array = group.get(name)
    if array is None or array.dtype != np.uint8 or array.shape != (count, KEY_BYTES):
        raise _malformed(f"{name} is not one key for each device")
    return [row.tobytes() for row in array]


def _text(kind: str, *parts: Any) -> bytes:
    """Return bytes that no other kind and no other parts have."""
    return json.dumps(["edgefed secure aggregation 2", kind, *parts]).encode()


def _malformed(why: str) -> WireError:
    return WireError(f"A list of keys is malformed: {why}.", code="secure.keys")
