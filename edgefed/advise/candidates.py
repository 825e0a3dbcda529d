"""The methods that a race compares, each with a few settings, from the simplest on.

A candidate is refused, with the reason, where owners of devices do not share the data that it
needs, or where the recipe does not go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgefed.advise.profile import Profile, Shared
from edgefed.algorithms.composed.evaluation_place import evaluation_place
from edgefed.algorithms.composed.registry import make
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import Loaded, load_recipe
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import ValueLayer
from edgefed.errors import EdgeFedError, UnknownNameError
from edgefed.simulator.sweep.plan import SweepCase

Check = Callable[[Loaded[Recipe]], Recipe]

UPDATES = "model updates"


@dataclass(frozen=True)
class MethodCandidate:
    """A method with settings.

    Attributes:
        name: unique among the candidates.
        method: its name for ``--methods``.
        tables: of the recipe, which they replace key by key; ``algorithm`` is replaced whole.
        leaves: the data that leave a device.
        needs: the part of it that owners may refuse.
    """

    name: str
    method: str
    tables: Mapping[str, Mapping[str, Any]]
    leaves: str = UPDATES
    needs: tuple[Shared, ...] = ()


def _algorithm(name: str, leaves: str = UPDATES, **settings: Any) -> MethodCandidate:
    shown = " ".join(f"{key}={value}" for key, value in settings.items())
    needs = _NEEDS.get(leaves, ())
    return MethodCandidate(
        f"{name} {shown}".strip(), name, {"algorithm": {"name": name, **settings}}, leaves, needs
    )


_MEANS = "model updates; averages of samples"
_COUNTS = "model updates; label counts"
_NEEDS: Mapping[str, tuple[Shared, ...]] = {_MEANS: ("means",), _COUNTS: ("labels",)}
_PLACES = {
    "coordinator": "the coordinator's data",
    "devices": "the devices' data",
    "both": "both",
}
_SUPPLEMENT = {"supplement": 0.5}

CANDIDATES: tuple[MethodCandidate, ...] = (
    _algorithm("fedavg"),
    _algorithm("fedprox", mu=0.01),
    _algorithm("fedprox", mu=0.1),
    _algorithm("fedlc"),
    _algorithm("fedrs"),
    _algorithm("fedopt", server_learning_rate=0.01),
    _algorithm("fedopt", server_learning_rate=0.03),
    _algorithm("scaffold", "model updates; control variates"),
    _algorithm("feddyn", alpha=0.01),
    _algorithm("feddyn", alpha=0.1),
    MethodCandidate(
        "natural-noise",
        "natural-noise",
        {"algorithm": {"name": "fedavg"}, "labels": {**_SUPPLEMENT, "mix_share": 0.0}},
        _COUNTS,
        ("labels",),
    ),
    MethodCandidate(
        "label-mixes",
        "label-mixes",
        {"algorithm": {"name": "fedavg"}, "labels": _SUPPLEMENT},
        "model updates; label counts; mixes of samples",
        ("mixes", "labels"),
    ),
    _algorithm("fedmix", _MEANS, mixup_ratio=0.05),
    _algorithm("fedmix", _MEANS, mixup_ratio=0.2),
    _algorithm("fedmoe", "updates of experts; shares of experts", experts=4),
    _algorithm("fedma", _COUNTS),
    _algorithm("fedma", last_layer="samples"),
)
"""From the simplest on: of candidates that do equally well, the first one is recommended."""


@dataclass(frozen=True)
class Entrants:
    """The candidates of a race.

    Attributes:
        cases: those that enter, in the order of ``CANDIDATES``.
        refused: the others, with reasons.
    """

    cases: tuple[SweepCase, ...]
    refused: Mapping[str, str] = field(default_factory=dict)


def candidate(name: str) -> MethodCandidate:
    """Return a candidate by its name."""
    return next(one for one in CANDIDATES if one.name == name)


def check_methods(methods: Collection[str]) -> None:
    """Check names of methods.

    Raises:
        UnknownNameError: ``advise.method``: there is none of a name.
    """
    known = list(dict.fromkeys(one.method for one in CANDIDATES))
    for name in methods:
        if name not in known:
            raise UnknownNameError(
                f"No method of a race is named '{name}'.",
                code="advise.method",
                hint=f"choose from: {', '.join(known)}",
            )


def entrants(
    tables: Mapping[str, Any],
    profile: Profile,
    check: Check,
    methods: Collection[str] = (),
    candidates: Sequence[MethodCandidate] = CANDIDATES,
) -> Entrants:
    """Return the candidates that may enter, and why the others may not.

    Args:
        tables: of the twin's recipe.
        profile: of the fleet.
        check: checks a recipe to the last key.
        methods: names of the methods that are wanted; none for all.
        candidates: to choose from.

    Raises:
        UnknownNameError: as ``check_methods``.
    """
    check_methods(methods)
    cases, refused = [], {}
    place = ""
    for one in candidates:
        if methods and one.method not in methods:
            continue
        kept = [need for need in one.needs if need in profile.refuses]
        if kept:
            refused[one.name] = f"the devices' owners do not share {' and '.join(kept)}"
            continue
        try:
            recipe = _recipe(tables, one, check)
        except EdgeFedError as error:
            refused[one.name] = error.message
            continue
        tested = evaluation_place(recipe, make(recipe))
        place = place or tested
        if tested != place:  # of other samples: no comparison
            refused[one.name] = (
                f"it is tested on {_PLACES[tested]}, the others on {_PLACES[place]}; set"
                ' evaluation.on = "devices" to compare them'
            )
            continue
        if tested != "coordinator" and all(d.held_out == 0 for d in profile.devices):
            refused[one.name] = "it is tested on devices, and none holds samples out"
            continue
        cases.append(SweepCase(one.name, {"candidate": one.name}, recipe))
    return Entrants(tuple(cases), refused)


def with_candidate(tables: Mapping[str, Any], name: str, check: Check) -> Recipe:
    """Return a recipe with a candidate's method and settings.

    Raises:
        EdgeFedError: they do not go together.
    """
    return _recipe(tables, candidate(name), check)


def _recipe(tables: Mapping[str, Any], one: MethodCandidate, check: Check) -> Recipe:
    values = {**tables}
    for name, table in one.tables.items():
        values[name] = dict(table) if name == "algorithm" else {**tables[name], **table}
    return recipe_from(values, check)


def recipe_from(tables: Mapping[str, Any], check: Check) -> Recipe:
    """Return a checked recipe; settings files and environment variables have no effect on it.

    Raises:
        EdgeFedError: the recipe cannot be run.
    """
    around = Surroundings({}, Surroundings.of_process().cwd, no_config=True)
    return check(load_recipe(ValueLayer(tables), around))
