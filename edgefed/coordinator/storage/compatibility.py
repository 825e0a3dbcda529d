"""Check whether the devices' data fit a run and each other, with a reason for each device.

A run has one shape of input and one ordered list of classes. The recipe's ``data.classes`` states
the list; without it the lists of all devices, and of the coordinator's data set, must be equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.config.loading.write import toml_value
from edgefed.config.recipes.recipe import Recipe
from edgefed.data.base.class_names import in_words, numbered, twice, unlisted
from edgefed.data.base.types import ClassNames, Dataset
from edgefed.errors import DataError
from edgefed.terminal.units import counted

COORDINATOR = "the coordinator"

NO_SAMPLES = "it has no samples to train on"

COLOURS, GREY = 3, 1
"""Channels of images."""


@dataclass(frozen=True)
class DataSpec:
    """The form of a run's data, the same on all devices.

    Attributes:
        shape: of one input.
        classes: number of labels, or of numbers in a target.
        class_names: the classes in order; empty when labels are plain integers.
        by_position: no device names its classes, so label k is the k-th of ``class_names``.
    """

    shape: tuple[int, ...]
    classes: int
    class_names: ClassNames = ()
    by_position: bool = False


@dataclass(frozen=True)
class Misfit:
    """A device whose data do not fit, and why."""

    device: str
    reason: str


@dataclass(frozen=True)
class Compatibility:
    """Whether a roster's data fit a run.

    Attributes:
        spec: the form of the run's data; None if the data do not determine it.
        misfits: the devices that do not fit.
        problem: why there is no ``spec``.
    """

    spec: DataSpec | None
    misfits: tuple[Misfit, ...] = ()
    problem: DataError | None = None


def check_compatibility(recipe: Recipe, dataset: Dataset, roster: Roster) -> Compatibility:
    """Return the form of a run's data, and the devices whose data do not fit it, with reasons."""
    members = tuple(member for member in roster if member.samples)
    empty = tuple(Misfit(m.device, NO_SAMPLES) for m in roster if not m.samples)
    shape = _shape(recipe, dataset, members)
    if isinstance(shape, Compatibility):
        return shape
    agreed = _classes(recipe, dataset, members, shape)
    if isinstance(agreed, Compatibility):
        return agreed
    return Compatibility(agreed, (*empty, *misfits(recipe, agreed, members)))


def misfits(recipe: Recipe, spec: DataSpec, members: Iterable[Member]) -> tuple[Misfit, ...]:
    """Return the devices whose data do not fit a run."""
    reasons = ((member.device, misfit(recipe, spec, member)) for member in members)
    return tuple(Misfit(device, reason) for device, reason in reasons if reason)


def misfit(recipe: Recipe, spec: DataSpec, member: Member) -> str:
    """Return why a device's data do not fit a run, or nothing."""
    if member.shape != spec.shape:
        reason = f"its inputs are {times(member.shape)}, the run's are {times(spec.shape)}"
        return "; ".join((reason, *_conversions(member.shape, spec.shape)))
    if spec.class_names:
        return _unnamed(spec, member) or _misnamed(recipe, spec, member)
    if not numbered(member.class_names):
        return f"it names its classes ({in_words(_held(member))}), and the run has plain numbers"
    return _miscounted(recipe, spec, member)


def times(shape: tuple[int, ...]) -> str:
    """Return a shape in the usual notation, such as ``3 x 32 x 32``."""
    return "x".join(str(side) for side in shape) or "scalars"


# -- the shape ------------------------------------------------------------------------------------


def _shape(recipe: Recipe, dataset: Dataset, members: Roster) -> tuple[int, ...] | Compatibility:
    """Return the data set's shape, or without one that of the devices that the model can take."""
    shapes: dict[tuple[int, ...], list[str]] = {}
    for member in members:
        shapes.setdefault(member.shape, []).append(member.device)
    if dataset.shape:
        return dataset.shape
    # Networks of torchvision take three channels, so devices with other inputs do not decide
    possible = [shape for shape in shapes if _is_colour(shape)] if _needs_colour(recipe) else shapes
    if len(possible) == 1 or len(shapes) == 1:
        return next(iter(possible or shapes))
    if not shapes:
        return Compatibility(
            None,
            (),
            DataError(
                "No device with data is online.", code="data.shape", hint="edgefed device list"
            ),
        )
    smallest = min(possible or shapes, key=lambda shape: shape[-1:])
    reasons = tuple(
        Misfit(member.device, f"its inputs are {times(member.shape)}") for member in members
    )
    differences = "; ".join(f"{times(shape)} on {', '.join(who)}" for shape, who in shapes.items())
    ways = dict.fromkeys(way for shape in shapes for way in _conversions(shape, smallest))
    state = f"state the run's shape in the recipe's [data] table: shape = {list(smallest)}"
    problem = DataError(
        f"The devices' inputs differ in shape: {differences}.",
        code="data.shape",
        hint="; ".join((*ways, state)),
    )
    return Compatibility(None, reasons, problem)


def _needs_colour(recipe: Recipe) -> bool:
    # Not before a run is checked: stored runs are read without torch.
    from edgefed.learn.networks.torchvision_classifiers import is_torchvision

    return is_torchvision(recipe.model.name)


def _is_colour(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] == COLOURS


def _conversions(shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[str, ...]:
    """Return how a folder's images of one shape come to another, where both may be images."""
    if len(shape) != 3 or len(wanted) != 3:
        return ()
    ways = []
    if shape[0] == GREY and wanted[0] == COLOURS:
        ways.append("images have three channels without greyscale=true in folder:FOLDER")
    elif shape[0] == COLOURS and wanted[0] == GREY:
        ways.append("images become grey with folder:FOLDER?greyscale=true")
    if shape[1:] != wanted[1:]:
        ways.append(f"images are scaled with folder:FOLDER?size={wanted[-1]}")
    return tuple(ways)


# -- the classes ----------------------------------------------------------------------------------


def _classes(
    recipe: Recipe, dataset: Dataset, members: Roster, shape: tuple[int, ...]
) -> DataSpec | Compatibility:
    """Return the run's classes: as the recipe lists them, or as everybody does."""
    listed = recipe.data.class_names
    if listed:
        nobody = not any(member.class_names for member in members)
        return DataSpec(shape, len(listed), listed, by_position=nobody and bool(members))
    lists = {member.device: member.class_names for member in members}
    # A coordinator without samples has nothing to agree about
    if len(dataset.train) or len(dataset.test):
        lists = {COORDINATOR: dataset.class_names, **lists}
    if all(numbered(names) for names in lists.values()):
        # A device may lack the last labels, so the largest number counts
        most = max((member.classes for member in members), default=0)
        return DataSpec(shape, dataset.classes or most)
    if len(set(lists.values())) > 1:
        return _unlisted(lists, "lists no names, and the devices' lists differ")
    (names,) = set(lists.values())
    if dataset.classes not in (0, len(names)):
        held = counted(len(names), "class", "classes")
        return _unlisted(lists, f"is {dataset.classes}, and the devices name {held}")
    return DataSpec(shape, len(names), names)


def _unlisted(lists: Mapping[str, ClassNames], why: str) -> Compatibility:
    """Return why ``data.classes`` has to be a list, and the list that holds all names, to paste.

    Args:
        lists: the classes of each device, and of the coordinator's data set if there is one.
        why: the present meaning of ``data.classes``, as the end of a sentence.
    """
    union = sorted({name for names in lists.values() for name in names if name}, key=_order)
    reasons = {who: _in_words(names, union) for who, names in lists.items()}
    details = "; ".join(f"{who} {reason}" for who, reason in reasons.items())
    problem = DataError(
        f"data.classes of the recipe {why}. Compared with all names together: {details}.",
        code="data.classes",
        hint=f"add to the recipe's [data] table: classes = {toml_value(union)}",
    )
    devices = tuple(Misfit(who, why) for who, why in reasons.items() if who != COORDINATOR)
    return Compatibility(None, devices, problem)


def _in_words(names: ClassNames, union: list[str]) -> str:
    held = [name for name in names if name]
    if not held:
        return "does not name its classes"
    absent = unlisted(tuple(union), names)
    lacks = f" and lacks {in_words(absent)}" if absent else ""
    return f"has {in_words(held)}{lacks}"


def _order(name: str) -> tuple[float, str]:
    """Sort numbers as numbers, before words."""
    return (int(name) if name.isdecimal() else float("inf"), name)


def _unnamed(spec: DataSpec, member: Member) -> str:
    """Return the problem of labels without names in a run whose classes have names."""
    if spec.by_position and member.class_names:
        return "it names its classes, and the run's devices went by their labels' numbers"
    if member.class_names or spec.by_position or numbered(spec.class_names):
        return ""
    return "it does not name its classes, and others do; store the names in its data (`classes`)"


def _misnamed(recipe: Recipe, spec: DataSpec, member: Member) -> str:
    """Return the problem of a device's classes in a run whose classes have names."""
    repeated = twice(member.class_names)
    if repeated:
        return f"it names the class '{repeated}' twice"
    strange = unlisted(member.class_names, spec.class_names)
    if strange:
        extra = in_words(strange)
        if recipe.data.class_names:
            return f"it has classes that data.classes does not list: {extra}"
        listed = in_words(list(spec.class_names))
        return f"it has classes that the run's other devices do not name ({listed}): {extra}"
    if not member.class_names and member.classes > spec.classes:
        return f"it has {counted(member.classes, 'class', 'classes')}, the run lists {spec.classes}"
    return ""


def _miscounted(recipe: Recipe, spec: DataSpec, member: Member) -> str:
    """Return the problem of a device's number of labels, or of numbers in a target."""
    if recipe.training.loss == "squared_error" and member.classes not in (0, spec.classes):
        return f"its targets have {counted(member.classes, 'number')}, the run's {spec.classes}"
    if member.classes > spec.classes:
        held = counted(member.classes, "class", "classes")
        return f"it has {held}, the run has {spec.classes} (data.classes)"
    return ""


def _held(member: Member) -> list[str]:
    return [name for name in member.class_names if name]
