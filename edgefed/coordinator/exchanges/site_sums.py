"""Sums of sites: ask gateways for them, and turn one into equivalent answers of its devices.

A gateway rounds each value of an update to the grid of the whole cohort and multiplies it by the
weight of its device, as ``ExactMean`` does, and sends the sum S of these whole numbers. With the
devices' weights w_k, W = sum_k w_k, S = W q + r and 0 <= r < W, the answers are q, and q + r for
one unit of the last device's weight. Their weighted sum is S, so the merge has the bits of one
answer of each device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.composed.site_sums_check import single_updates_reason
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.exchange import Exchange, ReplyRole
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import (
    LOST_BLOB,
    Rejection,
    check_stated,
    fetch_problem,
)
from edgefed.coordinator.storage.stored_runs import OpenExchange, SiteSumsChoice
from edgefed.errors import WireError
from edgefed.learn.aggregation.exact_mean import grid_bits
from edgefed.learn.aggregation.summed_grid import COUNT_BITS, LARGEST, MAX_TOTAL, SummedGrid
from edgefed.wire.messages import Reply, Task
from edgefed.wire.site_messages import MAX_SUMMED, SUM, SumRequest
from edgefed.wire.summed_numbers import decode_numbers

DELTA = "delta"
WEIGHTS = "weights"
"""The role of a task from whose arrays a gateway knows the form of a delta."""


def choice_of(
    exchange: Exchange, recipe: Recipe, algorithm: CompleteAlgorithm[Any]
) -> SiteSumsChoice:
    """Return whether gateways may sum the answers to an exchange."""
    roles, questions = exchange.reply_roles, exchange.questions
    summed = exchange.name == "fit" and not exchange.preparatory
    # With devices to spare, the merge ends before all answer; a sum has none or all of them
    summed &= exchange.wanted == len(questions) and roles.keys() == {DELTA}
    if not summed or roles[DELTA].tensors is None or single_updates_reason(recipe, algorithm):
        return "never"
    fits = _total(question.samples for question in questions) <= MAX_TOTAL
    return recipe.rounds.site_sums if fits else "never"


def sum_requests(
    pending: PendingExchange,
    site_of: Callable[[str], str],
    known: Callable[[str], bool],
    now: float,
) -> Iterator[tuple[str, SumRequest]]:
    """Yield each gateway that is to sum answers to an exchange, with the request to it.

    Args:
        pending: the exchange.
        site_of: returns the gateway that speaks for a device; empty for one without.
        known: whether a device was heard of since the start; any other may appear at any site.
        now: the monotonic second.
    """
    opened, sites = pending.exchange, dict[str, list[str]]()
    if opened.site_sums == "never":
        return
    unknown = []
    for device in pending.wanted():
        if gateway := site_of(device):
            sites.setdefault(gateway, []).append(device)
        elif not known(device):
            unknown.append(device)
    request = SumRequest(
        run=opened.tasks[0].run,
        exchange=opened.exchange,
        index=opened.index,
        total=_total(task.samples for task in opened.tasks),
        always=opened.site_sums == "always",
        lost_grace=opened.lost_grace,
        seconds=max(0.0, pending.deadline - now),
        devices=(),
    )
    # Devices not heard of yet may appear at any site, so each gateway may sum them
    for gateway, devices in sites.items():
        if len(devices) + len(unknown) <= MAX_SUMMED:
            every = tuple(sorted((*devices, *unknown)))
            yield gateway, request.model_copy(update={"devices": every})


def _total(samples: Iterable[int]) -> int:
    """Return the most that the answers of a cohort may weigh, as a merge bounds it."""
    # Each answer weighs at most MOST_SAMPLES, and the grid needs a total of at least one
    return max(1, sum(min(number, MOST_SAMPLES) for number in samples))


def grid_of(role: ReplyRole, total: int) -> SummedGrid:
    """Return the grid of a merge of updates of this form, with this total weight."""
    specs = role.tensors or {}
    tensors = tuple((name, specs[name].dtype, tuple(specs[name].shape)) for name in sorted(specs))
    return SummedGrid(tensors, total, grid_bits(total))


def weight_of(task: Task, samples: int) -> int:
    """Return the weight of an answer to a task in the merge, in units."""
    return 1 if task.settings["weighting"] == "uniform" else min(samples, MOST_SAMPLES)


def check_sum(
    delivered: Delivered,
    exchange: OpenExchange,
    reject_reason: Callable[[Answer], str],
    announced_factor: float = 0.0,
) -> list[Answer]:
    """Return answers of the devices in a sum, whose merge is the merge of their own.

    The arguments are those of ``check``.

    Raises:
        Rejection: the sum must not be merged.
    """
    if delivered.problem:
        raise Rejection(delivered.problem)
    if delivered.reply.status != "ok" or {*delivered.reply.blobs} != {SUM}:
        raise Rejection("its site sent something else than a sum")
    if reason := fetch_problem(delivered.reply, exchange):
        raise Rejection(reason)
    weights = []
    for reply in delivered.replies:
        task = check_stated(reply, exchange, announced_factor)
        # The grid's total is made of announced samples, so no device may weigh more than its own
        if reply.samples > task.samples:
            raise Rejection(
                f"in the sum of its site, {reply.device} counts {reply.samples} samples, and it"
                f" announced {task.samples}"
            )
        weights.append(weight_of(task, reply.samples))
    groups = _groups(delivered, exchange, sum(weights))
    answers = list(_equivalent(delivered.replies, weights, groups))
    for answer in answers:
        if reason := reject_reason(answer):
            raise Rejection(reason)
    return answers


def _groups(delivered: Delivered, exchange: OpenExchange, weight: int) -> list[Group]:
    """Return the update of all but one unit of a sum's weight, and that of the last unit."""
    role = exchange.reply_roles[DELTA]
    grid = grid_of(role, _total(task.samples for task in exchange.tasks))
    try:
        numbers = decode_numbers(delivered.read(delivered.reply.blobs[SUM].digest), grid.count)
    except WireError as error:
        raise Rejection(f"{SUM}: {error.message}", blamed=error.code != LOST_BLOB) from error
    sums = grid.sums(numbers)
    for name, dtype, _ in grid.tensors:
        floating = dtype.startswith("float")
        # A value beyond LARGEST is refused before it is weighed, so no honest sum exceeds this
        bound = int(min(LARGEST, role.largest) * 2**grid.bits) if floating else 2**COUNT_BITS
        values = sums[name]
        # The negative minimum, since abs of the least integer overflows
        if values.size and max(int(values.max()), -int(values.min())) > bound * weight:
            raise Rejection(
                f"the sum of its site holds values of {name} beyond those of updates that weigh"
                f" {weight} together"
            )
    # W - 1 units of q and one of q + r; with a single unit, the sum is the answer
    parts = grid.parts_of_sum(sums, [weight - 1, 1] if weight > 1 else [1])
    return [Group(arrays) for arrays in parts]


def _equivalent(
    replies: Sequence[Reply], weights: Sequence[int], groups: Sequence[Group]
) -> Iterator[Answer]:
    """Yield an answer of each device, of the last one two if it weighs more than one unit."""
    last = replies[-1]
    # One unit of the last device carries the remainder, and is an answer of its own
    for reply, weight in zip(replies, (*weights[:-1], weights[-1] - 1), strict=True):
        if weight:
            yield Answer(reply.device, weight, {DELTA: groups[0]}, reply.metrics)
    yield Answer(last.device, 1, {DELTA: groups[-1]}, last.metrics)
