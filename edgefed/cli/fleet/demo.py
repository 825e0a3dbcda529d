"""``edgefed demo``: a complete federation on one machine, with a process for each part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import AlgorithmName, Devices, Rounds, Seed, Sets
from edgefed.terminal.console import data, json_out

if TYPE_CHECKING:
    from edgefed.cli.programs.processes import Processes
    from edgefed.config.fleet.settings import Settings
    from edgefed.config.loading.load import Loaded
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.tui.keys.keymap import Keymap
    from edgefed.tui.state.run_commands import NextStep, RunCommands

EPILOG = examples(
    "edgefed demo",
    "edgefed demo --headless --json --devices 8 --seed 1",
    "edgefed demo --algorithm fedprox --rounds 20 --set algorithm.mu=0.1",
    "edgefed demo --algorithm fedmix",
)
RECIPE = Path(__file__).parents[1] / "demo.toml"
FLEET = "demo"
KEPT = 5
"""Demo folders that are kept; older ones are deleted."""


def demo(
    context: typer.Context,
    *,
    devices: Devices = None,
    rounds: Rounds = None,
    seed: Seed = None,
    algorithm: AlgorithmName = None,
    sets: Sets = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            "--recipe", help="Recipe to run instead of the demo's.", rich_help_panel="Run"
        ),
    ] = None,
    broker: Annotated[
        str, typer.Option("--broker-kind", help="Broker: auto, mosquitto or embedded.")
    ] = "auto",
    headless: Annotated[
        bool, typer.Option("--headless", help="Print a progress line instead of the dashboard.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the recipe as TOML and start nothing.")
    ] = False,
) -> None:
    """Train a real model on eight devices on this machine, over MQTT, in about a minute.

    The demo starts a broker, a coordinator and one agent per device as separate processes,
    distributes scikit-learn's handwritten digits with two classes per device, and shows the
    dashboard. It uses no credentials and no encryption, and no other machine reaches it. Ctrl-C
    stops everything.
    """
    from edgefed.algorithms.composed.registry import check_fleet, make
    from edgefed.cli.common.recipes import Typed, checked_recipe, describe_result
    from edgefed.config.loading.write import to_toml

    options = globals_of(context)
    typed = Typed(recipe or RECIPE, sets, algorithm, rounds, seed, devices)
    made = _for_demo(checked_recipe(options, typed))
    if dry_run:
        data(to_toml(made))
        return
    check_fleet(make(made))
    screen = not (headless or options.json) and sys.stdout.isatty() and sys.stderr.isatty()
    fleet = _Demo(options, made, _kind(broker), screen)
    try:
        result = fleet.run()
        if options.json:
            json_out(result)
        else:
            data(describe_result(result))
    finally:
        if fleet.next_steps:
            options.note(f"\nNext steps:\n{fleet.next_steps}\n")


def _for_demo(recipe: Recipe) -> Recipe:
    """Let the run wait for every device that the demo starts."""
    rounds = recipe.rounds.model_copy(update={"min_devices": recipe.simulation.devices})
    return recipe.model_copy(update={"rounds": rounds})


def _kind(text: str) -> Any:
    from edgefed.errors import UsageError

    if text not in ("auto", "mosquitto", "embedded"):
        raise UsageError(f"There is no broker kind '{text}'.", hint="auto, mosquitto or embedded")
    return text


class _Demo:
    """One demo, from dealing the data to the result.

    Attributes:
        next_steps: commands that go on from its run, as lines; empty before there is one.
    """

    def __init__(self, options: Globals, recipe: Recipe, kind: Any, screen: bool) -> None:
        self.next_steps = ""
        self._recipe = recipe
        self._kind = kind
        self._options = options
        self._quiet = options.json or options.quiet
        loaded = options.settings()
        settings = loaded.value
        self._keys = _keys(loaded) if screen else None
        self._state = settings.state
        self._user_models = settings.user_models

    def run(self) -> dict[str, Any]:
        from broker.address import free_port
        from edgefed.cli.programs.processes import Processes, running, wait_for_coordinator
        from edgefed.config.values.address import Address

        folder = _new_folder(self._state / "demo")
        address = Address("127.0.0.1", free_port())
        # The recipe dealt out what the agents hold, so no other owner has a say.
        own = Processes(
            address,
            FLEET,
            folder,
            user_models=self._user_models,
            share_mixes=True,
            share_gate=True,
        )
        with running(own) as processes:
            broker = processes.start_broker(self._kind)
            self._options.note(
                f"broker       {broker.name} on {address}, without credentials: a demo"
            )
            processes.start_coordinator()
            self._deal(processes)
            self._options.note(f"devices      {len(processes.agents)}, logs in {folder / 'logs'}")
            wait_for_coordinator(processes)
            return self._train(processes)

    def _deal(self, processes: Processes) -> None:
        """Write each device's shard and start its agent on it."""
        from edgefed.algorithms.composed.evaluation_place import holdout_of
        from edgefed.algorithms.composed.registry import make
        from edgefed.coordinator.models.run_model import load_dataset
        from edgefed.data.devices.partition import deal_recipe
        from edgefed.data.devices.shard_files import write_shard
        from edgefed.simulator.local_fleet import device_names

        recipe = self._recipe
        dataset = load_dataset(recipe, self._state / "data")
        shards = deal_recipe(dataset, recipe, holdout_of(recipe, make(recipe)))
        for name, shard in zip(device_names(len(shards)), shards, strict=True):
            path = _shard(processes, name)
            write_shard(path, shard)
            processes.start_agent(name, f"npz:{path}")

    def _train(self, processes: Processes) -> dict[str, Any]:
        from edgefed.api.run_summary import failure_of, result_of
        from edgefed.control.coordinator_client import CoordinatorClient

        commands = self._commands(processes)
        client = CoordinatorClient(processes.address, FLEET)
        client.connect()
        try:
            body = self._recipe.model_dump(mode="json")
            run = client.order("run.start", recipe=body)["run"]
            self._show_steps(commands.next_steps(run, "interrupted", 0))
            self._watch(processes, run, commands)
            record = client.ask("run.show", run=run)
        finally:
            client.close()
        self._show_steps(commands.next_steps(run, record["status"], record["round"]))
        failure = failure_of(record, f"{commands.program} run show {run} --local")
        if failure is not None:
            raise failure
        return result_of(record, str(Path(record["folder"]) / "model.safetensors"))

    def _commands(self, processes: Processes) -> RunCommands:
        """Return the command lines about the run; it can predict the samples of a device."""
        from edgefed.cli.programs.run_launcher import StartOptions
        from edgefed.tui.state.run_commands import RunCommands

        shard = _shard(processes, next(iter(processes.agents)))
        return RunCommands(StartOptions.of(self._options).program, str(shard), of_demo=True)

    def _show_steps(self, steps: tuple[NextStep, ...]) -> None:
        """Show steps at the end, instead of earlier ones."""
        from edgefed.tui.state.run_commands import steps_text

        self.next_steps = steps_text(steps, "  ")

    def _watch(self, processes: Processes, run: str, commands: RunCommands) -> None:
        """Show the run until it ends; leaving the dashboard early leaves a progress line."""
        from edgefed.cli.programs.follow_run import follow
        from edgefed.cli.programs.show_dashboard import show_until_ended
        from edgefed.process.clock import SystemClock

        clock, address = SystemClock(), processes.address
        if self._keys and show_until_ended(
            address, FLEET, run, clock, self._state, commands, self._keys
        ):
            return
        follow(processes.address, FLEET, run, clock, quiet=self._quiet, alive=processes.check)


def _shard(processes: Processes, device: str) -> Path:
    """Return the file of a device's samples."""
    return processes.folder / "shards" / f"{device}.npz"


def _keys(loaded: Loaded[Settings]) -> Keymap:
    """Return the dashboard's keys, which are checked before anything is started."""
    from edgefed.tui.keys.keymap import checked_keymap

    return checked_keymap(loaded)


def _new_folder(base: Path) -> Path:
    """Make this demo's folder and delete the oldest ones."""
    import shutil

    from edgefed.files.writing import make_folder

    make_folder(base)
    numbers = sorted(int(path.name) for path in base.iterdir() if path.name.isdigit())
    for number in numbers[: -(KEPT - 1)] if len(numbers) >= KEPT else []:
        shutil.rmtree(base / f"{number:04d}", ignore_errors=True)
    return make_folder(base / f"{(numbers[-1] if numbers else 0) + 1:04d}")
