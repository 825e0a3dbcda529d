"""Create and run an agent from its settings."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
from dataclasses import fields
from functools import partial
from typing import Any

from device_agent.daemon.agent import Agent
from device_agent.daemon.data_watch import DataWatch
from device_agent.daemon.own_data import OwnData
from device_agent.identity.device_name import agent_folder, device_name
from device_agent.identity.identity import Identity
from device_agent.reports.agent_metrics import AGENT_METRICS
from device_agent.reports.log_ring import keep_log
from device_agent.reports.telemetry import Sensors
from device_agent.tasks.device_store import DeviceStore
from edgefed.config.fleet.broker_address import broker_address
from edgefed.config.fleet.settings import AgentSettings
from edgefed.data.base.types import DeviceData
from edgefed.data.devices.partition import label_counts
from edgefed.errors import InterruptedRunError
from edgefed.files.writing import make_state_private
from edgefed.learn.base.processors import pick_device, set_threads
from edgefed.natural_noise.cache import NoiseCache
from edgefed.process.clock import SystemClock
from edgefed.process.lock import FolderLock
from edgefed.process.service_manager import ServiceManager
from edgefed.process.stop_signals import StopSignals
from edgefed.sharing.means import own_word
from edgefed.sharing.policy import Policy
from edgefed.terminal.metrics_server import serve_metrics
from edgefed.transport.renewal import Renewal
from edgefed.trust.known_keys import KnownKeys
from edgefed.version import VERSION
from edgefed.wire.messages import Birth
from edgefed.worker.device_credentials import DeviceCredentials
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker

log = logging.getLogger(__name__)

NO_FILES = ("closed", "unusable")
"""Reasons of ignored entries that count folders and classes."""

NOISE_BYTES = 512 * 1024**2
"""Of natural noise that is kept on disk, and in memory."""


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
    clock = SystemClock()
    ring = keep_log() if settings.share_log else None
    for warning in data.warnings:
        log.warning("%s", warning)
    set_threads(settings.threads)
    make_state_private(settings.state)
    folder = agent_folder(settings)
    lock = FolderLock(folder, f"the agent of {device_name(settings)}")
    sensors = Sensors()
    address = broker_address(settings, (device_name(settings),))
    credentials = address.credentials
    renewal = None if credentials is None else Renewal(credentials, clock)
    agent = Agent(
        identity(settings, data, sensors),
        address,
        DeviceStore(folder, settings.cache),
        Worker(
            TrainerCache(user_models=settings.user_models, memory=settings.memory),
            data.train,
            data.test,
            owners_policy(settings),
            data.class_names,
            preparation=data.preparation,
            noise=NoiseCache(folder / "noise", NOISE_BYTES).samples,
            credentials=None
            if renewal is None
            else DeviceCredentials(renewal.current, KnownKeys(folder / "known-devices")),
        ),
        sensors,
        clock,
        renewal,
        ring,
        lambda report: DataWatch(own, partial(described, settings), report),
        ServiceManager(os.environ, clock),
    )
    serve_metrics(metrics, AGENT_METRICS, agent.metrics)
    # The handler runs inside whatever this thread does, perhaps inside the inbox's lock.
    signals.call(lambda: threading.Thread(target=agent.stop, daemon=True).start())
    try:
        agent.run()
    finally:
        lock.release()
    if signals.number == signal.SIGINT:
        raise InterruptedRunError("Interrupted; replies and private state are on disk.")


def owners_policy(settings: AgentSettings) -> Policy:
    """Return the sharing policy in the settings of this device's owner."""
    return Policy(**{field.name: getattr(settings, field.name) for field in fields(Policy)})


def identity(settings: AgentSettings, data: DeviceData, sensors: Sensors) -> Identity:
    """Return the identity of this device."""
    import torch

    birth = Birth(
        session=secrets.token_hex(8),
        status="online",
        agent=VERSION,
        torch=torch.__version__,
        accelerator=str(pick_device()),
        hardware=sensors.hardware(),
        **described(settings, data),
    )
    return Identity(settings.fleet, device_name(settings), birth)


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
        "data": own_word(data.train, device_name(settings)),
        "ignored": sum(data.ignored.values()) - sum(classes),
    }
