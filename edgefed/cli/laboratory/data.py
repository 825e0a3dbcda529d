"""``edgefed data``: partition a data set into shards, and show the samples of each device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefed.cli.common.context import Globals, globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Devices, RecipeFile, Seed, Sets
from edgefed.files.user_code import classes_allowed
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import hide_progress, show_progress, talk
from edgefed.terminal.units import counted

if TYPE_CHECKING:
    from edgefed.cli.common.recipes import Typed
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.data.base.types import Shard

app = CommandLine(help="Split data into shards, and show which labels each device holds.")


@app.callback()
def data_() -> None:
    """Split data into shards, and show the labels of each device."""


@app.command(
    epilog=examples(
        "edgefed data split recipe.toml --out shards --devices 20",
        "edgefed data split --out shards --set data.partition=dirichlet --set data.alpha=0.1",
        "edgefed-agent run --data npz:shards/device-00.npz",
    ),
    json=True,
)
def split(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    out: Annotated[
        Path,
        typer.Option("--out", help="Folder for the shards.", metavar="FOLDER", show_default=False),
    ],
    devices: Devices = None,
    seed: Seed = None,
    sets: Sets = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier split; keep other files.")
    ] = False,
) -> None:
    """Split a recipe's data into one NPZ file per device, as a simulation does.

    The folder appears only when it is complete. Its split.json contains the data section, the
    seed and the label counts.
    """
    from edgefed.cli.common.recipes import Typed
    from edgefed.data.devices.shard_folder import check_target, write_split

    options = globals_of(context)
    check_target(out, force)
    made, shards, about = _dealt(options, Typed(recipe, sets, seed=seed, devices=devices))
    index = write_split(out, _shown(shards, quiet=options.quiet), about, force=force)
    totals, count = index["totals"], len(index["devices"])
    samples = f"{totals['train']} training and {counted(totals['test'], 'test sample')}"
    options.answer(index, f"{counted(count, 'device')}, {samples} of '{made.data.name}' in {out}")


@app.command(
    epilog=examples(
        "edgefed data show recipe.toml --devices 20",
        "edgefed data show shards",
        "edgefed data show npz:shards/device-00.npz --json",
    ),
    json=True,
)
def show(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE|FOLDER|RECIPE",
            help="A device's data (npz:FILE, folder:FOLDER, …), a folder of shards, or a recipe;"
            " without one, the default recipe.",
            show_default=False,
        ),
    ] = None,
    *,
    devices: Devices = None,
    seed: Seed = None,
    sets: Sets = None,
) -> None:
    """Show how many samples of each label each device holds.

    For a recipe, show the samples of its virtual devices.
    """
    from edgefed.cli.common.recipes import Typed

    options = globals_of(context)
    report = _found(options, target, Typed(None, sets, seed=seed, devices=devices))
    options.answer(report, _drawn)


def _shown(shards: list[tuple[str, Shard]], *, quiet: bool) -> Iterator[tuple[str, Shard]]:
    """Yield shards, and show how many are written."""
    for number, named_shard in enumerate(shards):
        if not quiet:
            show_progress("writing shards", number, len(shards), named_shard[0])
        yield named_shard
    hide_progress()


def _found(options: Globals, target: str | None, typed: Typed) -> dict[str, Any]:
    """Return the report on whatever the target is."""
    from dataclasses import replace

    from edgefed.data.devices.report import holding, report
    from edgefed.data.devices.shard_folder import read_split

    path = Path(target).expanduser() if target else None
    is_source = target is not None and path is not None and _is_source(target, path)
    if path is None or not (is_source or path.is_dir()):
        _, shards, about = _dealt(options, replace(typed, path=path))
        return {**about, **report([holding(name, shard) for name, shard in shards])}
    _refuse_recipe_options(typed)
    if is_source:
        return _source_report(str(target) if ":" in str(target) else f"npz:{target}", options)
    return {"folder": str(path), **report([holding(*part) for part in read_split(path)])}


def _is_source(target: str, path: Path) -> bool:
    """Return whether the target names a device's data and not a recipe or a folder."""
    if path.exists():
        return path.is_file() and path.suffix == ".npz"
    return ":" in target or path.suffix == ".npz"


def _refuse_recipe_options(typed: Typed) -> None:
    from edgefed.errors import UsageError

    if typed.devices is not None or typed.seed is not None or typed.sets:
        raise UsageError(
            "--devices, --seed and --set change a recipe, but no recipe is shown.",
            hint="leave them out, or name a recipe",
        )


def _source_report(source: str, options: Globals) -> dict[str, Any]:
    from edgefed.config.fleet.settings import AgentSettings
    from edgefed.data.devices.report import holding, report
    from edgefed.data.devices.sources import load_device

    holdout = AgentSettings.model_fields["holdout"].get_default()
    held = load_device(source, holdout, options.settings().value.state / "data")
    _warn(options, held.warnings)
    notes = {"warnings": list(held.warnings), "ignored": dict(held.ignored)}
    return {"source": source, **report([holding(held.name, held)]), **notes}


@classes_allowed()
def _dealt(
    options: Globals, typed: Typed
) -> tuple[Recipe, list[tuple[str, Shard]], dict[str, Any]]:
    """Return the recipe, each virtual device's shard as a simulation deals them, and how."""
    from edgefed.algorithms.composed.evaluation_place import holdout_of
    from edgefed.algorithms.composed.registry import make
    from edgefed.cli.common.recipes import checked_recipe
    from edgefed.coordinator.models.run_model import load_dataset
    from edgefed.data.devices.partition import concentration, deal_recipe
    from edgefed.simulator.local_fleet import device_names

    recipe = checked_recipe(options, typed)
    dataset = load_dataset(recipe, options.settings().value.state / "data")
    _warn(options, dataset.warnings)
    simulation = recipe.simulation
    holdout = holdout_of(recipe, make(recipe))
    shards = deal_recipe(dataset, recipe, holdout)
    about = {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "data": recipe.data.model_dump(mode="json"),
        "holdout": holdout,
        "concentration": concentration(
            recipe.data, dataset.train.targets, simulation.devices, dataset.coarse
        ),
    }
    return recipe, list(zip(device_names(simulation.devices), shards, strict=True)), about


def _warn(options: Globals, warnings: tuple[str, ...]) -> None:
    if not options.quiet:
        for warning in warnings:
            talk(f"! {warning}")


def _drawn(report: dict[str, Any]) -> str:
    """Return the report for people."""
    from edgefed.cli.printed.histogram import drawn_on

    return "\n".join([drawn_on(sys.stdout, report), "", *_facts(report)])


def _facts(report: dict[str, Any]) -> list[str]:
    """Return the totals, and the preparation of the inputs."""
    devices, totals = report["devices"], report["totals"]
    shape = "x".join(map(str, report["shape"])) or "1"
    lines = [
        f"{totals['train']} training and {counted(totals['test'], 'test sample')} of shape {shape},"
        f" {_targets(report)}"
    ]
    if len(devices) > 1:
        sizes = [device["train"] for device in devices]
        held = [sum(map(bool, device["labels"])) for device in devices]
        labels = f" and {min(held)} to {counted(max(held), 'label')}" if totals["labels"] else ""
        lines.append(
            f"{len(devices)} devices of {min(sizes)} to {counted(max(sizes), 'sample')}{labels}"
        )
    drawn = report.get("concentration")
    if drawn:
        values = ", ".join(f"{value:g}" for value in drawn["values"][:4])
        more = ", …" if len(drawn["values"]) > 4 else ""
        lines.append(
            f"Dirichlet over {drawn['axis']}: {drawn['components']} components of {values}{more}"
        )
    if report["columns"]:
        named = ", ".join(f"{name} ({count})" for name, count in report["columns"].items())
        lines.append(f"columns, with their numbers of categories: {named}")
    prepared = report["preparation"]
    if prepared["mean"]:
        mean, std = (
            ", ".join(f"{value:.4g}" for value in prepared[key]) for key in ("mean", "std")
        )
        lines.append(f"normalised with mean {mean} and standard deviation {std}")
    return lines


def _targets(report: dict[str, Any]) -> str:
    """Return which labels the samples bear, or how many numbers their targets have."""
    held, classes = report["totals"]["labels"], report["classes"]
    if held:
        return f"{sum(map(bool, held))} of {counted(classes, 'label')}"
    return "with a number for a target" if classes == 1 else f"with {classes} numbers for targets"
