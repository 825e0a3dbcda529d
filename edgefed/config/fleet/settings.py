"""Settings: broker, names and folders of a fleet, dashboard. The recipe defines the training."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from edgefed.config.fleet.alert_settings import AlertSettings
from edgefed.config.fleet.tracker_names import TrackerName
from edgefed.config.fleet.when_settings import WhenSettings
from edgefed.config.recipes.recipe import NAME_PATTERN
from edgefed.config.recipes.sections import Section
from edgefed.errors import UsageError


class DashboardSettings(Section):
    """How the dashboard is used."""

    keys: dict[str, str] = Field(default_factory=dict)
    """Keys of actions, such as ``"run.pause" = "b"``; several with commas between
    them."""

    @field_validator("keys", mode="before")
    @classmethod
    def _quoted(cls, value: Any) -> Any:
        """Say how a name is written where TOML read it as a table."""
        if isinstance(value, Mapping):
            for table, inner in value.items():
                for name in inner if isinstance(inner, Mapping) else ():
                    raise ValueError(f'write the action in quotes: "{table}.{name}" = …')
        return value


_HOURS = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d")

BROKER_PATTERN = r"^mqtts?://[^/\s]+$"


def default_state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder for runs, caches and logs: ``$XDG_STATE_HOME/edgefed``.

    Args:
        environment: the variables to use; None for those of this process.

    Raises:
        UsageError: this user has no home folder.
    """
    environment = os.environ if environment is None else environment
    base = Path(environment.get("XDG_STATE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (base if base.is_absolute() else home(environment) / ".local/state") / "edgefed"


def home(environment: Mapping[str, str]) -> Path:
    """Return the user's home folder.

    Raises:
        UsageError: this user has none.
    """
    try:
        return Path(environment.get("HOME", "") or Path.home())
    except RuntimeError as error:
        raise UsageError(
            "This user has no home folder.", hint="set HOME, or EDGEFED_STATE to a folder"
        ) from error


class FleetSettings(Section):
    """Settings of both programs: the place of their fleet, and of their files."""

    broker: Annotated[str, Field(pattern=BROKER_PATTERN)] | None = None
    """The MQTT broker: ``mqtts://HOST:PORT`` with TLS; without, ``mqtt://HOST:PORT`` or
    ``mqtt://USER:PASSWORD@HOST:PORT``. By default the one that this machine is enrolled with, or
    ``mqtt://127.0.0.1:1883``."""

    insecure: bool = False
    """Whether a broker on another machine may be used without TLS: passwords and weights then
    travel in clear text, and messages are not signed."""

    fleet: Annotated[str, Field(pattern=NAME_PATTERN)] = "default"
    """Name of the fleet; the second level of every topic."""

    state: Path = Field(default_factory=default_state_folder)
    """Folder for runs, caches and logs; a relative one starts at the file that names it."""

    memory: Annotated[int, Field(ge=0)] = 0
    """Most bytes that models and their training may take; a model that needs more is refused before
    it is built. 0 for half of the free memory."""


class Settings(FleetSettings):
    """Settings of ``edgefed``; keys of ``edgefed.toml`` and ``EDGEFED_*`` variables."""

    trackers: tuple[TrackerName, ...] = ()
    """Trackers that receive the metrics of every round: ``tensorboard``, ``mlflow``, ``wandb``, and
    those of installed packages; they write to the state folder."""

    user_models: bool = False
    """Whether a run may name a model ``package.module:factory``, whose code the coordinator then
    imports and runs; simulations on this machine may always do so."""

    certificate_days: Annotated[float, Field(gt=0, le=3650)] = 90.0
    """Days for which the fleet's authority issues certificates; after two thirds of them, each
    party gets the next one."""

    alerts: AlertSettings = AlertSettings()

    dashboard: DashboardSettings = DashboardSettings()

    @field_validator("trackers", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        """Take ``tensorboard,mlflow`` too."""
        return _words(value)


class AgentSettings(FleetSettings):
    """Settings of ``edgefed-agent``; keys of ``edgefed-agent.toml`` and ``EDGEFED_*`` variables."""

    name: Annotated[str, Field(pattern=NAME_PATTERN)] | None = None
    """Name of this device in its fleet; by default the machine's host name."""

    data: str = ""
    """The device's data: ``npz:FILE``, ``folder:FOLDER`` or ``mnist:FOLDER``."""

    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Fraction of the samples that is held out for evaluation on the device."""

    cache: Annotated[int, Field(ge=2**20)] = 512 * 1024**2
    """Maximum size of the blob cache on disk, in bytes; least recently used blobs are deleted
    first, and when a run has ended all of its blobs."""

    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Threads of torch on a CPU; runs are reproducible bit for bit only with the same number."""

    training_idle: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0
    """Seconds after the last run or task for which the process that trains is kept; its memory is
    then given back, and the next task takes some seconds longer."""

    training_silence: Annotated[float, Field(gt=0, le=86400)] = 600.0
    """Seconds within which a training process reports a step; without, it is killed, and the task
    is begun again. A process that starts has twice as long. It must be longer than a step takes."""

    when: WhenSettings = WhenSettings()

    share_labels: bool = True
    """Whether the coordinator learns the number of samples of each label."""

    share_channels: bool = False
    """Whether the coordinator learns the mean and the standard deviation of each channel of the
    inputs, over all samples, for [advice](advice.md)."""

    share_log: bool = True
    """Whether operators may read the last lines of this agent's log."""

    share_means: bool = True
    """Whether averages of this device's samples may leave it, for methods that train with them."""

    least_group: Annotated[int, Field(ge=2)] = 10
    """Minimum number of samples per average; the coordinator cannot request smaller groups."""

    share_hidden: bool = False
    """Whether averages of hidden states may leave it too; the coordinator chooses the weights that
    compute them, and could therefore single out samples."""

    request_mixes: bool = True
    """Whether mixes of other devices' samples are requested for labels that this device lacks."""

    share_mixes: bool = False
    """Whether mixes of this device's samples may leave it; a mix discloses its samples in part."""

    share_gate: bool = False
    """Whether this device's gate of a mixture of experts may leave it, with its shares of the
    experts; they tell which labels it has."""

    share_density: bool = False
    """Whether a density of this device's inputs may leave it with its gate, for runs that collect
    densities; samples like the device's can be drawn from it."""

    mix_receivers: tuple[Annotated[str, Field(pattern=NAME_PATTERN)], ...] | None = None
    """Devices that may receive mixes of this device's samples; an empty list for none. By default,
    every device may."""

    least_mix_width: Annotated[int, Field(ge=2, le=64)] = 4
    """Minimum number of samples in a mix; the coordinator cannot request mixes of fewer."""

    least_mix_noise: Annotated[float, Field(ge=0, le=100)] = 16 / 255
    """Minimum scale of the noise on a mix, where pixels are from 0 to 1."""

    most_mix_weight: Annotated[float, Field(ge=0.5, le=1)] = 0.75
    """Most that one sample of a mix may weigh."""

    mix_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most epsilon that mixes may cost over all runs; by default there is no limit."""

    mix_limit: Annotated[int, Field(ge=0)] | None = None
    """Most mixes that may leave this device over all runs; by default there is no limit."""

    update_epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most epsilon that model updates may cost over all runs. This device then trains only in runs
    with ``privacy.mechanism = "local"``. By default there is no limit."""

    update_delta: Annotated[float, Field(gt=0, lt=0.5)] = 1e-5
    """The delta at which ``update_epsilon`` is reckoned."""

    least_cohort: Annotated[int, Field(ge=0, le=256)] = 0
    """Fewest devices whose updates secure aggregation sums with this device's. With 1 or more, this
    device trains only in runs with secure aggregation. 0 for no demand."""

    least_threshold: Annotated[int, Field(ge=0, le=256)] = 0
    """Fewest devices that together may uncover such a sum. With 1 or more, this device trains only
    in runs with secure aggregation. 0 for no demand."""

    user_models: bool = False
    """Whether a run may name a model ``package.module:factory``, whose code this device then
    imports and runs; it must be installed here."""

    models: Literal["off", "auto"] = "off"
    """Whether the agent keeps a ``current`` model for an inference program on this device: with
    ``auto``, it takes the models that an operator rolls out."""

    model_tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """By how much a new model's accuracy on the held-out samples may be below that of the current
    one; of a model that predicts numbers, the share by which its squared error may be larger."""

    model_formats: tuple[Literal["safetensors", "torch-export", "onnx", "tensorrt"], ...] = (
        "safetensors",
    )
    """Formats in which a model is written, beside safetensors; ``tensorrt`` where ``trtexec`` is on
    the PATH."""

    updates: Literal["off", "ask", "auto"] = "off"
    """Whether releases of the agent that the coordinator offers are installed: ``off``; ``ask``,
    after ``edgefed-agent update approve``; ``auto``. ``edgefed-agent update run`` installs them."""

    update_root: Path | None = None
    """The pinned root metadata, ``1.root.json`` of the release manager: its keys decide which
    releases this device accepts."""

    update_hours: str = ""
    """Local time in which the version of the agent may change, such as ``02:00-05:00``; by default
    at any time."""

    update_bandwidth: Annotated[int, Field(ge=0)] = 0
    """Most bytes a second for downloads of releases; 0 for no limit."""

    update_trial: Annotated[float, Field(gt=0, le=86400)] = 60.0
    """Seconds for which a new version has to stay connected before it is kept."""

    @field_validator("update_hours")
    @classmethod
    def _clock(cls, value: str) -> str:
        if value and not _HOURS.fullmatch(value):
            raise ValueError(f'must be like "02:00-05:00", got {value[:40]!r}')
        return value

    @field_validator("mix_receivers", "model_formats", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Take ``device-01,device-02`` too."""
        return _words(value)


def _words(value: Any) -> Any:
    """Return an array as a tuple, and words with commas between them, as a variable has them."""
    words = value.split(",") if isinstance(value, str) else value
    # A strict tuple is made of an array only where nothing is between it and the JSON.
    if isinstance(words, list):
        return tuple(word.strip() if isinstance(word, str) else word for word in words)
    return words
