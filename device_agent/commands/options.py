"""Options of several commands of ``edgefed-agent``, and the settings that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from edgefed.config.fleet.settings import AgentSettings
    from edgefed.config.loading.load import Loaded
    from edgefed.terminal.common_options import CommonOptions

Name = Annotated[
    str | None, typer.Option("--name", help="Name of this device; by default the host name.")
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        help="Training data: npz:FILE, folder:FOLDER, text:FILE or mnist:FOLDER.",
        metavar="SOURCE",
    ),
]
Holdout = Annotated[
    float | None, typer.Option("--holdout", help="Fraction of samples held out for evaluation.")
]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of torch threads on a CPU.")]


def agent_settings(
    options: CommonOptions,
    *,
    name: str | None = None,
    source: str | None = None,
    holdout: float | None = None,
    threads: int | None = None,
    enrolled: bool = True,
) -> AgentSettings:
    """Return the agent's settings: those of the command line, then of the environment and files.

    With ``enrolled``, name and fleet are those of this machine's credentials where nothing sets
    them.
    """
    return loaded_settings(
        options, name=name, source=source, holdout=holdout, threads=threads, enrolled=enrolled
    ).value


def loaded_settings(
    options: CommonOptions,
    *,
    name: str | None = None,
    source: str | None = None,
    holdout: float | None = None,
    threads: int | None = None,
    enrolled: bool = True,
) -> Loaded[AgentSettings]:
    """Return the agent's settings, and where each of them was written."""
    from device_agent.identity.enrolled_device import with_enrolment
    from edgefed.config.fleet.settings_files import Surroundings
    from edgefed.config.loading.load import Flag, load_agent_settings

    flags = [
        Flag("--broker", "broker", options.broker),
        Flag("--insecure", "insecure", options.insecure or None),
        Flag("--fleet", "fleet", options.fleet),
        Flag("--state", "state", options.state),
        Flag("--name", "name", name),
        Flag("--data", "data", source),
        Flag("--holdout", "holdout", holdout),
        Flag("--threads", "threads", threads),
    ]
    around = Surroundings.of_process(options.config, options.no_config)
    loaded = load_agent_settings(around, flags)
    return with_enrolment(loaded) if enrolled else loaded
