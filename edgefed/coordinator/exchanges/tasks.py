"""Convert an algorithm's exchange to tasks, and an open exchange back to the merge's argument."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from edgefed.algorithms.composed.evaluation_reply import with_confusion
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.interface.exchange import FROZEN, Exchange, Payload, Question
from edgefed.algorithms.interface.member import Roster
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.exchanges.downlink_encoder import DownlinkEncoder
from edgefed.coordinator.exchanges.relayed_blobs import task_relays
from edgefed.coordinator.exchanges.site_sums import choice_of
from edgefed.coordinator.models.run_model import RunModel
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import complete_model
from edgefed.learn.training.measures import measures_of
from edgefed.seeds import derive
from edgefed.wire.message_parts import DeliveredRelay
from edgefed.wire.messages import BlobRef, Task
from edgefed.wire.task_digest import task_digest

MAX_DETAIL = 80
"""Most characters of ``Exchange.detail`` in an event."""


def open_exchange(
    exchange: Exchange,
    *,
    run: str,
    index: int,
    seed_index: int,
    recipe: Recipe,
    section: ModelSection,
    run_model: RunModel,
    algorithm: CompleteAlgorithm[Any],
    downlink: DownlinkEncoder,
    attempt: int,
    testers: Roster = (),
    numbers: Mapping[str, int] | None = None,
    new_nonce: Callable[[], str] = lambda: secrets.token_hex(8),
) -> OpenExchange:
    """Encode an exchange's payloads and return its tasks; all draws derive from ``seed_index``.

    ``section`` names the state's own model, which the tasks concern if the exchange has no other.
    Each task has a nonce of its own, which binds the reply to it; nothing is drawn from it.
    ``testers`` are the devices that a test may ask, as they have announced themselves.
    ``numbers``, in buffered rounds, are how often each device was asked before; the draws of its
    task then derive from that.

    Raises:
        ModelTooLargeError, RecipeError, DataError: its model cannot be built.
    """
    # The same copy for the model and the tasks: the defaults of its kind are filled in here
    section = complete_model(exchange.model or section)
    classes = run_model.spec.classes
    measures = measures_of(recipe.evaluation, recipe.training.loss, classes)
    exchange = with_confusion(exchange, measures, classes)
    model = run_model.trainers.get(section).model
    blobs = _sent(exchange, model, _downlink_seed(exchange, recipe, seed_index), downlink)
    shared = _shared(exchange, run, index, section, recipe, run_model, algorithm)
    seeds = _seeds(exchange, recipe, seed_index, numbers)
    tasks = tuple(
        # A nonce of its own for each task: the reply is bound to this question
        _task(question, {**shared, "nonce": new_nonce()}, references, seed)
        for question, references, seed in zip(exchange.questions, blobs, seeds, strict=True)
    )
    asked = {question.device for question in exchange.questions}
    grace = recipe.rounds.lost_grace
    return OpenExchange(
        exchange=f"{run}-{index}",
        index=index,
        name=exchange.name,
        round=exchange.round,
        tasks=tasks,
        wanted=exchange.wanted,
        quorum=exchange.quorum,
        deadline=exchange.deadline,
        attempt=attempt,
        max_reply_bytes=_max_reply_bytes(exchange, model, algorithm),
        preparatory=exchange.preparatory,
        detail=exchange.detail[:MAX_DETAIL],
        lost_grace=None if grace == "deadline" else grace,
        reply_roles=exchange.reply_roles,
        held_out={tester.device: tester.held_out for tester in testers if tester.device in asked},
        site_sums=choice_of(exchange, recipe, algorithm),
    )


def encode_payloads(exchange: Exchange, recipe: Recipe, downlink: DownlinkEncoder) -> None:
    """Encode the payloads of a question in buffered rounds, whichever devices are asked."""
    seed = _downlink_seed(exchange, recipe, 0)
    for name, payload in exchange.payloads.items():
        downlink.send(name, payload, seed)


def _sent(
    exchange: Exchange, model: Model, seed: int, downlink: DownlinkEncoder
) -> list[dict[str, BlobRef]]:
    """Encode the payloads, and return each question's references to them, by role."""
    downlink.retire(exchange.retired)
    payloads, every = dict(exchange.payloads), dict[str, str]()
    # Frozen weights never change, so they are sent whole and exact, to every device
    if model.frozen_names:
        payloads[FROZEN] = Payload(model.frozen_weights(), "fp32")
        every[FROZEN] = FROZEN
    receivers = _receivers(exchange, every)
    refs = {
        name: downlink.send(name, payload, seed, receivers.get(name, ()))
        for name, payload in payloads.items()
    }
    sent = [
        {
            role: downlink.for_device(refs[name], name, question.device)
            for role, name in {**every, **question.blobs}.items()
        }
        for question in exchange.questions
    ]
    # After for_device, which needs the versions that devices held before these questions
    for name, devices in receivers.items():
        downlink.asked(name, devices)
    return sent


def _receivers(exchange: Exchange, every: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the devices that each payload goes to, by its name.

    Args:
        exchange: whose questions name payloads by role.
        every: the payloads of all questions, by role.
    """
    receivers: dict[str, list[str]] = {}
    for question in exchange.questions:
        # Sorted and once each: a payload with two roles is one blob
        for name in sorted({*every.values(), *question.blobs.values()}):
            receivers.setdefault(name, []).append(question.device)
    return receivers


def _downlink_seed(exchange: Exchange, recipe: Recipe, seed_index: int) -> int:
    """Return the seed with which payloads are encoded.

    In buffered rounds it follows from the round whose weights are sent, since the first question
    or test that has them encodes them for all.
    """
    if not recipe.rounds.buffered or exchange.preparatory:
        return derive(recipe.seed, "downlink", seed_index)
    ended = exchange.round if exchange.name == "evaluate" else exchange.round - 1
    return derive(recipe.seed, "downlink", "after", ended)


def _seeds(
    exchange: Exchange, recipe: Recipe, seed_index: int, numbers: Mapping[str, int] | None
) -> list[int]:
    """Return the seed of each question's task."""
    devices = [question.device for question in exchange.questions]
    if numbers is None:
        return [derive(recipe.seed, "task", seed_index, device) for device in devices]
    # In buffered rounds the index depends on timing; how often a device was asked does not
    return [derive(recipe.seed, "question", numbers[device], device) for device in devices]


def single_questions(
    opened: OpenExchange,
    numbers: Mapping[str, int],
    merged: Mapping[str, int],
    settled: Mapping[str, int],
) -> tuple[OpenExchange, ...]:
    """Return an exchange's tasks as questions of buffered rounds: an exchange for each device.

    Args:
        opened: the exchange; the first question has its index, the others those that follow.
        numbers: how often each device was asked before.
        merged: that number of each device's last question whose answer was merged.
        settled: the last index whose reply each device need not keep.
    """
    questions = []
    # Consecutive indexes, in the order of the tasks, so that a restart gives the same ids
    for index, task in enumerate(opened.tasks, opened.index):
        exchange = f"{task.run}-{index}"
        own = {"exchange": exchange, "index": index}
        own |= {"number": numbers[task.device], "merged_number": merged.get(task.device, -1)}
        own |= {"settled_through": settled.get(task.device, -1)}
        single = replace(
            opened,
            exchange=exchange,
            index=index,
            tasks=(task.model_copy(update=own),),
            wanted=1,
            quorum=0,  # so that a lost device has its grace, and not the whole deadline
            number=numbers[task.device],
        )
        questions.append(single)
    return tuple(questions)


def _max_reply_bytes(exchange: Exchange, model: Model, algorithm: CompleteAlgorithm[Any]) -> int:
    """Return the bytes of blobs that a reply may have; coded, they may take twice the arrays'."""
    return max(
        2 * model.trained_bytes,
        2 * sum(role.nbytes for role in exchange.reply_roles.values()),
        algorithm.max_reply_bytes(exchange, model),
    )


def _measured(recipe: Recipe) -> dict[str, Any]:
    """Return the part of the recipe's section about evaluation that devices need."""
    return recipe.evaluation.model_dump(mode="json", include={"confusion", "metrics", "top_k"})


def _shared(
    exchange: Exchange,
    run: str,
    index: int,
    section: ModelSection,
    recipe: Recipe,
    run_model: RunModel,
    algorithm: CompleteAlgorithm[Any],
) -> dict[str, Any]:
    """Return the fields that are the same in all tasks of an exchange."""
    method = Method.of(recipe, algorithm.settings).asked(exchange.name, recipe.rounds)
    return {
        "run": run,
        "exchange": f"{run}-{index}",
        "index": index,
        "model": section.model_dump(mode="json"),
        "round": exchange.round,
        "question": exchange.name,
        "deadline": exchange.deadline,
        "max_relay_bytes": exchange.max_relay_bytes,
        "rounds": recipe.rounds.count,
        "shape": run_model.spec.shape,
        "classes": run_model.spec.classes,
        "class_names": run_model.spec.class_names,
        "codec": recipe.wire.uplink,
        "error_feedback": recipe.wire.error_feedback,
        **method.task_fields(),
        "evaluation": _measured(recipe) if exchange.name == "evaluate" else {},
    }


def _task(
    question: Question,
    shared: Mapping[str, Any],
    blobs: Mapping[str, BlobRef],
    seed: int,
) -> Task:
    """Return a device's task.

    Args:
        question: of the task.
        shared: the fields that all tasks of an exchange share.
        blobs: references to the payloads for this device, by role.
        seed: the task's own.
    """
    return Task(
        **shared,
        device=question.device,
        seed=seed,
        samples=question.samples,
        blobs=dict(blobs),
        params=dict(question.params),
        receivers=question.receivers,
        relays=tuple(
            DeliveredRelay(
                exchange=relay.exchange,
                sender=relay.sender,
                digest=relay.digest,
                size=relay.size,
            )
            for relay in question.relays
        ),
    )


def asked_exchange(opened: OpenExchange) -> Exchange:
    """Return the exchange as an algorithm's merge sees it: the questions, without the payloads.

    It is always made from the tasks, so that a merge after a restart sees the same.
    """
    # Devices and coordinator bind their masks to a digest of the common part of all tasks
    masked = any(task.secure_aggregation for task in opened.tasks[:1])
    return Exchange(
        name=opened.name,
        round=opened.round,
        questions=tuple(
            Question(
                task.device,
                task.samples,
                params=task.params,
                receivers=task.receivers,
                relays=task_relays(task),
                seed=task.seed,
            )
            for task in opened.tasks
        ),
        payloads={},
        wanted=opened.wanted,
        quorum=opened.quorum,
        deadline=opened.deadline,
        preparatory=opened.preparatory,
        reply_roles=opened.reply_roles,
        model=model_of(opened),
        index=opened.index,
        max_relay_bytes=opened.tasks[0].max_relay_bytes if opened.tasks else 0,
        task_digest=task_digest(opened.tasks[0]) if masked else b"",
    )


def model_of(opened: OpenExchange) -> ModelSection | None:
    """Return the model that the tasks of an exchange concern; None without tasks."""
    if not opened.tasks:
        return None
    return ModelSection.model_validate(opened.tasks[0].model)
