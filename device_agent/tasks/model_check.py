"""Test an offered model on the device's held-out samples, and write it for its inference program.

Only safe formats are read: safetensors, whose network EdgeFed builds from its own code.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from device_agent.tasks.training_messages import MODEL_FILES, ModelChecked, ModelTest
from edgefed.data.base.class_names import in_words, renumbered, unlisted
from edgefed.data.base.types import DeviceData
from edgefed.data.devices.run_scale import with_scale
from edgefed.errors import DataError, EdgeFedError
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_description import ModelDescription
from edgefed.learn.training.trainer import Stopped
from edgefed.prediction.export import export_model
from edgefed.prediction.load import load_model
from edgefed.prediction.loaded_model import BATCH, LoadedModel

log = logging.getLogger(__name__)

ACCURACY, ERROR = "accuracy", "mean squared error"

_LAST_LINE = 200
"""Characters of a program's last line in an error."""


class Unsuited(Exception):  # noqa: N818 - an answer, as the device gives it
    """The device's samples cannot test the model; the text says why."""


def check_model(
    order: ModelTest, data: DeviceData, user_models: bool, stop: Callable[[], bool]
) -> ModelChecked:
    """Test a model and write its files into the draft folder; errors become the outcome.

    Args:
        order: names the model, the one before, and the folder.
        data: the device's samples.
        user_models: whether its network may be a user's own code.
        stop: called at least twice a second while a program is built; True ends the check.

    Raises:
        Stopped: ``stop`` returned True.
    """
    draft, made = Path(order.draft), ModelChecked(order.name, "installed")
    try:
        path = draft / MODEL_FILES["safetensors"]
        shutil.copyfile(order.model, path)
        model = load_model(path, user_models=user_models)
        made = replace(made, description=_described(model.description))
        samples = _suited(data, model.description)
        metric = ACCURACY if model.labels else ERROR
        made = replace(made, metric=metric, score=_score(model, samples, stop))
        if order.current:
            made = replace(made, before=_score_of(Path(order.current), data, user_models, stop))
        if worse := _worse(made, order.tolerance):
            return replace(made, outcome="refused", reason=worse)
        del model
        files = {"safetensors": path.name, **_exported(order, path, draft, user_models, stop)}
        return replace(made, description={**made.description, "files": files})
    except Unsuited as reason:
        return replace(made, outcome="refused", reason=str(reason))
    except Stopped:
        raise
    except EdgeFedError as error:
        return replace(made, outcome="failed", reason=error.as_line())
    except OSError as error:
        return replace(made, outcome="failed", reason=str(error))


def _described(description: ModelDescription) -> dict[str, object]:
    return {
        "run": description.run,
        "round": description.round,
        "algorithm": description.algorithm,
        "network": description.section.name,
        "shape": list(description.shape),
        "labels": list(description.labels) if description.is_classifier else [],
        "weights_digest": description.weights_digest,
    }


def _suited(data: DeviceData, description: ModelDescription) -> Samples:
    """Return the device's held-out samples, scaled and numbered as the model's run has them.

    Raises:
        Unsuited: they cannot test the model.
    """
    samples, names, listed = data.test, data.class_names, description.class_names
    if not len(samples):
        raise Unsuited("it holds out no samples to test the model")
    if tuple(data.shape) != tuple(description.shape):
        raise Unsuited(f"its inputs are {data.shape}, and the model's {description.shape}")
    if not description.is_classifier and samples.has_labels:
        raise Unsuited("it has labels, and the model predicts numbers")
    if listed and names:
        if strange := unlisted(names, listed):
            raise Unsuited(f"it has classes that the model does not know: {in_words(strange)}")
        samples = renumbered(samples, names, listed)
    width = samples.targets.shape[1] if samples.targets.ndim > 1 else description.outputs
    largest = int(samples.targets.max()) if samples.has_labels else -1
    if largest >= description.outputs or width != description.outputs:
        raise Unsuited(f"its targets do not fit the model's {description.outputs} outputs")
    try:
        return with_scale(samples, samples, data.preparation, description.scale)[1]
    except DataError as error:
        raise Unsuited(f"it {error.as_line()}") from error


def _score_of(
    path: Path, data: DeviceData, user_models: bool, stop: Callable[[], bool]
) -> float | None:
    """Return the score of the model that the device uses; None if these samples cannot test it."""
    try:
        model = load_model(path, user_models=user_models)
        return _score(model, _suited(data, model.description), stop)
    except (Unsuited, DataError) as error:
        log.warning("the model in use cannot be tested: %s", error)
        return None


def _score(model: LoadedModel, samples: Samples, stop: Callable[[], bool]) -> float:
    """Return accuracy, or the mean squared error of a model that predicts numbers."""
    total = 0.0
    for start in range(0, len(samples), BATCH):
        if stop():
            raise Stopped("the check of a model was given up")
        part = samples.take(np.arange(start, min(start + BATCH, len(samples))))
        outputs, targets = model.compute(np.asarray(part.model_inputs)), part.targets
        if model.labels:
            right = targets if part.has_labels else targets.argmax(axis=1)
            total += int((outputs.argmax(axis=1) == right).sum())
        else:
            total += float(np.square(outputs.astype(np.float64) - targets).mean(axis=1).sum())
    return total / len(samples)


def _worse(made: ModelChecked, tolerance: float) -> str:
    """Return why a model is refused by its scores, or nothing."""
    score, before = made.score, made.before
    if score is None or not np.isfinite(score):
        return "its score is not a finite number"
    if before is None or not np.isfinite(before):
        return ""
    limit = before - tolerance if made.metric == ACCURACY else before * (1 + tolerance)
    is_worse = score < limit if made.metric == ACCURACY else score > limit
    comparison = f"its {made.metric} is {score:.4g} on {before:.4g} before"
    return f"{comparison}, and model_tolerance is {tolerance:g}" if is_worse else ""


def _exported(
    order: ModelTest, path: Path, draft: Path, user_models: bool, stop: Callable[[], bool]
) -> dict[str, str]:
    """Write the programs that the device's owner asks for; return the file of each format."""
    wanted = [form for form in order.formats if form != "safetensors"]
    if not wanted:
        return {}
    model = load_model(path, user_models=user_models, device="cpu")
    files = {}
    for form in wanted:
        if stop():
            raise Stopped("the export of a model was given up")
        if form == "torch-export":
            export_model(model, "torch-export", draft / MODEL_FILES[form])
        elif form == "onnx":
            export_model(model, "onnx", draft / MODEL_FILES[form])
        elif not _built_engine(model, draft, stop):
            continue
        files[form] = MODEL_FILES[form]
    return files


def _built_engine(model: LoadedModel, draft: Path, stop: Callable[[], bool]) -> bool:
    """Build a TensorRT engine with ``trtexec``; return False where the board has none.

    The engine takes 1 to ``BATCH`` inputs of the model's own size: TensorRT has no float64, in
    which images of other sizes are scaled.
    """
    program = shutil.which("trtexec")
    if program is None:
        log.warning("no TensorRT engine is built: there is no trtexec on the PATH")
        return False
    source = draft / "engine.onnx"
    metadata = export_model(model, "onnx", source, resize=False)
    sides = "".join(f"x{side}" for side in metadata["input_shape"][1:])
    shapes = (("min", 1), ("opt", 1), ("max", BATCH))
    words = [f"--{name}Shapes={metadata['input']}:{count}{sides}" for name, count in shapes]
    words += [f"--onnx={source}", f"--saveEngine={draft / MODEL_FILES['tensorrt']}"]
    _run([program, *words], stop)
    source.unlink()
    return True


def _run(words: list[str], stop: Callable[[], bool]) -> None:
    """Run a program to its end.

    Raises:
        DataError: ``export.failed``: it failed.
        Stopped: ``stop`` returned True.
    """
    with TemporaryFile() as said:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            while True:
                try:
                    code = process.wait(timeout=0.4)
                    break
                except subprocess.TimeoutExpired:
                    if stop():
                        raise Stopped("the build of an engine was given up") from None
        finally:
            process.kill()
            process.wait()
        if code:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines() or [""]
            raise DataError(
                f"{words[0]} failed with exit code {code}: {lines[-1][-_LAST_LINE:]}",
                code="export.failed",
                hint="run it by hand on the model's ONNX file",
            )
