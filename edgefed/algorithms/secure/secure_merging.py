"""The coordinator's half of secure aggregation: collect keys and shares, sum, uncover the sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Question, Relay
from edgefed.algorithms.secure.secure_device_half import sign_of
from edgefed.algorithms.secure.secure_keys import (
    CERTIFICATE,
    SIGNATURE,
    CohortKeys,
    DeviceKeys,
    joined,
)
from edgefed.algorithms.secure.secure_phases import (
    ADVERTISED,
    COMMITMENTS,
    FIT,
    FORM,
    HEADER,
    LOSS_BITS,
    MASKED,
    SIGNED,
    UNCOVERED,
)
from edgefed.algorithms.secure.secure_records import (
    COMMITMENTS_GROUP,
    KEYS_GROUP,
    LISTS_GROUP,
    SUM_GROUP,
    SecureRecords,
    Session,
    keys_of,
)
from edgefed.errors import DataError, EdgeFedError, UnmergeableError
from edgefed.learn.aggregation.summed_grid import SummedGrid
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.masking import add_mask, signed, unpacked
from edgefed.sharing.pairwise_keys import agreed_key, commitment, public_key
from edgefed.sharing.shamir import combine


@dataclass(frozen=True)
class Uncovered:
    """The sum of a cohort's updates.

    Attributes:
        weight, samples: sums over the devices.
        loss: mean loss of their training, over samples.
        sums: of each tensor on the grid.
    """

    weight: int
    samples: int
    loss: float
    sums: Mapping[str, Array]


def merge_keys(state: State, exchange: Exchange, answers: Iterable[Answer]) -> State:
    """Return the state with a new session of the devices that advertised keys.

    If some signed theirs, those that did not are left out: no device would share with them.
    """
    keys = {answer.device: _arrays(answer, ADVERTISED) for answer in answers}
    known = {name: DeviceKeys.from_arrays(arrays) for name, arrays in keys.items()}
    is_signed = any(device_keys.signature for device_keys in known.values())
    devices = tuple(sorted(n for n, k in known.items() if bool(k.signature) == is_signed))
    params = exchange.questions[0].params
    session = Session(
        number=params["number"],
        round=exchange.round,
        limits={
            question.device: min(question.samples, MOST_SAMPLES) for question in exchange.questions
        },
        threshold=params["threshold"],
        quorum=exchange.quorum,
        next="shares",
        signed=is_signed,
        keyed=devices,
        form=FORM,
    )
    cohort = CohortKeys(
        session.number, session.threshold, devices, tuple(known[name] for name in devices)
    )
    records = replace(SecureRecords.of(state), number=session.number, session=session, relays=())
    return records.kept_in(state, {KEYS_GROUP: cohort.to_group()})


def merge_shares(state: State, answers: Iterable[Answer]) -> State:
    """Return the state with the devices' shares for each other, and the commitments to them."""
    records, session = open_session(state)
    relays: list[Relay] = []
    commitments: dict[str, Array] = {}
    for answer in answers:
        commitments[answer.device] = _arrays(answer, COMMITMENTS)[COMMITMENTS]
        relays += answer.relayed
    # Sorted, so that the state does not depend on the order of answers
    relays.sort(key=lambda relay: (relay.receiver, relay.sender))
    after = replace(session, next="fit", shared=tuple(sorted(commitments)))
    records = replace(records, session=after, relays=tuple(relays))
    ordered = {name: commitments[name] for name in after.shared}
    return records.kept_in(state, {COMMITMENTS_GROUP: ordered})


def merge_masked(
    state: State, exchange: Exchange, grid: SummedGrid, answers: Iterable[Answer]
) -> State:
    """Return the state with the sum of the masked updates."""
    records, session = open_session(state)
    total, devices = np.zeros(HEADER + grid.count, np.uint64), []
    for answer in answers:
        total += _from_wire(_arrays(answer, MASKED)[MASKED], grid.width)
        devices.append(answer.device)
    masked = tuple(sorted(devices))
    after = replace(session, next="lists" if session.signed else "unmask", masked=masked)
    after = replace(after, task_digest=exchange.task_digest.hex())
    group = {"sum": total.view(np.int64)}
    return replace(records, session=after).kept_in(state, {SUM_GROUP: group})


def merge_lists(state: State, answers: Iterable[Answer]) -> State:
    """Return the state with the signatures of the list of updates in the sum."""
    records, session = open_session(state)
    lists = {answer.device: _arrays(answer, SIGNED) for answer in answers}
    after = replace(session, next="unmask", listed=tuple(sorted(lists)))
    group: Tensors = {}
    for part in (SIGNATURE, CERTIFICATE):
        group = {**group, **joined(part, [lists[name][part].tobytes() for name in after.listed])}
    return replace(records, session=after).kept_in(state, {LISTS_GROUP: group})


def uncovered(
    state: State, grid: SummedGrid, answers: Iterable[Answer], uniform: bool
) -> Uncovered:
    """Return the sum without its masks.

    Raises:
        UnmergeableError: too few shares of a device have arrived, or they are not of its secret, or
            the sum is not one of valid updates.
    """
    _, session = open_session(state)
    return _checked(without_masks(state, answers), session, grid, uniform)


def without_masks(state: State, answers: Iterable[Answer]) -> Array:
    """Return the sum without its masks, header and values modulo 2^64, not checked.

    Raises:
        UnmergeableError: too few shares of a device are there, or they are not of its secret.
    """
    _, session = open_session(state)
    keys, shared = keys_of(state, session), sorted(session.shared)
    shares: dict[str, dict[int, bytes]] = {name: {} for name in shared}
    for answer in answers:
        arrays = _arrays(answer, UNCOVERED)
        for place, name in enumerate(shared):
            if arrays["known"][place]:
                shares[name][keys.place(answer.device)] = arrays[UNCOVERED][place].tobytes()
    total = state.groups[SUM_GROUP]["sum"].view(np.uint64).copy()
    for name in shared:
        secret = _secret(name, shares[name], session, keys)
        if name in session.masked:
            add_mask(total, secret, -1)
            continue
        # Survivors have added the masks that they share with it, by the sign of its side
        for other in session.masked:
            purpose = keys.mask_purpose(session.task_digest, name, other)
            key = agreed_key(secret, keys.of(other).mask, purpose)
            add_mask(total, key, -sign_of(other, name))
    return total


def open_session(state: State) -> tuple[SecureRecords, Session]:
    """Return the records with the open session."""
    records = SecureRecords.of(state)
    if records.session is None:
        raise RuntimeError("No session of secure aggregation is under way.")
    return records, records.session


def _secret(name: str, shares: Mapping[int, bytes], session: Session, keys: CohortKeys) -> bytes:
    """Return a device's seed, or the mask key of one that is lost."""
    if len(shares) < session.threshold:
        raise UnmergeableError(
            f"{len(shares)} devices hold shares of {name}, and {session.threshold} are needed",
            code="secure.shares",
        )
    # Any so many shares give the secret, so the first ones are enough
    chosen = {place: shares[place] for place in sorted(shares)[: session.threshold]}
    own = keys.of(name)
    try:
        secret = combine(chosen)
        if name in session.masked:
            fits = commitment(secret) == own.seed
        else:
            fits = public_key(secret) == own.mask
    except EdgeFedError:
        fits = False
    if not fits:
        raise UnmergeableError(
            f"the shares that {name} made are not of its secret",
            code="secure.shares",
            devices=(name,),
        )
    return secret


def _checked(total: Array, session: Session, grid: SummedGrid, uniform: bool) -> Uncovered:
    """Return the contents of the sum, if updates of these devices can have such a sum."""
    weight, samples, loss = (int(number) for number in total[:HEADER].view(np.int64))
    devices, limits = len(session.masked), [session.limits[name] for name in session.masked]
    # Each device weighs at least 1, and at most its limit
    most = devices if uniform else sum(limits)
    if not (devices <= weight <= most and devices <= samples <= sum(limits)):
        raise UnmergeableError(
            "the sum of the updates is not one of these devices: a device masked it for others",
            code="secure.sum",
        )
    mean_loss = loss / 2**LOSS_BITS / samples
    numbers = signed(total[HEADER:], grid.width)
    return Uncovered(weight, samples, mean_loss, grid.sums(numbers))


def weights_of(contents: Uncovered, uniform: bool) -> list[int]:
    """Return the weights of answers that represent a cohort's: the last one is 1."""
    return [1] * contents.weight if uniform else [*_portions(contents.weight - 1), 1]


def equivalent_answers(
    contents: Uncovered, grid: SummedGrid, weights: Sequence[int]
) -> Iterator[Answer]:
    """Yield answers of these weights whose weighted sum is the cohort's, to the last bit.

    Raises:
        UnmergeableError: there are no valid ones.
    """
    try:
        for place, delta in enumerate(grid.parts_of_sum(contents.sums, weights)):
            yield Answer(_part(place), weights[place], {"delta": Group(delta)})
    except DataError as error:
        raise UnmergeableError(error.message.rstrip("."), code=error.code) from error


def equivalent_exchange(exchange: Exchange, weights: Sequence[int], total: int) -> Exchange:
    """Return the training exchange that they answer; its weights come to ``total`` in all."""
    every = [*weights, *_portions(total - sum(weights))]
    questions = tuple(Question(_part(place), most) for place, most in enumerate(every))
    return replace(exchange, name=FIT, questions=questions, preparatory=False)


def _portions(weight: int) -> list[int]:
    """Return a weight as a sum of weights that one device may have."""
    whole, rest = divmod(weight, MOST_SAMPLES)
    return [MOST_SAMPLES] * whole + [rest] * (rest > 0)


def _part(place: int) -> str:
    """Return the name of a device that stands for a part of a cohort."""
    return f"sum-{place:05d}"


def _from_wire(data: Array, width: int) -> Array:
    head = 8 * HEADER
    return np.concatenate([unpacked(data[:head], 8), unpacked(data[head:], width)])


def _arrays(answer: Answer, role: str) -> Mapping[str, Array]:
    return answer.groups[role].arrays
