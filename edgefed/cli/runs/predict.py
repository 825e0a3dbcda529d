"""``edgefed predict``: use the model of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from edgefed.cli.common import completion
from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.cli.common.options import Unfinished
from edgefed.prediction.options import Best, Csv, Inputs, ModelName, Processor, Top, UserModels
from edgefed.terminal.console import talk

EPILOG = examples(
    "edgefed predict latest photo.jpg",
    "edgefed predict r-0007 photos/ --top 3 --json",
    "edgefed predict model.safetensors test.npz --csv",
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="Run id or its beginning, latest, a run's folder, or a model.safetensors.",
        show_default=False,
        autocompletion=completion.local_runs,
    ),
]


def predict(
    context: typer.Context,
    source: Source,
    inputs: Inputs,
    *,
    top: Top = 1,
    as_csv: Csv = False,
    model: ModelName = "",
    best: Best = False,
    unfinished: Unfinished = False,
    user_models: UserModels = False,
    device: Processor = "",
) -> None:
    """Predict images, or the inputs of NPZ files, with the model of a run.

    Each line has the input, its most probable class and the class's probability. Of a folder with
    a folder for each class, and of an NPZ file with labels, the recall and the precision of each
    class and the accuracy are printed, too. Images that cannot be read are left out and listed at
    the end, with exit code 7. The newest run that has a model is called latest; stderr names it.
    """
    from edgefed.cli.runs.model_source import model_source
    from edgefed.prediction.command import PredictRequest, form_of, predict_and_print

    options = globals_of(context)
    form = form_of(options.json, as_csv)
    settings = options.settings().value
    chosen = model_source(settings.state, source, best=best, unfinished=unfinished)
    if chosen.note and not options.quiet:
        talk(chosen.note)
    predict_and_print(
        PredictRequest(
            source=chosen.path,
            inputs=inputs,
            top=top,
            form=form,
            quiet=options.quiet,
            model=model,
            best=best,
            user_models=user_models or settings.user_models or chosen.is_simulated,
            device=device,
        )
    )
