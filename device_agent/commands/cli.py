"""``edgefed-agent``: the command line of the device agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from device_agent.commands import membership_cli, mixes_cli, model_cli, service_cli, update_cli
from device_agent.commands.options import (
    Data,
    Holdout,
    Name,
    Threads,
    agent_settings,
    loaded_settings,
)
from edgefed.prediction.options import Csv, Inputs, ModelName, Processor, Top, UserModels
from edgefed.process.clock import SystemClock, moment_of
from edgefed.process.stop_signals import stop_signals
from edgefed.terminal.command_line import program
from edgefed.terminal.common_options import Check, common_options
from edgefed.terminal.console import checks, columns, data, json_out, start, talk
from edgefed.terminal.logs import LogFormat, LogFormatOption, introduce, start_log
from edgefed.terminal.metrics_server import MetricsAddress
from edgefed.terminal.units import ago, counted

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import AgentSettings
    from edgefed.terminal.diagnostics import Diagnosis

app = program(
    "edgefed-agent",
    help="Take part in a fleet: train on this device's data, and share what its owner allows.",
)
app.add_typer(mixes_cli.app, name="mixes")
app.add_typer(model_cli.app, name="model")
app.add_typer(service_cli.app, name="service")
app.add_typer(update_cli.app, name="update")
app.command()(membership_cli.enroll)
app.command()(membership_cli.address)
app.command()(membership_cli.leave)

SHOWN_FILES = 20
"""Files that are not used and are named, for each reason; ``--json`` names more."""


@app.command()
def run(
    context: typer.Context,
    *,
    name: Name = None,
    source: Data = None,
    holdout: Holdout = None,
    threads: Threads = None,
    metrics: MetricsAddress = "",
    log_format: LogFormatOption = LogFormat.text,
) -> None:
    """Run the agent in the foreground until Ctrl-C or SIGTERM.

    The agent waits for the broker and trains when the coordinator asks. If it is killed, it
    resumes when it is started again with the same state folder.
    """
    options = common_options(context)
    with stop_signals() as signals:
        settings = agent_settings(
            options, name=name, source=source, holdout=holdout, threads=threads
        )
        start_log(verbose=options.verbose, quiet=options.quiet, form=log_format)
        from device_agent.daemon.own_data import OwnData
        from device_agent.daemon.refused_data import publish_refusal
        from device_agent.identity.device_name import device_name
        from edgefed.config.fleet.broker_address import broker_address
        from edgefed.errors import EdgeFedError

        name = device_name(settings)
        address = broker_address(settings, (name,))
        own = OwnData(settings)
        try:
            device_data = [own.read(at_start=True)]
        except EdgeFedError as error:
            publish_refusal(address, settings.fleet, name, error)
            raise
        from device_agent.commands.launch import run_agent

        if not options.quiet:
            introduce(f"agent {name} of fleet {settings.fleet} on {address}", log_format)
        # No reference stays here: the agent keeps the samples for its training process only.
        run_agent(settings, own, device_data.pop(), signals, metrics)


@app.command("data")
def data_(
    context: typer.Context,
    *,
    source: Data = None,
    holdout: Holdout = None,
) -> None:
    """Show the samples and labels that this device would train on."""
    from device_agent.daemon.own_data import load_data
    from edgefed.data.base.columns import category_counts
    from edgefed.data.devices.partition import label_counts

    options = common_options(context)
    settings = agent_settings(options, source=source, holdout=holdout)
    device_data = load_data(settings)
    _warn(device_data.warnings)
    answer = {
        "data": settings.data,
        "samples": len(device_data.train),
        "held_out": len(device_data.test),
        "shape": list(device_data.shape),
        "classes": device_data.classes,
        "class_names": list(device_data.class_names),
        "labels": list(label_counts(device_data.train, device_data.classes)),
        "columns": category_counts(device_data.train, device_data.test),
        "warnings": list(device_data.warnings),
        "ignored": dict(device_data.ignored),
        "ignored_files": dict(device_data.ignored_files),
    }
    options.answer(
        answer,
        columns(_data_rows(answer, "classes" if device_data.train.has_labels else "outputs")),
    )


def _data_rows(answer: dict[str, Any], outputs: str) -> list[tuple[str, str]]:
    """Return a device's data for people; ``outputs`` is the noun for the number of classes."""
    labels, names = answer["labels"], answer["class_names"]
    named = names or [""] * len(labels)
    return [
        ("data", answer["data"]),
        ("samples", f"{answer['samples']} to train on, {answer['held_out']} held out"),
        ("inputs", "x".join(str(side) for side in answer["shape"])),
        (outputs, str(answer["classes"])),
        *(
            (f"label {label}", f"{count} {named[label]}".rstrip())
            for label, count in enumerate(labels)
            if count
        ),
        *(
            (f"column {name}", counted(count, "category", "categories"))
            for name, count in answer["columns"].items()
        ),
        *(
            (reason, name)
            for reason, names in answer["ignored_files"].items()
            for name in (*names[:SHOWN_FILES], *["…"][: len(names[SHOWN_FILES:])])
        ),
    ]


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        talk(f"! {warning}")


@app.command()
def doctor(
    context: typer.Context,
    *,
    name: Name = None,
    source: Data = None,
) -> None:
    """Check Python, torch, kernels, plug-ins, data, broker and disk, and say how to fix problems.

    The check of the broker includes whether it forwards messages of a device of this name.
    """
    from device_agent.reports.telemetry import Sensors
    from edgefed.algorithms.composed.installed_plugins import installed_plugins
    from edgefed.terminal import diagnostics

    options = common_options(context)
    settings = agent_settings(options, name=name, source=source)
    board = Sensors().hardware() or "unknown board"
    findings = [
        diagnostics.python(),
        diagnostics.torch_and_accelerator(),
        diagnostics.kernels(),
        *diagnostics.plug_ins(installed_plugins()),
        diagnostics.Diagnosis("board", "good", board),
        *_limit_findings(settings),
        *_data_findings(settings),
        *_broker_findings(settings),
        diagnostics.disk(settings.state),
    ]
    options.answer(diagnostics.as_json(findings), checks(diagnostics.as_rows(findings)))
    problem = diagnostics.verdict(findings)
    if problem is not None:
        raise problem


def _limit_findings(settings: AgentSettings) -> list[Diagnosis]:
    """Look at the owner's limits, without those of a day: whether the device may train now."""
    from device_agent.limits.decision import DayUse, decide
    from device_agent.limits.training_policy import lacking
    from device_agent.reports.nvidia_gpus import NvidiaGpus
    from device_agent.reports.telemetry import Sensors
    from edgefed.terminal.diagnostics import Diagnosis

    when = settings.when
    if not when.limited:
        return []
    readings = Sensors(gpus=NvidiaGpus()).readings(when, settings.state)
    pause = decide(when, readings, DayUse(), SystemClock().now())
    text = "the device may train now" if pause is None else f"paused now: {pause.reason}"
    unread = [
        Diagnosis("limits", "warning", f"when.{name} does not apply: no sensor for it")
        for name in lacking(when, readings)
    ]
    return [Diagnosis("limits", "good", text), *unread]


def _data_findings(settings: AgentSettings) -> list[Diagnosis]:
    """Look at the data: a line of its own for each warning."""
    from device_agent.daemon.own_data import load_data
    from edgefed.errors import EdgeFedError
    from edgefed.terminal.diagnostics import Diagnosis, failed

    try:
        device_data = load_data(settings)
    except EdgeFedError as error:
        return [failed("data", error)]
    good = Diagnosis("data", "good", counted(len(device_data.train), "sample"))
    return [good, *(Diagnosis("data", "warning", warning) for warning in device_data.warnings)]


def _broker_findings(settings: AgentSettings) -> list[Diagnosis]:
    """Check whether the broker answers, and whether it forwards this device's messages."""
    import secrets

    from device_agent.identity.device_name import device_name
    from device_agent.identity.presence_check import check_presence
    from edgefed.config.fleet.broker_address import broker_address
    from edgefed.terminal.diagnostics import look_at
    from edgefed.transport.link import Link

    name = device_name(settings)

    def answers() -> str:
        address = broker_address(settings, (name,)).for_commands()  # an agent may be at work
        link = Link(address, f"edgefed-doctor-{secrets.token_hex(4)}", lambda _: None)
        link.start_now(5.0)
        link.stop()
        return f"{address} answers"

    def is_heard() -> str:
        check_presence(broker_address(settings, (name,)), settings.fleet, name)
        return f"device {name} of fleet {settings.fleet} may publish"

    broker = look_at("broker", answers)
    return [broker, look_at("presence", is_heard)] if broker.state == "good" else [broker]


@app.command()
def status(
    context: typer.Context,
    *,
    name: Name = None,
    check: Check = False,
) -> None:
    """Show the current activity of the agent on this device, or check it.

    With --check: one line. Exit code 0 if the agent works, 3 if it does not run or the broker is
    not connected, 5 if it never ran, 8 for any other problem.
    """
    from device_agent.identity.device_name import agent_folder, device_name
    from device_agent.reports.status_file import read_status_file

    options = common_options(context)
    settings = agent_settings(options, name=name)
    status = read_status_file(agent_folder(settings), device_name(settings))
    if check:
        _check_health(status)
        options.answer(status, "healthy: {device} {state}, {samples} samples".format(**status))
        return
    options.answer(status, columns([(key, _in_words(key, value)) for key, value in status.items()]))


def _check_health(status: dict[str, Any]) -> None:
    """Check a status for monitoring.

    Raises:
        UnreachableError: ``agent.stopped``, ``broker.unreachable``.
        CheckFailedError: ``agent.unhealthy``.
    """
    from edgefed.errors import CheckFailedError, UnreachableError

    device = status["device"]
    if not status["running"]:
        raise UnreachableError(
            f"The agent {device} does not run.", code="agent.stopped", hint="edgefed-agent run"
        )
    if not status["connected"]:
        raise UnreachableError(
            f"The agent {device} is not connected to {status['broker']}.",
            hint="edgefed-agent doctor",
        )
    if status["state"] == "paused" and not status.get("may_train", True):
        return  # its owner's limits are no fault
    if status["state"] in ("failed", "paused", "rejected") or (
        status["reason"] and status["state"] != "late"
    ):
        raise CheckFailedError(
            f"The agent {device} is in state {status['state']}: {status['reason'] or 'no reason'}",
            code="agent.unhealthy",
            hint="edgefed-agent doctor, and its log",
        )


def _in_words(key: str, value: object) -> str:
    """Return a value of the status file as text: how long ago, counts by kind in one line."""
    if key == "since" and isinstance(value, str):
        return ago((SystemClock().now() - moment_of(value)).total_seconds())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{kind} {count}" for kind, count in value.items()) or "none"
    return str(value)


@app.command()
def ledger(
    context: typer.Context,
    *,
    name: Name = None,
) -> None:
    """Show the releases of this device, the privacy cost of mixes, and the rest of their budget.

    Columns: id, time in UTC, run, round, kind, samples in the release, scale of its noise, epsilon,
    formal guarantee, receiver, number of mixes, and all other details as JSON.
    """
    from device_agent.identity.device_name import agent_folder, device_name
    from device_agent.identity.owners_policy import owners_policy
    from device_agent.tasks.device_store import read_releases
    from device_agent.tasks.release_ledger import as_json, as_rows, owner_decided, totals_as_rows

    options = common_options(context)
    loaded = loaded_settings(options, name=name)
    settings = loaded.value
    device, policy = device_name(settings), owners_policy(settings)
    releases = read_releases(agent_folder(settings), device)
    if not owner_decided(loaded):
        talk(
            "! no setting about mixes is read here, so what is left follows the defaults; "
            "if the agent has a settings file, name it with --config FILE"
        )
    if options.json:
        json_out(as_json(device, policy, releases))
        return
    if releases:
        data(columns(as_rows(releases)) + "\n")
    else:
        talk("nothing released yet")
    data(columns(totals_as_rows(device, policy, releases)))


@app.command()
def predict(
    context: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A model.safetensors.", show_default=False)
    ],
    inputs: Inputs,
    *,
    top: Top = 1,
    as_csv: Csv = False,
    model: ModelName = "",
    user_models: UserModels = False,
    device: Processor = "",
) -> None:
    """Predict images, or the inputs of NPZ files, on this device with the model of a file.

    Each line has the input, its most probable class and the class's probability. For a folder with
    a folder for each class, and for an NPZ file with labels, the accuracy is printed, too. Images
    that cannot be read are left out and listed at the end, with exit code 7.
    """
    from edgefed.learn.base.processors import set_threads
    from edgefed.prediction.command import PredictRequest, form_of, predict_and_print

    options = common_options(context)
    form = form_of(options.json, as_csv)
    settings = agent_settings(options)
    set_threads(settings.threads)
    predict_and_print(
        PredictRequest(
            source=source.expanduser(),
            inputs=inputs,
            top=top,
            form=form,
            quiet=options.quiet,
            model=model,
            user_models=user_models or settings.user_models,
            device=device,
        )
    )


@app.command()
def version(context: typer.Context) -> None:
    """Print versions of the agent, the protocol, Python and torch."""
    import platform
    from importlib.metadata import version as installed

    from edgefed.version import PROTOCOL, VERSION

    versions = {
        "agent": VERSION,
        "protocol": str(PROTOCOL),
        "python": platform.python_version(),
        "torch": installed("torch"),
    }
    if common_options(context).json:
        json_out(versions)
    else:
        data(columns(list(versions.items())))


def main() -> None:
    """Run the command line."""
    start(app)


if __name__ == "__main__":
    main()
