"""``edgefed coordinator``: run the coordinator in the foreground, as under systemd."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.process.stop_signals import stop_signals
from edgefed.terminal.logs import LogFormat, LogFormatOption, introduce, start_log
from edgefed.terminal.metrics_server import MetricsAddress, serve_metrics

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import Settings
    from edgefed.coordinator.members.membership import MembershipSettings
    from edgefed.coordinator.process.service_settings import ServiceSettings
    from edgefed.process.clock import Clock

EPILOG = examples(
    "edgefed coordinator", "edgefed --broker mqtt://192.0.2.7:1883 --fleet plant-a coordinator"
)


def coordinator(
    context: typer.Context,
    *,
    metrics: MetricsAddress = "",
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Run the coordinator in the foreground until Ctrl-C or SIGTERM.

    The coordinator owns runs, state and files. If it is killed, it resumes when it is started
    again with the same state folder.
    """
    options = globals_of(context)
    with stop_signals() as signals:
        settings = options.settings().value
        start_log(quiet=options.quiet, verbose=options.verbose, form=log_format)
        from edgefed.coordinator.process.service import Service
        from edgefed.coordinator.process.service_metrics import SERVICE_METRICS
        from edgefed.errors import InterruptedRunError
        from edgefed.process.clock import SystemClock
        from edgefed.process.service_manager import ServiceManager

        clock = SystemClock()
        chosen = service_settings(settings, clock)
        service = Service(chosen, clock, manager=ServiceManager(os.environ, clock))
        signals.call(service.stop)
        serve_metrics(metrics, SERVICE_METRICS, service.metrics.read)
        if not options.quiet:
            fleet, state = settings.fleet, chosen.folder
            text = f"coordinator of fleet {fleet} on {chosen.address}, state in {state}"
            introduce(text, log_format)
        service.serve()
        if signals.number == signal.SIGINT:
            raise InterruptedRunError(
                "Interrupted; the state is on disk.", hint="the same command resumes"
            )


def service_settings(settings: Settings, clock: Clock, gateway: str = "") -> ServiceSettings:
    """Return the settings of a coordinator process, and renew this machine's certificates.

    Args:
        settings: of the program.
        clock: for the validity of certificates.
        gateway: name of the gateway that the process is, if it is one.

    Raises:
        EdgeFedError: the state folder, the credentials or a tracker cannot be used.
    """
    from edgefed.config.fleet.broker_address import COORDINATOR, broker_address
    from edgefed.coordinator.members.membership import renew_own_certificates
    from edgefed.coordinator.process.service_settings import ServiceSettings
    from edgefed.coordinator.trackers.choose import make_trackers
    from edgefed.files.writing import make_state_private

    make_state_private(settings.state)
    membership = _membership(settings)
    if membership is not None:
        renew_own_certificates(membership, clock)
    address = broker_address(settings, COORDINATOR)
    # A gateway sees the tasks of its site, not the ends of rounds
    alerts = settings.alerts.model_copy(update={"round_seconds": 0.0} if gateway else {})
    return ServiceSettings(
        address,
        settings.fleet,
        settings.state / "coordinator" / settings.fleet,
        make_trackers(settings.trackers, settings.state, clock),
        settings.user_models,
        settings.memory,
        membership if address.tls else None,
        gateway,
        alerts,
    )


def _membership(settings: Settings) -> MembershipSettings | None:
    """Return where the fleet's authority is; None when it is not on this machine."""
    from datetime import timedelta

    from broker.secured_files import write_access
    from edgefed.config.fleet.broker_address import trust_folder
    from edgefed.coordinator.members.membership import MembershipSettings
    from edgefed.trust.authority import AUTHORITY_FOLDER

    trust = trust_folder(settings)
    if not (trust / AUTHORITY_FOLDER).exists():
        return None
    life = timedelta(days=settings.certificate_days)
    return MembershipSettings(
        trust, life, lambda users, revoked: write_access(trust, settings.fleet, users, revoked)
    )
