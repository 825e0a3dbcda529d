"""Import paths that plug-ins of the release before use; they work, with a warning, for one release.

Plug-ins import from ``edgefed.extension``. A path of ``PATHS`` whose module has moved is imported
as a module that looks its names up there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE, EXTENSION = "edgefed.", "edgefed.extension"

PATHS = {
    "algorithms.base": "Algorithm AlgorithmSettings Answer Chosen DensityFit DeviceTask DeviceTest"
    " DeviceView Encoding EvalJob Exchange Finished Group LedgerEntry LowestLossJob Member Payload"
    " Predict Predictor PredictorEvalJob Question Relay Remark ReplyRole Result Roster State"
    " StatisticsJob TrainedEvalJob Work",
    "algorithms.cohort_sampling": "draw",
    "algorithms.exchange_part": "ExchangePart",
    "algorithms.fedavg": "AveragingSettings FedAvg MAX_DELTA delta_role difference trained",
    "algorithms.training": "augment_of loss_of schedule_of",
    "config.recipe": "ModelSection",
    "config.sections": "Section",
    "config.training_section": "TrainingSection",
    "data.checks": "checked_samples count_classes",
    "data.dataset_reader": "DatasetReader SourceReader",
    "data.holdout": "hold_out",
    "data.options": "DataOptions SplitOptions",
    "data.partitioners.cover": "Cover too_few",
    "data.partitioners.registry": "Partitioner",
    "data.paths": "require_file resolve",
    "data.preparation": "PreparationOptions",
    "data.types": "Dataset no_samples",
    "errors": "DataError RecipeError",
    "events.method_tables": "Column MethodTable method_table",
    "learn.capabilities": "is_single_pass",
    "learn.merging": "ExactMean",
    "learn.models": "Model",
    "learn.networks.base": "Network NetworkSettings",
    "learn.pooled_statistics": "LARGEST MeasuredStatistics pooled_statistics",
    "learn.server_optimizers": "ServerOptimizer",
    "learn.types": "Batch Context Forward Job Objective Params Samples Tensors Trained",
    "seeds": "generator",
    "sharing.releases": "labels_release means_release mixes_release update_release",
    "wire.tensors": "TensorSpec specs_of",
}
"""Names by the path, below ``edgefed``, from which plug-ins import them."""

RENAMED = {
    ("algorithms.cohort_sampling", "draw"): "draw_cohort",
    ("algorithms.fedavg", "trained"): "trained_arrays",
    ("data.paths", "resolve"): "resolve_path",
    ("learn.pooled_statistics", "LARGEST"): "LARGEST_STATISTIC",
}
"""Names that ``edgefed.extension`` has under another name."""


def lookup(path: str) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a module of ``PATHS``."""

    def attribute(name: str) -> object:
        if name not in PATHS[path].split():
            raise AttributeError(f"module {PACKAGE + path!r} has no attribute {name!r}")
        now = RENAMED.get((path, name), name)
        warnings.warn(
            f"{PACKAGE}{path}.{name} will be removed: import {now} from {EXTENSION}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(EXTENSION), now)

    return attribute


def moved_module(name: str) -> ModuleSpec | None:
    """Return how to import a module that is not found; None if it is no path of ``PATHS``."""
    path = name.removeprefix(PACKAGE)
    holds_paths = any(known_path.startswith(f"{path}.") for known_path in PATHS)
    if path not in PATHS and not holds_paths:
        return None
    return ModuleSpec(name, _MovedModule(), is_package=holds_paths)


class _MovedModule(Loader):
    """Loads a module that has nothing but published names."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Let the module look up its names."""
        path = module.__name__.removeprefix(PACKAGE)
        if path in PATHS:
            module.__getattr__ = lookup(path)  # type: ignore[method-assign]
