"""EdgeFed from Python; ``import edgefed`` imports nothing before a name is used."""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from edgefed.api.result import Result
    from edgefed.api.rounds import RoundResult, StopRun
    from edgefed.api.simulate import simulate
    from edgefed.api.sweep import SweepResult, sweep
    from edgefed.config.recipes.recipe import Recipe
    from edgefed.data.base.types import Dataset
    from edgefed.errors import EdgeFedError
    from edgefed.files.samples import Samples
    from edgefed.prediction.load import load_model
    from edgefed.prediction.loaded_model import LoadedModel

__all__ = [
    "Dataset",
    "EdgeFedError",
    "LoadedModel",
    "Recipe",
    "Result",
    "RoundResult",
    "Samples",
    "StopRun",
    "SweepResult",
    "load_model",
    "simulate",
    "sweep",
]

_MODULES = {
    "Dataset": "edgefed.data.base.types",
    "EdgeFedError": "edgefed.errors",
    "LoadedModel": "edgefed.prediction.loaded_model",
    "Recipe": "edgefed.config.recipes.recipe",
    "Result": "edgefed.api.result",
    "RoundResult": "edgefed.api.rounds",
    "Samples": "edgefed.files.samples",
    "StopRun": "edgefed.api.rounds",
    "SweepResult": "edgefed.api.sweep",
    "load_model": "edgefed.prediction.load",
    "simulate": "edgefed.api.simulate",
    "sweep": "edgefed.api.sweep",
}

if not TYPE_CHECKING:  # or a checker would take every name for one of this package

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})

    class _MovedModules:
        """Finds published modules that have moved, after every other finder."""

        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            """Return how to import a module of this package that is nowhere else."""
            if not name.startswith("edgefed."):
                return None
            from edgefed.published_paths import moved_module

            return moved_module(name)

    sys.meta_path.append(_MovedModules)
