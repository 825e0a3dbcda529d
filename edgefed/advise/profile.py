"""The profile of a fleet: its devices as they announced themselves and as a run measured them.

It is a TOML or JSON file that a user may edit, and all that an advice knows of the fleet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationError, field_validator, model_validator

from edgefed.config.loading.write import tables_toml
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.sections import Section
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.toml import read_toml
from edgefed.errors import DataError, EdgeFedError, UsageError
from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.files.writing import write_output
from edgefed.report.speeds import MeasuredSpeed
from edgefed.terminal.units import counted

Count = Annotated[int, Field(ge=0, le=2**53)]
Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Shared = Literal["means", "mixes", "labels"]

LEAST_DEVICES = 2


class DeviceProfile(Section):
    """One device of a profile."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    """Its name in the fleet."""

    samples: Annotated[int, Field(ge=1, le=2**53)]
    """Number of its training samples."""

    held_out: Count | None = None
    """Number of further samples on which it tests models; left out if unknown."""

    labels: tuple[Count, ...] = ()
    """Number of its samples by label; left out if its owner does not share them."""

    channels: tuple[tuple[float, float], ...] = ()
    """Mean and standard deviation of each channel of its inputs; left out if its owner does not
    share them."""

    seconds_per_sample: Rate | None = None
    """Measured seconds to train on one sample once; left out if unknown."""

    joules_per_sample: Rate | None = None
    """Measured energy to train on one sample once; left out if unknown."""

    uplink: Rate | None = None
    """Measured bytes per second from the device; left out if unknown or without a limit."""

    downlink: Rate | None = None
    """Bytes per second to the device; left out if unknown or without a limit."""

    memory: Count | None = None
    """Bytes of memory of the board; left out if unknown."""

    absent: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    """Share of the time in which the device is away."""

    @model_validator(mode="after")
    def _add_up(self) -> DeviceProfile:
        """Check that the labels are those of the samples."""
        if self.labels and sum(self.labels) not in (0, self.samples):
            raise ValueError(
                f"the labels of {self.name} add up to {sum(self.labels)}, and it has"
                f" {self.samples} samples"
            )
        return self


class Profile(Section):
    """The profile of a fleet."""

    fleet: str = ""
    """Name of the fleet."""

    time: str = ""
    """UTC time at which it was read."""

    run: str = ""
    """The run whose rounds measured the speeds; empty for none."""

    classes: Annotated[int, Field(ge=0, le=2**16)] = 0
    """Number of labels that the devices distinguish."""

    shape: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Shape of one input; empty if unknown."""

    batch_size: Annotated[int, Field(ge=0)] = 0
    """Of the run that measured the speeds; 0 if unknown."""

    model: dict[str, Any] = Field(default_factory=dict)
    """The ``[model]`` table of that run, whose training was measured; empty if unknown."""

    refuses: tuple[Shared, ...] = ("mixes",)
    """The data that at least one owner does not let leave a device besides model updates:
    ``means``, averages of samples; ``mixes``, mixes of single samples; ``labels``, their counts."""

    round_overhead: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """Measured seconds of a round besides downloads, training and uploads."""

    devices: tuple[DeviceProfile, ...] = ()
    """The devices."""

    @field_validator("devices")
    @classmethod
    def _differ(cls, devices: tuple[DeviceProfile, ...]) -> tuple[DeviceProfile, ...]:
        """Check the names, and that all histograms have the same labels."""
        names = [device.name for device in devices]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two devices are named {doubled[0]}")
        if len({len(device.labels) for device in devices if device.labels}) > 1:
            raise ValueError("the devices state different numbers of labels")
        return devices

    @property
    def with_labels(self) -> tuple[DeviceProfile, ...]:
        """The devices whose histogram is known."""
        return tuple(device for device in self.devices if any(device.labels))


def profile_of(
    snapshot: Snapshot,
    speeds: Iterable[MeasuredSpeed] = (),
    run: str = "",
    recipe: Recipe | None = None,
    presence: Mapping[str, float] | None = None,
    overhead: float = 0.0,
) -> Profile:
    """Return the profile of a fleet.

    Args:
        snapshot: of the fleet; devices without samples and quarantined ones are left out.
        speeds: of the devices of a run.
        run: its name; empty for none.
        recipe: of that run.
        presence: share of the time in which a device was connected.
        overhead: of a round of that run, in seconds.
    """
    measured = {speed.device: speed for speed in speeds}
    known = [d for d in snapshot.devices if d.samples and d.standing != "quarantined"]
    classes = max((len(device.labels) for device in known), default=0)
    model = recipe.model.model_dump(mode="json", exclude_none=True) if recipe else {}
    return Profile(
        fleet=snapshot.fleet,
        time=snapshot.time,
        run=run if measured else "",
        shape=next((device.shape for device in snapshot.devices if device.shape), ()),
        batch_size=recipe.training.batch_size if recipe and measured else 0,
        model=model if measured else {},
        round_overhead=overhead,
        classes=classes,
        refuses=tuple(name for name in get_args(Shared) if any(name in d.refuses for d in known)),
        devices=tuple(
            _device(
                device,
                classes,
                measured.get(device.device),
                1 - (presence or {}).get(device.device, 1.0),
            )
            for device in known
        ),
    )


def _device(
    device: DeviceSnapshot, classes: int, speed: MeasuredSpeed | None, absent: float
) -> DeviceProfile:
    missing = (0,) * (classes - len(device.labels))
    return DeviceProfile(
        name=device.device,
        samples=device.samples,
        held_out=device.held_out,
        labels=device.labels + missing if device.labels else (),
        channels=device.channels,
        seconds_per_sample=(speed and speed.seconds_per_sample) or None,
        joules_per_sample=(speed and speed.joules_per_sample) or None,
        uplink=(speed and speed.uplink) or None,
        downlink=(speed and speed.downlink) or None,
        memory=device.memory_total,
        absent=min(0.9, round(absent, 4)),
    )


def read_profile(path: Path) -> Profile:
    """Read a profile from a TOML or JSON file, by the ending of its name.

    Raises:
        DataError: ``advise.profile``: it cannot be read, or has fewer than two devices.
    """
    try:
        if path.suffix == ".json":
            profile = Profile.model_validate_json(path.read_bytes(), strict=True)
        else:
            # Strict models take arrays as tuples only from JSON.
            values = json.dumps(read_toml(path).values, default=str)
            profile = Profile.model_validate_json(values, strict=True)
    except (OSError, ValidationError, EdgeFedError) as error:
        raise DataError(
            f"The profile {path} cannot be used: {_why(error)}.",
            code="advise.profile",
            hint="mend it, or make another one: edgefed advise profile --out other.toml",
        ) from error
    if len(profile.devices) < LEAST_DEVICES:
        raise too_few_devices(len(profile.devices))
    return profile


def too_few_devices(count: int) -> DataError:
    """Return the error for a fleet that is too small for advice."""
    return DataError(
        f"The profile has {counted(count, 'device')} with data; advice compares methods for at"
        f" least {LEAST_DEVICES}.",
        code="advise.profile",
        hint="start more agents and make it again, or add [[devices]] to the file",
    )


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return _problem(min(error.errors(), key=lambda one: one["type"] != "extra_forbidden"))
    if isinstance(error, EdgeFedError):
        return error.message.rstrip(".")
    return str(getattr(error, "strerror", error))


def _problem(error: Mapping[str, Any]) -> str:
    """Return the first problem of a file in words: the device, counted from 1, and the key."""
    place = [*error["loc"]]
    kind: type[Section] = Profile
    of = ""
    if len(place) > 1 and place[0] == "devices":
        of, kind, place = f"device {int(place[1]) + 1}, ", DeviceProfile, place[2:]
    key = ".".join(map(str, place))
    if error["type"] == "extra_forbidden":
        return f"{of}there is no key {key}{did_you_mean(nearest_name(key, kind.model_fields))}"
    words = str(error["msg"]).removeprefix("Value error, ")
    return f"{of}{key}: {words}" if key else f"{of}{words}"


def write_profile(profile: Profile, path: Path) -> None:
    """Write a profile as TOML or JSON, by the ending of the file's name.

    Raises:
        UsageError: ``usage``: the name has another ending.
        StorageError: the disk does not take it.
    """
    if path.suffix not in (".toml", ".json"):
        raise UsageError(
            f"A profile is a TOML or JSON file, and {path.name} ends otherwise.",
            hint="name a file that ends in .toml or .json",
        )
    values = profile.model_dump(mode="json", exclude_none=True)
    if path.suffix == ".json":
        write_output(path, f"{json.dumps(values, indent=2)}\n".encode())
    else:
        write_output(path, profile_toml(profile).encode())


def profile_toml(profile: Profile) -> str:
    """Return a profile as TOML, with a table for each device."""
    values = profile.model_dump(mode="json", exclude_none=True)
    devices = values.pop("devices")
    tables = [tables_toml(values)]
    for device in devices:
        kept = {
            key: value
            for key, value in device.items()
            if value != [] and (key, value) != ("absent", 0.0)
        }
        tables.append(f"[[devices]]\n{tables_toml(kept)}")
    return "\n".join(tables)
