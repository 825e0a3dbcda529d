"""The contract of an algorithm: both halves are pure, and a run can go on after any exchange."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np

from edgefed.algorithms.interface.answer import Answer
from edgefed.algorithms.interface.base import Algorithm, State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UnmergeableError
from edgefed.events.base.method_tables import MethodTable
from edgefed.files.plugins import NAME
from edgefed.learn.base.types import Score, Tensors
from edgefed.learn.training.trainer import ModelPredictions
from edgefed.process.clock import SystemClock
from edgefed.seeds import derive
from edgefed.simulator.run import Simulation
from edgefed.testing.capabilities import check_capabilities
from edgefed.testing.common import called, check_settings, pure, require
from edgefed.testing.play import MOST_EXCHANGES, Players, asked, bits
from edgefed.testing.replies import check_reply
from edgefed.testing.runs import (
    CLASSES,
    Case,
    LostAnswer,
    Step,
    ends_round,
    offered,
    samples,
    short_recipe,
    steps_of,
)

ORDERS = 24
"""Most orders of the answers to one exchange that are merged."""


def check_algorithm(
    kind: type[Algorithm[Any]],
    settings: Mapping[str, Any] | None = None,
    recipe: Mapping[str, Any] | None = None,
    *,
    simulate: bool = True,
) -> None:
    """Check an algorithm by playing runs of two rounds with four devices.

    Args:
        kind: the object that a package offers under ``edgefed.algorithms``; it need not be
            installed.
        settings: its keys of the recipe's ``[algorithm]`` table.
        recipe: further tables of the recipe.
        simulate: whether two simulations must end in the same weights; not for algorithms that add
            privacy noise of their own, which no seed determines.

    Raises:
        AssertionError: it breaks the contract; the text describes how.
    """
    _check_description(kind)
    values = dict(settings or {})
    check_settings(kind.Settings, values, f"algorithm '{kind.name}'")
    with offered(kind):
        case = Case(kind.name, short_recipe(kind.name, values, recipe, rounds=2))
        straight = steps_of(case, resumed=False)
        _check_resumed(case, straight)
        _check_lost_answer(case, ends_round(straight, 1))
        _check_exchanges(case)
        _check_result(case, straight[-1].state)
        if simulate and not case.recipe.privacy.wanted:
            _check_simulations(case)


def _check_description(kind: type[Algorithm[Any]]) -> None:
    for key in ("name", "summary", "paper", "Settings"):
        require(bool(getattr(kind, key, None)), f"{kind.__name__} has no {key}")
    require(NAME.fullmatch(kind.name) is not None, f"{kind.__name__}: its name has odd characters")
    require(len(kind.summary) <= 80, f"{kind.__name__}: its summary is longer than 80 characters")


def _check_resumed(case: Case, straight: list[Step]) -> None:
    """Check that a run ends the same when every part of it starts anew after each exchange."""
    try:
        resumed = steps_of(case)
    except AssertionError as error:
        raise AssertionError(f"a run that is resumed after each exchange fails: {error}") from error
    require(len(resumed) == len(straight), "a run that is resumed has other exchanges")
    for number, (one, other) in enumerate(zip(straight, resumed, strict=True)):
        require(
            bits(one.state) == bits(other.state),
            f"a run that is resumed after each exchange has another state after exchange {number}:"
            " something is kept outside State, on an object or in a module",
        )


def _check_lost_answer(case: Case, exchange: int) -> None:
    """Check that an answer that came too late for its merge leaves no trace on its device."""
    if case.coordinator().keeps_lost_work:
        return
    try:
        never, late = (
            [step.state for step in steps_of(case, LostAnswer(exchange, is_made=is_made))]
            for is_made in (False, True)
        )
    except AssertionError as error:
        if isinstance(error.__cause__, UnmergeableError):  # it needs every answer
            return
        raise
    require(
        bits(never) == bits(late),
        "a device whose answer was not merged goes on as if it had been; keep such state in"
        " Answer.if_accepted, or declare keeps_lost_work",
    )


def _check_exchanges(case: Case) -> None:
    """Check each exchange of a run for itself: plan, devices, replies, and merging."""
    players = case.players()
    state = players.start(case.coordinator())
    for number in range(MOST_EXCHANGES):
        planned = _check_plan(case, players, state, derive(5, number))
        if planned is None:
            return
        answers = [_check_device(case, players, planned, k) for k in range(len(planned.questions))]
        state = _check_merge(case, state, planned, answers)


def _check_plan(case: Case, players: Players, state: State, seed: int) -> Exchange | None:
    half = case.coordinator()
    with pure("plan", {"the state": state}):
        planned = half.plan(state, players.roster, seed)
    if isinstance(planned, Finished):
        return None
    again = half.plan(state, players.roster, seed)
    require(bits(again) == bits(planned), "plan twice with the same seed asks something else")
    what = f"the exchange '{planned.name}'"
    devices = [question.device for question in planned.questions]
    require(devices == sorted(set(devices)), f"{what} does not ask each device once, sorted by id")
    require(
        0 <= planned.quorum <= planned.wanted <= len(devices),
        f"{what}: quorum {planned.quorum} and wanted {planned.wanted} do not suit"
        f" {len(devices)} questions",
    )
    named = {blob for question in planned.questions for blob in question.blobs.values()}
    require(named == planned.payloads.keys(), f"{what} has payloads other than questions name")
    for question in planned.questions:
        plain = called(f"{what}: params as JSON", json.dumps, dict(question.params))
        require(
            bits(json.loads(plain)) == bits(dict(question.params)),
            f"{what}: a question's params change on their way through JSON",
        )
    return planned


def _check_device(case: Case, players: Players, planned: Exchange, number: int) -> Answer:
    """Return a device's answer, which must be the same twice and have the roles asked for."""
    question, device = planned.questions[number], planned.questions[number].device
    task, half = players.task(planned, question), case.device(planned.name)
    before = dict(players.private), dict(players.kept)
    view = players.view(device, planned.model)
    what = f"the device's half, asked to '{planned.name}',"
    given = {"the task": task, "its samples": view.train, "its private state": view.private}
    with pure(what, given):
        answer = players.answer(half, planned, question)
    after = players.private[device], players.kept[device]
    players.private, players.kept = before
    again = players.answer(case.device(planned.name), planned, question)
    require(
        bits([again, players.private[device], players.kept[device]]) == bits([answer, *after]),
        f"{what} answers the same task with something else the second time",
    )
    problem = check_reply(planned, answer)
    require(not problem, f"{what} sends an answer that the coordinator rejects: {problem}")
    reason = case.coordinator().reject_reason(planned, answer, view.model)
    require(not reason, f"reject_reason refuses an honest answer: {reason}")
    return answer


def _check_merge(case: Case, state: State, planned: Exchange, answers: list[Answer]) -> State:
    what, half = f"merge of '{planned.name}'", case.coordinator()
    with pure(what, {"the state": state, "the answers": answers}):
        merged = half.merge(state, asked(planned), iter(answers))
    for order in islice(permutations(answers), ORDERS):
        require(
            bits(half.merge(state, asked(planned), iter(order))) == bits(merged),
            f"{what} depends on the order of the answers; sum with"
            " edgefed.extension.ExactMean, or sort by device",
        )
    nothing = called(f"{what} without answers", _merged_without, half, state, planned)
    require(
        bits(half.weights(nothing)) == bits(half.weights(state)),
        f"{what} without answers changes the weights",
    )
    require(merged.round >= state.round, f"{what} goes back from round {state.round}")
    if not (case.recipe.privacy.wanted or case.recipe.secure_aggregation.wanted):
        check_capabilities(half, state, planned, answers)
    return merged


def _merged_without(half: Algorithm[Any], state: State, planned: Exchange) -> State:
    """Return the state after no answer came: the one before if that cannot be merged."""
    try:
        return half.merge(state, asked(planned), [])
    except UnmergeableError:
        return state


def _check_result(case: Case, state: State) -> None:
    """Check that the result is a model, predicts, is shown in tables, and is tested on devices."""
    half, players = case.coordinator(), case.players()
    with pure("view", {"the state": state}):
        tables = called("view", lambda: tuple(half.view(state)))
    wrong = [type(table).__name__ for table in tables if not isinstance(table, MethodTable)]
    require(not wrong, f"view returns {', '.join(wrong)}, not MethodTable")
    trainer = players.trainer_for(half.model(state))
    called("the weights of the result", lambda: trainer.model.check(half.weights(state)))
    weights = half.weights(state)
    require(
        all(np.isfinite(array).all() for array in weights.values()), "its weights are not finite"
    )
    predict = half.predictor(state, ModelPredictions(trainer))
    output = called("predictor", lambda: predict(samples(5, 1).inputs))
    require(np.shape(output) == (5, CLASSES), f"predictor returns {np.shape(output)}, not (5, 3)")
    exchange = half.evaluation(state, players.roster, 1)
    for question in exchange.questions:
        view = players.view(question.device, half.model(state))
        work = case.device(exchange.name).eval_job(players.task(exchange, question), view)
        score = players.do(work, view, half.model(state))
        require(
            isinstance(score, Score) and bool(np.isfinite(score.loss)),
            "a device's test of the model gives no finite loss",
        )


def _check_simulations(case: Case) -> None:
    """Check that two simulations of the recipe end in the same weights."""
    digests = set()
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            digests.add(_simulated(case, Path(folder)))
    require(len(digests) == 1, "two simulations of the same recipe end in other weights")


def _simulated(case: Case, folder: Path) -> str:
    train, test = samples(40, 1), samples(12, 2)
    arrays: Tensors = {
        "x_train": train.inputs,
        "y_train": train.targets,
        "x_test": test.inputs,
        "y_test": test.targets,
    }
    np.savez(folder / "data.npz", **arrays)  # type: ignore[arg-type] # as in shard_files
    data = {"name": "npz", "path": str(folder / "data.npz"), "partition": "iid"}
    recipe = Recipe.model_validate(
        {
            **case.recipe.model_dump(mode="json"),
            "data": data,
            "simulation": {"devices": 4, "workers": 1, "holdout": 0.25, "engine": "sequential"},
        }
    )
    record = called(
        "a simulation", lambda: Simulation(recipe, folder / "state", SystemClock()).run().record
    )
    require(record.status == "finished", f"a simulation ends as {record.status}: {record.reason}")
    return str(record.weights_digest)
