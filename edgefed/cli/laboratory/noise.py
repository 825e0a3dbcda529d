"""``edgefed noise``: natural noise, the images that devices draw from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefed.cli.common.context import globals_of
from edgefed.cli.common.help import examples
from edgefed.errors import UsageError
from edgefed.terminal.command_line import CommandLine

app = CommandLine(help="Draw natural noise: images of an untrained generator, from a seed.")

_MOST = 100_000
"""Images that are drawn at once; they are all in memory."""


@app.command(
    epilog=examples(
        "edgefed noise preview --png noise.png",
        "edgefed noise preview --png pink.png --generator spectrum --seed 7",
        "edgefed noise preview --npz noise.npz --count 1000 --size 64",
    ),
    json=True,
)
def preview(
    context: typer.Context,
    *,
    png: Annotated[
        Path | None,
        typer.Option("--png", help="Draw a sheet of the images into this file.", metavar="FILE"),
    ] = None,
    npz: Annotated[
        Path | None,
        typer.Option("--npz", help="Write the images as uint8 array 'images'.", metavar="FILE"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the images.")] = 1,
    count: Annotated[int, typer.Option("--count", help="How many images.", min=1, max=_MOST)] = 64,
    size: Annotated[int, typer.Option("--size", help="Height and width: 32, 64, 128 or 256.")] = 64,
    generator: Annotated[
        Literal["oriented", "spectrum", "white"],
        typer.Option(
            "--generator",
            help="An untrained StyleGAN, pink noise only, or independent pixels.",
        ),
    ] = "oriented",
) -> None:
    """Draw natural noise into a picture or an array, as a preview of the devices' noise.

    The same seed, generator and size give the same images, with any count.
    """
    options = globals_of(context)
    files = {"png": _checked(png), "npz": _checked(npz)}
    if png is None and npz is None:
        raise UsageError(
            "There is no file to draw into.", code="usage", hint="give --png FILE or --npz FILE"
        )
    from edgefed.natural_noise.generators import noise_images

    images = noise_images(seed, count, kind=generator, size=size)
    _write(files, images)
    paths = {name: str(file) for name, file in files.items() if file is not None}
    described = {"seed": seed, "count": count, "size": size, "generator": generator}
    options.answer({**described, **paths}, "\n".join(paths.values()))


def _checked(file: Path | None) -> Path | None:
    """Return a file's whole path, if its folder is there."""
    if file is None:
        return None
    whole = file.expanduser().absolute()
    if not whole.parent.is_dir():
        raise UsageError(
            f"The folder {whole.parent} does not exist.",
            code="noise.folder",
            hint="create it, or name a file elsewhere",
        )
    return whole


def _write(files: dict[str, Path | None], images: object) -> None:
    """Write the requested files."""
    import io

    import numpy as np

    from edgefed.files.writing import write_output
    from edgefed.report.tiles import plain_sheet

    array = np.asarray(images)
    if (png := files["png"]) is not None:
        write_output(png, plain_sheet(array))
    if (npz := files["npz"]) is not None:
        held = io.BytesIO()
        np.savez_compressed(held, images=array)
        write_output(npz, held.getvalue())
