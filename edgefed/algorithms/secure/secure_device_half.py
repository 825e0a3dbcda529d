"""The device's half of secure aggregation: keys, shares, a masked update, and uncovering the sum.

Bonawitz et al., CCS 2017, figure 4. The device trusts no question: one that would uncover more than
one sum of enough devices is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgefed.algorithms.averaging.fedavg import MOST_SAMPLES
from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.device_side import DeviceTask, DeviceView
from edgefed.algorithms.secure.secure_device_record import ALREADY, PRIVATE, Phase, SecureRecord
from edgefed.algorithms.secure.secure_keys import (
    CERTIFICATE,
    CHANNEL,
    MASK,
    SEED,
    SIGNATURE,
    CohortKeys,
    DeviceKeys,
    keys_text,
    list_text,
    split_up,
)
from edgefed.algorithms.secure.secure_phases import (
    ADVERTISED,
    COMMITMENTS,
    FORM,
    HEADER,
    LOSS_BITS,
    MASKED,
    MOST_LOSS,
    SECURE,
    SHARES_BYTES,
    SIGNED,
    UNCOVERED,
)
from edgefed.errors import EdgeFedError, WireError
from edgefed.learn.aggregation.summed_grid import SummedGrid
from edgefed.learn.base.types import Array, Tensors
from edgefed.sharing.masking import add_mask, packed
from edgefed.sharing.pairwise_keys import (
    KEY_BYTES,
    NONCE_BYTES,
    agreed_key,
    commitment,
    open_sealed,
    public_key,
    seal,
)
from edgefed.sharing.policy import Withheld
from edgefed.sharing.shamir import SHARE_BYTES, split
from edgefed.wire.tensors import specs_of


def advertise(task: DeviceTask, device: DeviceView) -> Answer:
    """Make new secrets and send their public halves.

    Raises:
        Withheld: it has made keys for this session or a later one already, or its owner demands a
            higher threshold.
    """
    number, threshold = int(task.params["number"]), int(task.params["threshold"])
    _check_form(task.params)
    if threshold < (least := device.policy.least_threshold):
        raise Withheld(
            f"its owner demands a threshold of {least} devices (least_threshold), and this round"
            f" has {threshold}"
        )
    before = SecureRecord.of(device.private)
    if number <= before.number:
        raise Withheld(
            f"it was asked for the keys of secure session {number}, and has made those of"
            f" {before.number} already"
        )
    mask, channel, seed = (device.private_bytes(KEY_BYTES) for _ in range(3))
    keys = DeviceKeys(public_key(mask), public_key(channel), commitment(seed))
    if device.trust is not None:
        text = keys_text(task.run, number, threshold, task.device, keys)
        keys = replace(
            keys, signature=device.trust.sign(text), certificate=device.trust.certificate
        )
    after = SecureRecord(
        number, "advertised", threshold, mask.hex(), channel.hex(), seed.hex()
    ).to_private()
    return _answer(task, {ADVERTISED: keys.to_arrays()}, after)


def share(task: DeviceTask, device: DeviceView) -> Answer:
    """Share the secrets with the cohort, each share encrypted for its receiver.

    Raises:
        Withheld: the cohort is not acceptable.
    """
    record = _record(task, device, "advertised")
    keys = _told_keys(task, record, task.groups["keys"])
    _check_cohort(task, device, record, keys)
    _check_signatures(task, device, keys)
    count, draw = len(keys.devices), device.private_bytes
    mask = split(bytes.fromhex(record.mask), record.threshold, count, draw)
    seed = split(bytes.fromhex(record.seed), record.threshold, count, draw)
    channel = bytes.fromhex(record.channel)
    relays, own, rows = {}, "", []
    for place, receiver in enumerate(keys.devices):
        text = mask[place] + seed[place]
        rows.append(commitment(mask[place]) + commitment(seed[place]))
        if receiver == task.device:
            own = text.hex()
            continue
        context = keys.share_context(task.device, receiver)
        key = agreed_key(channel, keys.keys[place].channel, context)
        relays[receiver] = seal(key, draw(NONCE_BYTES), text, context)
    committed = np.frombuffer(b"".join(rows), np.uint8).reshape(count, -1)
    after = replace(record, phase="shared", devices=keys.devices, shares={task.device: own})
    answer = _answer(task, {COMMITMENTS: {COMMITMENTS: committed}}, after.to_private(_kept(keys)))
    return replace(answer, relays=relays)


def check_masking(task: DeviceTask, device: DeviceView) -> SecureRecord:
    """Return the record with the shares that the task delivers, before anything is trained.

    Raises:
        Withheld: the device has masked an update of this session, or the cohort is not acceptable.
    """
    asked = task.params[SECURE]
    _check_form(asked)
    cohort = tuple(asked["devices"])
    record = SecureRecord.of(device.private)
    if record.number == asked["number"] and record.cohort:
        other = "the same cohort" if record.cohort == cohort else "another cohort"
        raise Withheld(f"it has masked its update for {other} in this secure session already")
    record = _of_session(record, int(asked["number"]), "shared")
    _check_part(device, record, cohort, record.devices, task.device, "mask its update for")
    _check_limits(task, device)
    keys = _kept_keys(record, device)
    shares = dict(record.shares)
    for sender in sorted(set(cohort) - {task.device}):
        # One blob from each sender; any other is ignored
        for sealed in task.relays.get(sender, ())[:1]:
            if text := _opened(sealed, record, keys, sender, task.device):
                shares[sender] = text.hex()
    if len(shares) < record.threshold:
        raise Withheld(
            f"it can read the shares of {len(shares)} devices, its own included, and"
            f" {record.threshold} are needed"
        )
    return replace(record, shares=shares, cohort=cohort, task_digest=task.task_digest.hex())


def with_own_params(task: DeviceTask) -> DeviceTask:
    """Return a training task with the device's own row of the parameters of all devices."""
    own = task.params[SECURE]["own"].get(task.device, {})
    return replace(task, params={**task.params, **own})


def mask(task: DeviceTask, device: DeviceView, answer: Answer, uniform: bool) -> Answer:
    """Return an answer to a training task with all of its values masked.

    Args:
        task: of the training.
        device: the answering device.
        answer: as the algorithm made it.
        uniform: whether every update weighs 1.
    """
    record = check_masking(task, device)
    keys = _kept_keys(record, device)
    asked = task.params[SECURE]
    delta = answer.groups["delta"].arrays
    limits = asked["limits"]
    grid = grid_of(delta, sum(map(int, limits.values())), int(asked["bits"]))
    loss = min(max(answer.metrics.get("loss", 0.0), -MOST_LOSS), MOST_LOSS)
    samples = min(answer.samples, int(limits[task.device]))
    weight = 1 if uniform else samples
    # Modulo 2^64, since a loss may be negative
    header = [weight, samples, round(loss * samples * 2**LOSS_BITS) % 2**64]
    cells = np.concatenate([np.array(header, np.uint64), grid.weighted(delta, weight)])
    add_mask(cells, bytes.fromhex(record.seed), +1)
    own = bytes.fromhex(record.mask)
    for peer in sorted(set(record.cohort) - {task.device}):
        purpose = keys.mask_purpose(record.task_digest, task.device, peer)
        key = agreed_key(own, keys.of(peer).mask, purpose)
        add_mask(cells, key, sign_of(task.device, peer))
    # The secrets go with the answer: they would uncover this very update
    after = replace(record, phase="masked", mask="", channel="", seed="")
    masked = _answer(task, {MASKED: {MASKED: to_wire(cells, grid.width)}}, after.to_private())
    return replace(masked, private={**answer.private, **masked.private})


def sign_list(task: DeviceTask, device: DeviceView) -> Answer:
    """Sign the list of devices whose updates are summed.

    Raises:
        Withheld: the list is not acceptable, or the device has no certificate.
    """
    record = _record(task, device, "masked")
    survivors = tuple(task.params["devices"])
    _check_part(device, record, survivors, record.cohort, task.device, "sign a list of")
    if device.trust is None:
        raise Withheld("it has no certificate to sign with")
    text = list_text(task.run, record.number, record.task_digest, survivors)
    signature = device.trust.sign(text)
    after = replace(record, phase="listed", listed=survivors)
    arrays = {
        SIGNATURE: np.frombuffer(signature, np.uint8),
        CERTIFICATE: np.frombuffer(device.trust.certificate, np.uint8),  # keys may be new by now
    }
    return _answer(task, {SIGNED: arrays}, after.to_private())


def uncover(task: DeviceTask, device: DeviceView) -> Answer:
    """Send the shares that uncover the sum: for each device either its seed's or its mask key's.

    Raises:
        Withheld: the question would uncover anything else.
    """
    survivors, lost = tuple(task.params["survivors"]), tuple(task.params["lost"])
    record = _record(task, device, "masked" if device.trust is None else "listed")
    if both := sorted(set(survivors) & set(lost)):
        raise Withheld(f"it was asked for both shares of {both[0]}, which uncover its update")
    _check_part(device, record, survivors, record.cohort, task.device, "uncover the sum of")
    if sorted((*survivors, *lost)) != sorted(record.cohort):
        raise Withheld("it was asked to uncover the sum of another cohort than it masked for")
    _check_list(task, device, record, survivors)
    rows, known = [], []
    for peer in sorted(record.cohort):
        # Zeros in the place of a share that it does not have
        shares = bytes.fromhex(record.shares.get(peer, "")) or bytes(SHARES_BYTES)
        rows.append(shares[SHARE_BYTES:] if peer in survivors else shares[:SHARE_BYTES])
        known.append(peer in record.shares)
    arrays = {
        UNCOVERED: np.frombuffer(b"".join(rows), np.uint8).reshape(-1, SHARE_BYTES),
        "known": np.array(known, np.uint8),
    }
    # Deleted, so that no later question gets the other share of a device
    after = replace(record, phase="uncovered", shares={})
    return _answer(task, {UNCOVERED: arrays}, after.to_private())


# -- what both halves compute ---------------------------------------------------------------------


def grid_of(like: Tensors, total: int, bits: int) -> SummedGrid:
    """Return the grid of updates with these names, types and shapes."""
    specs = specs_of(like)
    tensors = ((name, spec.dtype, spec.shape) for name, spec in sorted(specs.items()))
    return SummedGrid(tuple(tensors), total, bits)


def sign_of(device: str, peer: str) -> int:
    """Return the sign with which a device adds the mask that it shares with a peer."""
    return +1 if device < peer else -1


def to_wire(cells: Array, width: int) -> Array:
    """Return numbers as bytes: those of the header whole, the others of ``width`` bytes."""
    return np.concatenate([packed(cells[:HEADER], 8), packed(cells[HEADER:], width)])


def wire_bytes(grid: SummedGrid) -> int:
    """Return the size of an update in the bytes of ``to_wire``."""
    return 8 * HEADER + grid.width * grid.count


# -- checks ---------------------------------------------------------------------------------------


def _record(task: DeviceTask, device: DeviceView, phase: Phase) -> SecureRecord:
    _check_form(task.params)
    return _of_session(SecureRecord.of(device.private), int(task.params["number"]), phase)


def _check_form(params: Mapping[str, Any]) -> None:
    if params.get("form") != FORM:
        raise Withheld("it was asked in another form of secure aggregation than it knows")


def _of_session(record: SecureRecord, number: int, phase: Phase) -> SecureRecord:
    """Return a record if it is of this session and phase.

    Raises:
        Withheld: it is not.
    """
    if record.number != number:
        raise Withheld(
            f"it was asked about secure session {number}, and knows that of {record.number} only"
        )
    if record.phase != phase:
        raise Withheld(f"in this secure session it {ALREADY[record.phase]}")
    return record


def _told_keys(task: DeviceTask, record: SecureRecord, group: Tensors) -> CohortKeys:
    """Return the cohort's keys as the coordinator tells them."""
    names = [str(name) for name in task.params["devices"]]
    return CohortKeys.from_group(record.number, record.threshold, names, group)


def _kept(keys: CohortKeys) -> Tensors:
    """Return the part of the cohort's keys that the device needs later."""
    group = keys.to_group()
    return {name: group[name] for name in (MASK, CHANNEL, SEED)}


def _kept_keys(record: SecureRecord, device: DeviceView) -> CohortKeys:
    """Return the keys that the device kept when it shared its secrets."""
    group = {name: array for name, array in device.private[PRIVATE].items() if name != PRIVATE}
    return CohortKeys.from_group(record.number, record.threshold, record.devices, group)


def _check_cohort(
    task: DeviceTask, device: DeviceView, record: SecureRecord, keys: CohortKeys
) -> None:
    _check_size(device, count := len(keys.devices), "share secrets with")
    threshold = record.threshold
    if threshold < 2 or not count < 2 * threshold <= 2 * count:
        raise Withheld(
            f"it shares no secrets with {count} devices and a threshold of {threshold}: that has to"
            " be at least 2, more than half of the devices, and no more than all"
        )
    own = keys.of(task.device) if task.device in keys.devices else None
    mine = (public_key(bytes.fromhex(record.mask)), public_key(bytes.fromhex(record.channel)))
    if own is None or (own.mask, own.channel) != mine:
        raise Withheld("its own keys are not among the cohort's keys")


def _check_signatures(task: DeviceTask, device: DeviceView, keys: CohortKeys) -> None:
    """Check that every device made its keys itself, where devices have certificates."""
    if device.trust is None:
        return
    for name, device_keys in zip(keys.devices, keys.keys, strict=True):
        text = keys_text(task.run, keys.number, keys.threshold, name, device_keys)
        _verify(device, name, device_keys.certificate, text, device_keys.signature, "keys")


def _verify(
    device: DeviceView, name: str, certificate: bytes, text: bytes, signature: bytes, what: str
) -> None:
    assert device.trust is not None
    if not signature:
        raise Withheld(f"the {what} of {name} are not signed")
    try:
        device.trust.verify(name, certificate, text, signature)
    except EdgeFedError as error:
        raise Withheld(f"the {what} of {name} are not its own: {error.message}") from error


def _check_size(device: DeviceView, count: int, act: str) -> None:
    """Check that a cohort is as large as the owner demands."""
    if count < (least := device.policy.least_cohort):
        raise Withheld(
            f"it does not {act} {count} devices: its owner demands {least} (least_cohort)"
        )


def _check_limits(task: DeviceTask, device: DeviceView) -> None:
    """Check the table of most samples: every device counts, and this one with all it has.

    Every device checks its own row. With lower limits for the others, the sum would show the update
    of the one that is not limited.
    """
    asked = task.params[SECURE]
    limits = {str(name): int(most) for name, most in asked["limits"].items()}
    if min(limits.get(name, 0) for name in asked["devices"]) < 1:
        raise Withheld("the task does not state how many samples of each device count in the sum")
    held = min(len(device.train), MOST_SAMPLES)
    if limits[task.device] < held:
        raise Withheld(
            f"only {limits[task.device]} of its {held} samples would count in the sum, which hides"
            " the updates of others less"
        )


def _check_part(
    device: DeviceView,
    record: SecureRecord,
    part: Sequence[str],
    whole: Sequence[str],
    own: str,
    act: str,
) -> None:
    """Check that devices are enough, known, and the device among them."""
    _check_size(device, len(set(part)), act)
    if len(set(part)) < record.threshold or len(set(part)) < len(part):
        raise Withheld(
            f"it does not {act} {len(set(part))} devices: the threshold is {record.threshold}"
        )
    if strange := sorted(set(part) - set(whole)):
        raise Withheld(f"it does not {act} {strange[0]}, which was not among those before")
    if own not in part:
        raise Withheld(f"it does not {act} devices without itself")


def _check_list(
    task: DeviceTask, device: DeviceView, record: SecureRecord, survivors: Sequence[str]
) -> None:
    """Check that enough devices signed this list, where devices have certificates."""
    if device.trust is None:
        return
    if tuple(survivors) != record.listed:
        raise Withheld("it was asked to uncover the sum of another list than it signed")
    signers = [str(name) for name in task.params["signers"]]
    if len(set(signers) & set(survivors)) < record.threshold or len(set(signers)) < len(signers):
        raise Withheld(f"fewer than {record.threshold} devices signed the list")
    text = list_text(task.run, record.number, record.task_digest, survivors)
    group = task.groups["lists"]
    signatures = split_up(SIGNATURE, group, len(signers))
    certificates = split_up(CERTIFICATE, group, len(signers))
    for name, certificate, signature in zip(signers, certificates, signatures, strict=True):
        _verify(device, name, certificate, text, signature, "signatures of the list")


def _opened(
    sealed: bytes, record: SecureRecord, keys: CohortKeys, sender: str, receiver: str
) -> bytes:
    """Return the shares of a sender, or nothing if they cannot be read."""
    context = keys.share_context(sender, receiver)
    try:
        key = agreed_key(bytes.fromhex(record.channel), keys.of(sender).channel, context)
        text = open_sealed(key, sealed, context)
    except WireError:
        return b""
    return text if len(text) == SHARES_BYTES else b""


def _answer(task: DeviceTask, groups: dict[str, Tensors], private: dict[str, Tensors]) -> Answer:
    """Return an answer that tells nothing of samples or training."""
    coded = {role: Group(arrays, "fp32") for role, arrays in groups.items()}
    return Answer(task.device, 1, coded, private=private)
