"""The ``edgefed`` command: the module of each command."""

from __future__ import annotations

from edgefed.cli.common.help import examples
from edgefed.cli.fleet import (
    agent_update,
    broker,
    coordinator,
    demo,
    device,
    doctor,
    events,
    gateway,
    init,
    model,
    operator,
    rotate_keys,
    service,
    status,
    up,
)
from edgefed.cli.laboratory import advise, algo, data, noise, plugin, privacy, reproduce, sim
from edgefed.cli.runs import label, predict, run, tables
from edgefed.cli.support import backup, bug_report, cache, config, release, ui, version
from edgefed.terminal.command_line import program
from edgefed.terminal.console import start

app = program(
    "edgefed",
    help="Train one model over a fleet of edge devices without collecting their data.",
    epilog=examples("edgefed demo", "edgefed status", "edgefed run start recipe.toml"),
)
app.command(epilog=demo.EPILOG, json=True)(demo.demo)
app.command(epilog=init.EPILOG)(init.init)
app.command(epilog=up.EPILOG)(up.up)
app.command(epilog=status.EPILOG, json=True)(status.status)
app.command(epilog=events.EPILOG, json=True)(events.events)
app.command(epilog=ui.EPILOG)(ui.ui)
app.command(epilog=coordinator.EPILOG)(coordinator.coordinator)
app.add_typer(service.app, name="service")
app.add_typer(run.app, name="run")
app.command(epilog=predict.EPILOG, json=True)(predict.predict)
app.add_typer(device.app, name="device")
app.add_typer(model.app, name="model")
app.add_typer(agent_update.app, name="agent-update")
app.add_typer(gateway.app, name="gateway")
app.add_typer(operator.app, name="operator")
app.command("rotate-keys", epilog=rotate_keys.EPILOG, json=True)(rotate_keys.rotate_keys)
app.command(epilog=backup.BACKUP_EPILOG, json=True)(backup.backup)
app.command(epilog=backup.RESTORE_EPILOG, json=True)(backup.restore)
app.add_typer(release.app, name="release")
app.add_typer(label.app, name="label")
app.add_typer(tables.expert, name="expert")
app.add_typer(tables.match, name="match")
app.add_typer(algo.app, name="algo")
app.add_typer(plugin.app, name="plugin")
app.add_typer(sim.app, name="sim")
app.add_typer(advise.app, name="advise")
app.command(epilog=reproduce.EPILOG)(reproduce.reproduce)
app.add_typer(data.app, name="data")
app.add_typer(noise.app, name="noise")
app.add_typer(privacy.app, name="privacy")
broker.app.command(epilog=init.ADDRESS_EPILOG, json=True)(init.address)
app.add_typer(broker.app, name="broker")
app.add_typer(config.app, name="config")
app.add_typer(cache.app, name="cache")
app.command(epilog=doctor.EPILOG, json=True)(doctor.doctor)
app.command(epilog=bug_report.EPILOG, json=True)(bug_report.report)
app.command(epilog=version.EPILOG, json=True)(version.version)


def main() -> None:
    """Run the command line."""
    start(app)


if __name__ == "__main__":
    main()
