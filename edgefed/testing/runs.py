"""Runs of an algorithm under test: its recipe, its devices, and the state after each exchange."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.registry import PLUGINS, built_in, make, make_device_half
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.files.samples import Samples
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.seeds import derive, generator
from edgefed.sharing.random_words import generator_words
from edgefed.testing.common import called, require
from edgefed.testing.play import MOST_EXCHANGES, Players, asked, bits
from edgefed.wire.tensors import pack, unpack

SHAPE, CLASSES = (8,), 3
SIZES = (5, 9, 6, 4)


@dataclass(frozen=True)
class Case:
    """The algorithm and the recipe of a test.

    Attributes:
        name: the algorithm's.
        recipe: with few rounds of short training.
        sizes: number of samples of each device.
    """

    name: str
    recipe: Recipe
    sizes: Sequence[int] = SIZES

    def coordinator(self) -> CompleteAlgorithm[Any]:
        """Return the coordinator's half, made anew as after a restart; a seed draws its noise."""
        return make(
            self.recipe,
            randomness=lambda *purpose: generator_words(generator(6, *purpose)),
        )

    def device(self, question: str) -> CompleteAlgorithm[Any]:
        """Return the device's half, made from the fields of a task of this name."""
        method = Method.of(self.recipe, self.coordinator().settings)
        fields = method.asked(question, self.recipe.rounds).task_fields()
        return make_device_half(json.loads(json.dumps(fields)))

    def players(self) -> Players:
        """Return the devices and their trainer."""
        model = build(self.recipe.model, SHAPE, CLASSES, 1)
        parts = [samples(size, 10 + number) for number, size in enumerate(self.sizes)]
        return Players(parts, Trainer(model, "cpu"), test=samples(3, 77))


def samples(count: int, seed: int) -> Samples:
    """Return noise shifted by its label, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    noise = rng.standard_normal((count, *SHAPE)) + labels[:, None]
    return Samples(noise.astype(np.float32), labels)


def short_recipe(
    name: str, settings: Mapping[str, Any] | None, tables: Mapping[str, Any] | None, rounds: int
) -> Recipe:
    """Return a recipe of short training with an algorithm of this name.

    Args:
        name: the algorithm's.
        settings: its keys of the ``[algorithm]`` table.
        tables: further tables, which replace those of short training.
        rounds: their number, without such a table.
    """
    plan = {
        "model": {"name": "mlp", "hidden": [3]},
        "training": {"batch_size": 4, "learning_rate": 0.1},
        "rounds": {"count": rounds},
        **(tables or {}),
        "algorithm": {"name": name, **(settings or {})},
    }
    return Recipe.model_validate(plan)


@contextmanager
def offered(kind: type[Algorithm[Any]]) -> Iterator[None]:
    """Let recipes name an algorithm, whether or not its package is installed.

    Raises:
        AssertionError: it is not an algorithm, or its name is taken.
    """
    name = getattr(kind, "name", "")
    with ExitStack() as stack:
        if built_in().get(name) is not kind:
            try:
                stack.enter_context(PLUGINS.added(name, kind))
            except ValueError as error:
                raise AssertionError(f"{getattr(kind, '__name__', kind)} {error}") from error
        yield


@dataclass(frozen=True)
class LostAnswer:
    """The last device's answer to one exchange, which is not merged.

    Attributes:
        exchange: its number in the run, from 0.
        is_made: whether the device does the task at all.
    """

    exchange: int
    is_made: bool


@dataclass(frozen=True)
class Step:
    """A step of a run.

    Attributes:
        exchange: the one that was merged; None at the start.
        state: after it.
    """

    exchange: Exchange | None
    state: State


def steps_of(case: Case, lost: LostAnswer | None = None, *, resumed: bool = True) -> list[Step]:
    """Return the start and each exchange of a whole run.

    Args:
        case: the algorithm and its recipe.
        lost: an answer that is not merged.
        resumed: whether every part starts anew after each exchange, from a state that was stored.

    Raises:
        AssertionError: a half raises an exception, or the run does not end after its rounds.
    """
    players = called("building the model", case.players)
    coordinator, device, kept = case.coordinator, case.device, stored
    if not resumed:
        coordinator, device, kept = cache(coordinator), cache(device), lambda state: state
    steps = [Step(None, kept(called("start", players.start, coordinator())))]
    for number in range(MOST_EXCHANGES):
        half, state = coordinator(), steps[-1].state
        planned = called("plan", half.plan, state, players.roster, derive(5, number))
        if isinstance(planned, Finished):
            count = case.recipe.rounds.count
            require(state.round == count, f"it finishes after round {state.round} of {count}")
            return steps
        require(isinstance(planned, Exchange), "plan returns neither an Exchange nor Finished")
        what = f"a device's half, asked to '{planned.name}',"
        is_lost = lost is not None and lost.exchange == number
        questions = planned.questions[: -1 if is_lost else None]
        if lost is not None and is_lost and lost.is_made:
            called(what, players.answer, device(planned.name), planned, planned.questions[-1])
        answers = [
            called(what, players.answer, device(planned.name), planned, question)
            for question in questions
        ]
        merge = coordinator().merge
        merged = called(f"merge of '{planned.name}'", merge, state, asked(planned), iter(answers))
        steps.append(Step(planned, kept(merged)))
    raise AssertionError(f"it is not finished after {MOST_EXCHANGES} exchanges")


def ends_round(steps: Sequence[Step], number: int) -> int:
    """Return the number of the exchange that ends a round."""
    return next(k for k, step in enumerate(steps[1:]) if step.state.round >= number)


def stored(state: State) -> State:
    """Return a state after storing and reading it.

    Raises:
        AssertionError: it holds values that cannot be stored.
    """
    params = called(
        "storing the state's params as JSON",
        lambda: json.loads(json.dumps(dict(state.params), allow_nan=False)),
    )
    require(
        bits(params) == bits(dict(state.params)),
        "the state's params change on their way through JSON; its keys must be text",
    )
    groups = {}
    for name, arrays in state.groups.items():
        packed = called(f"storing the state's group '{name}'", pack, arrays)
        groups[name] = unpack(packed, None, max_bytes=len(packed))
    return State(state.round, groups, params)
