"""``edgefed-agent mixes``: a preview of mixes of this device's samples, for its owner."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from device_agent.commands.options import Data, agent_settings
from edgefed.errors import UsageError
from edgefed.terminal.command_line import CommandLine
from edgefed.terminal.common_options import common_options
from edgefed.terminal.console import talk

if TYPE_CHECKING:
    from edgefed.data.base.types import DeviceData
    from edgefed.sharing.label_mixes import MixSettings
    from edgefed.sharing.mix_preview import MixPreview

app = CommandLine(help="Look at mixes of this device's samples before other devices get any.")

SCALES = ("0", "8/255", "16/255", "64/255")
"""Noise scales that are drawn by default."""

_MOST, _MOST_SCALES = 100, 8


@app.callback()
def mixes() -> None:
    """Keep ``preview`` a command of a group."""


@app.command()
def preview(
    context: typer.Context,
    *,
    label: Annotated[
        str, typer.Option("--label", help="Label of the mixes: its number or its name.")
    ],
    png: Annotated[
        Path, typer.Option("--png", help="Draw the picture into this file.", metavar="FILE")
    ],
    source: Data = None,
    count: Annotated[int, typer.Option("--count", help="How many mixes.", min=1, max=_MOST)] = 4,
    width: Annotated[int, typer.Option("--width", help="Samples in a mix.")] = 4,
    low: Annotated[float, typer.Option("--low", help="Least weight of the first sample.")] = 0.5,
    high: Annotated[
        float, typer.Option("--high", help="Largest weight of the first sample.")
    ] = 0.75,
    others: Annotated[
        Literal["any", "other_classes"],
        typer.Option("--others", help="Labels of the other samples."),
    ] = "any",
    noise_scale: Annotated[
        list[str],
        typer.Option(
            "--noise-scale",
            help="Scale of the noise, such as 16/255 or 0.05; repeat it to compare several.",
            metavar="SCALE",
        ),
    ] = list(SCALES),  # noqa: B006 - Typer copies it
) -> None:
    """Draw mixes of a label beside their samples. Nothing is sent or recorded.

    Each row is a mix: its samples with their weights, then the released image at each noise scale.
    The draws come from the operating system: each call shows other mixes.
    """
    from edgefed.sharing.label_mixes import MixSettings

    options = common_options(context)
    file = _checked(png)
    # Each scale is checked as a setting, before any data is read.
    mix_settings = [MixSettings(width, low, high, others, scale) for scale in _scales(noise_scale)]
    from device_agent.daemon.own_data import load_data

    data = load_data(agent_settings(options, source=source))
    made, number = _drawn(data, label, count, mix_settings)
    from edgefed.files.writing import write_output
    from edgefed.report.mix_sheet import mix_sheet

    write_output(file, mix_sheet(made, data.class_names))
    epsilons = _epsilons(data, number, mix_settings)
    answer = {"png": str(file), **_plain(made, number), "epsilon": epsilons}
    options.answer(answer, str(file))
    if not options.quiet and not options.json:
        _talk(epsilons)


def _drawn(
    data: DeviceData, label: str, count: int, settings: list[MixSettings]
) -> tuple[MixPreview, int]:
    """Return mixes of a label with every noise scale, and the label's number."""
    import numpy as np

    from edgefed.data.base.pixel_range import to_pixels
    from edgefed.sharing.label_mixes import require_labels
    from edgefed.sharing.mix_preview import preview_mixes

    require_labels(data.train)
    samples = to_pixels(data.train, data.preparation)
    number = _number(data, label)
    scales = [setting.noise_scale for setting in settings]
    # Without a seed, numpy asks the operating system for one.
    generator = np.random.default_rng()
    return preview_mixes(samples, number, count, settings[0], scales, generator), number


def _number(data: DeviceData, label: str) -> int:
    """Return the number of a label that the device has, from its number or its name."""
    import numpy as np

    from edgefed.config.recipes.class_names import normal

    held = [int(value) for value in np.unique(data.train.targets)]
    names = {value: data.class_names[value] for value in held if value < len(data.class_names)}
    wanted = normal(label)
    for number in held:
        if wanted == (names.get(number) or str(number)):
            return number
    if wanted.isdecimal() and int(wanted) in held:
        return int(wanted)
    shown = [f"{value} {names.get(value, '')}".strip() for value in held[:_SHOWN]]
    rest = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    raise UsageError(
        f"This device has no sample of label '{label}'.",
        code="mix.label",
        hint=f"it has {', '.join(shown)}{rest}",
    )


_SHOWN = 20
"""Labels that an error lists."""


def _epsilons(
    data: DeviceData, label: int, settings: list[MixSettings]
) -> list[dict[str, float | None]]:
    """Return the cost of one mix at each noise scale; None where nothing bounds it."""
    import math

    from edgefed.sharing.mix_accounting import mix_epsilon

    of_label = int((data.train.targets == label).sum())
    counts = (of_label, len(data.train) - of_label)
    diameter = math.prod(data.shape)
    return [
        {
            "noise_scale": setting.noise_scale,
            "per_mix": mix_epsilon(setting, diameter, *counts),
        }
        for setting in settings
    ]


def _talk(epsilons: list[dict[str, float | None]]) -> None:
    """Print the cost of each mix."""
    from edgefed.report.mix_sheet import scale_in_words
    from edgefed.sharing.mix_accounting import in_words

    for epsilon in epsilons:
        talk(f"noise {scale_in_words(epsilon['noise_scale'] or 0)}: {in_words(epsilon['per_mix'])}")


def _plain(made: MixPreview, label: int) -> dict[str, Any]:
    """Return the samples of the mixes, in the form of ``--json``."""
    mixes = [
        {
            "labels": [int(made.samples.targets[number]) for number, _ in sources],
            "weights": [round(weight, 6) for _, weight in sources],
        }
        for sources in map(made.sources, range(len(made.made.targets)))
    ]
    return {"label": label, "mixes": mixes}


def _scales(texts: list[str]) -> list[float]:
    """Return the numbers that texts are, without repeated ones, if they fit in a picture."""
    scales = [_scale(text) for text in dict.fromkeys(texts)]
    if len(scales) > _MOST_SCALES:
        raise _usage(f"{len(scales)} noise scales do not fit.", f"give at most {_MOST_SCALES}")
    return scales


def _scale(text: str) -> float:
    """Return the number that a fraction or a decimal is."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise _usage(
            f"'{text}' is not a noise scale.", "give --noise-scale 16/255 or --noise-scale 0.05"
        ) from error


def _checked(file: Path) -> Path:
    """Return a file's whole path, if its folder is there."""
    whole = file.expanduser().absolute()
    if not whole.parent.is_dir():
        raise _usage(
            f"The folder {whole.parent} does not exist.", "create it, or name a file elsewhere"
        )
    return whole


def _usage(message: str, hint: str) -> UsageError:
    return UsageError(message, code="usage", hint=hint)
