"""``edgefed run check``: which devices' data fit a recipe, before a run is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import AlgorithmName, RecipeFile, Sets
from edgefed.terminal.console import columns
from edgefed.terminal.units import counted, size

if TYPE_CHECKING:
    from edgefed.errors import EdgeFedError

EPILOG = examples("edgefed run check recipe.toml", "edgefed run check recipe.toml --json")

TIMEOUT = 300.0
"""Seconds for the coordinator to read its data set, which may first be downloaded."""


def check(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    algorithm: AlgorithmName = None,
    sets: Sets = None,
) -> None:
    """Check whether the devices' data fit a recipe, and print the reasons if they do not.

    Nothing is started. The exit code is 8 if a device does not fit, no device is online, or the run
    cannot start from the weights that the recipe names. Weights that would first be downloaded are
    reported as not known.
    """
    from edgefed.cli.common.recipes import Typed, checked_recipe

    options = globals_of(context)
    made = checked_recipe(options, Typed(recipe, sets, algorithm))
    with options.connected() as coordinator:
        arguments = {"recipe": made.model_dump(mode="json")}
        answer = coordinator.call("run.check", arguments, TIMEOUT)
    options.answer(answer, _shown)
    failure = _failure(answer)
    if failure is not None:
        raise failure


def _shown(answer: dict[str, Any]) -> str:
    rows = [("DEVICE", "FITS", "WHY NOT")]
    rows += [
        (device["device"], "yes" if device["fits"] else "no", device["reason"])
        for device in answer["devices"]
    ]
    lines = [columns(rows)]
    if answer["busy"]:
        lines.append(
            f"busy     run {answer['busy']} is at work: run start is refused until it ends"
        )
    if answer["class_names"]:
        lines.append(f"classes  {', '.join(answer['class_names'])}")
    if weights := answer.get("weights"):
        lines.append(f"weights  {_weights(weights)}")
    if merging := answer.get("merging"):
        memory, held = size(merging["memory"]), size(merging["held"])
        lines.append(f"merging  {merging['rule']}: {memory} of memory; replies held: {held}")
    if plan := answer.get("privacy"):
        lines.append(_privacy(plan))
    return "\n".join(lines)


def _weights(weights: dict[str, str]) -> str:
    """Return whether the run can start from the weights that its recipe names."""
    usable = {"unknown": "not known"}.get(weights["usable"], weights["usable"])
    return f"{usable}: {weights['reason']}" if weights["reason"] else usable


def _privacy(plan: dict[str, Any]) -> str:
    """Return a line about the epsilon of the run."""
    cost = f"epsilon {plan['epsilon']:.4g} at delta {plan['delta']:.4g}"
    return f"privacy  {plan['mechanism']}, {cost}, noise multiplier {plan['noise_multiplier']:.4g}"


def _failure(answer: dict[str, Any]) -> EdgeFedError | None:
    """Return the error to end with when something does not fit."""
    from edgefed.errors import CheckFailedError

    problem = answer["problem"]
    if problem:
        return CheckFailedError(problem["message"], hint=problem["hint"])
    if not answer["devices"]:
        return CheckFailedError("No device is online.", hint="start one: edgefed-agent run")
    unfit = [device["device"] for device in answer["devices"] if not device["fits"]]
    if not unfit:
        return None
    verb = "does not fit" if len(unfit) == 1 else "do not fit"
    return CheckFailedError(
        f"{len(unfit)} of {counted(len(answer['devices']), 'device')} {verb}: {', '.join(unfit)}.",
        hint="a run excludes them; correct their data, or data.classes of the recipe",
    )
