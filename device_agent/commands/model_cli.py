"""``edgefed-agent model``: the model for the inference program on this device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from device_agent.commands.options import Name, agent_settings
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import common_options
from edgefed.terminal.console import columns

if TYPE_CHECKING:
    from device_agent.models.model_folder import ModelFolder
    from edgefed.terminal.common_options import CommonOptions

app = CommandLine(help="Show the model for this device's inference program, or roll it back.")


def _models(options: CommonOptions, name: str | None) -> ModelFolder:
    from device_agent.identity.device_name import agent_folder
    from device_agent.models.model_folder import MODELS, ModelFolder

    return ModelFolder(agent_folder(agent_settings(options, name=name)) / MODELS)


@app.command(json=True)
def show(context: typer.Context, *, name: Name = None) -> None:
    """Show the current model: its run, scores on this device, and files."""
    from device_agent.models.model_folder import require_model

    options = common_options(context)
    models = _models(options, name)
    description = require_model(models)
    answer = {**description, "previous": models.rollout("previous")}
    words = ((key, _in_words(value)) for key, value in answer.items())
    options.answer(answer, columns([(key, text) for key, text in words if text]))


@app.command()
def path(context: typer.Context, *, name: Name = None) -> None:
    """Print the folder of the current model, with its links resolved.

    It keeps its files until the second model after it is installed.
    """
    from device_agent.models.model_folder import require_model

    options = common_options(context)
    models = _models(options, name)
    require_model(models)
    folder = str((models.folder / "current").resolve())
    options.answer({"path": folder}, folder)


@app.command(json=True)
def rollback(context: typer.Context, *, name: Name = None) -> None:
    """Make the model before the current one the current model again.

    Without one there is no current model. The coordinator learns it, and does not offer the model
    that was rolled back again.
    """
    from device_agent.models.model_folder import require_model

    options = common_options(context)
    models = _models(options, name)
    require_model(models)
    models.roll_back("the device's owner rolled it back")
    current = models.rollout("current")
    answer = {"current": current, "rolled_back": models.outcome()}
    options.answer(answer, f"current: {current or 'no model'}")


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
