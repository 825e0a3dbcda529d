"""``edgefed privacy``: the disclosure of a recipe's run about one device, before it starts."""

from __future__ import annotations

from typing import Any

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import AlgorithmName, RecipeFile, Sets
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.console import columns

app = CommandLine(help="Plan differential privacy: the noise of a recipe, and its epsilon.")


@app.command(
    epilog=examples(
        "edgefed privacy plan recipe.toml",
        "edgefed privacy plan recipe.toml --set privacy.epsilon=8 --json",
    ),
    json=True,
)
def plan(
    context: typer.Context,
    recipe: RecipeFile = None,
    *,
    algorithm: AlgorithmName = None,
    sets: Sets = None,
) -> None:
    """Print the noise multiplier of a recipe and the epsilon of its whole run.

    No fleet is needed. A recipe that exceeds its own budget is refused, as by every command that
    starts a run, with the settings that would meet it.
    """
    from edgefed.algorithms.composed.registry import make
    from edgefed.algorithms.private.privacy_plan import privacy_plan
    from edgefed.cli.common.recipes import Typed, checked_recipe
    from edgefed.errors import UsageError

    options = globals_of(context)
    made = checked_recipe(options, Typed(recipe, sets, algorithm))
    make(made)
    if not made.privacy.wanted:
        raise UsageError(
            "The recipe has no differential privacy.",
            code="privacy.none",
            hint='set privacy.mechanism = "central" or "local"',
        )
    numbers = privacy_plan(made.privacy, made.rounds).as_json()
    options.answer(numbers, columns(list(_rows(numbers))))


def _rows(numbers: dict[str, Any]) -> list[tuple[str, str]]:
    sampled = f"{numbers['sampled']} of {numbers['population']} devices, drawn secretly"
    budget = "" if numbers["budget"] is None else f", of a budget of {numbers['budget']:.4g}"
    norm = "at first, then adaptive" if numbers["adaptive"] else "for every update"
    return [
        ("mechanism", numbers["mechanism"]),
        ("clip", f"{numbers['clip']:.4g} {norm}"),
        ("noise multiplier", f"{numbers['noise_multiplier']:.4g}"),
        ("rounds", str(numbers["rounds"])),
        ("cohort", sampled if numbers["sampled"] else "every device may be in every round"),
        ("epsilon", f"{numbers['epsilon']:.4g} at delta {numbers['delta']:.4g}{budget}"),
        ("neighbours", "fleets that differ in all data of one device (replace-one)"),
    ]
