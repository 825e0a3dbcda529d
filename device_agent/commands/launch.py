"""Create and run an agent from its settings."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
from functools import partial
from importlib import metadata, util
from pathlib import Path
from typing import Any

from device_agent.daemon.agent import Agent
from device_agent.daemon.agent_updates import UpdateOptions
from device_agent.daemon.data_watch import DataWatch
from device_agent.daemon.own_data import OwnData
from device_agent.identity.device_name import agent_folder, device_name
from device_agent.identity.identity import Identity
from device_agent.identity.owners_policy import owners_policy
from device_agent.limits.training_policy import TrainingPolicy
from device_agent.reports.log_ring import LogRing, keep_log
from device_agent.reports.nvidia_gpus import NvidiaGpus
from device_agent.reports.progress_reporter import AGENT_METRICS
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from device_agent.tasks.probe_task import probe_data
from device_agent.tasks.training_process import TrainingProcess
from device_agent.updater.agent_process import HOME
from edgefed.config.fleet.broker_address import broker_address
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.preparation import channel_moments
from edgefed.data.base.types import DeviceData
from edgefed.data.devices.partition import label_counts
from edgefed.errors import InterruptedRunError, StorageError
from edgefed.files.writing import make_state_private
from edgefed.process.clock import Clock, SystemClock
from edgefed.process.lock import FolderLock
from edgefed.process.memory import map_large_blocks
from edgefed.process.service_manager import ServiceManager
from edgefed.process.stop_signals import StopSignals
from edgefed.sharing.means import own_word
from edgefed.terminal.diagnostics import GPU_FILES
from edgefed.terminal.metrics_server import serve_metrics
from edgefed.transport.renewal import Renewal
from edgefed.version import PROTOCOL, VERSION
from edgefed.wire.messages import Birth

log = logging.getLogger(__name__)

NO_FILES = ("closed", "unusable")
"""Reasons of ignored entries that count folders and classes."""


def run_agent(
    settings: AgentSettings,
    own: OwnData,
    data: DeviceData,
    signals: StopSignals,
    metrics: str = "",
) -> None:
    """Run the agent until a signal.

    Args:
        settings: the device's.
        own: source of its samples, which are read again when they change between two runs.
        data: the samples read from it.
        signals: end the agent.
        metrics: address at which its metrics are served; empty for none.

    Raises:
        InterruptedRunError: it was Ctrl-C.
        EdgeFedError: it cannot work.
    """
    map_large_blocks()
    clock = SystemClock()
    ring = keep_log() if settings.share_log else None
    own.report(data)
    make_state_private(settings.state)
    folder = agent_folder(settings)
    lock = FolderLock(folder, f"the agent of {device_name(settings)}")
    try:
        own.announce()
    except StorageError as error:  # a full disk, on which the agent waits for space
        log.warning("after a restart, this agent may train on other samples: %s", error.message)
    agent = _make_agent(settings, own, data, folder, clock, ring)
    serve_metrics(metrics, AGENT_METRICS, agent.metrics)
    del data  # the training process has them
    signals.call(agent.stop)
    try:
        agent.run()
    finally:
        lock.release()
    if signals.number == signal.SIGINT:
        raise InterruptedRunError("Interrupted; replies and private state are on disk.")


def _make_agent(
    settings: AgentSettings,
    own: OwnData,
    data: DeviceData,
    folder: Path,
    clock: Clock,
    ring: LogRing | None,
) -> Agent:
    """Return the agent of a device, whose state is in ``folder``, and whose log in ``ring``."""
    sensors = Sensors(gpus=NvidiaGpus())
    address = broker_address(settings, (device_name(settings),))
    credentials = address.credentials
    renewal = None if credentials is None else Renewal(credentials, clock)
    return Agent(
        identity(settings, data, sensors),
        address,
        DeviceStore(folder, settings.cache),
        partial(TrainingProcess, settings, folder, device_name(settings), data, clock),
        sensors,
        clock,
        renewal,
        ring,
        lambda report: DataWatch(own, partial(described, settings), report),
        ServiceManager(os.environ, clock),
        TrainingPolicy(
            settings.when, folder, partial(sensors.readings, settings.when, folder), clock
        ),
        settings,
        UpdateOptions(
            Path(home) if (home := os.environ.get(HOME)) else None,
            settings.updates,
            settings.update_bandwidth,
            partial(TrainingProcess, settings, folder, device_name(settings), probe_data(), clock),
        ),
    )


def identity(settings: AgentSettings, data: DeviceData, sensors: Sensors) -> Identity:
    """Return the identity of this device; torch is looked at, and not imported."""
    birth = Birth(
        session=secrets.token_hex(8),
        status="online",
        agent=VERSION,
        protocol=PROTOCOL,
        torch=metadata.version("torch"),
        accelerator=accelerator(),
        hardware=sensors.hardware(),
        **described(settings, data),
    )
    return Identity(settings.fleet, device_name(settings), birth)


def accelerator() -> str:
    """Return the processor that torch trains on here: a GPU if it can use one, or ``cpu``."""
    spec = util.find_spec("torch")
    built = [
        Path(folder) / "version.py" for folder in (spec and spec.submodule_search_locations) or ()
    ]
    with_cuda = any(
        re.search(r"^(cuda|hip)\b.*= '", path.read_text(), re.MULTILINE) for path in built
    )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0") not in ("", "-1")
    return "cuda:0" if with_cuda and visible and any(map(os.path.exists, GPU_FILES)) else "cpu"


def described(settings: AgentSettings, data: DeviceData) -> dict[str, Any]:
    """Return a birth's fields about data; the label histogram only when their owner shares it."""
    classes = [count for reason, count in data.ignored.items() if reason in NO_FILES]
    return {
        "samples": len(data.train),
        "held_out": len(data.test),
        "labels": label_counts(data.train, data.classes) if settings.share_labels else (),
        "classes": data.classes,
        "class_names": data.class_names,
        "shape": tuple(data.shape),
        "channels": channel_moments(data.train.inputs) if settings.share_channels else (),
        "refuses": owners_policy(settings).refuses,
        "data": own_word(data.train, device_name(settings)),
        "ignored": sum(data.ignored.values()) - sum(classes),
    }
