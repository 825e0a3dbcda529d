"""Secure aggregation, both halves: the plain result, whatever is lost, and nothing but the sum."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from edgefed.algorithms.interface.answer import Answer, Group
from edgefed.algorithms.interface.base import State
from edgefed.algorithms.interface.exchange import Exchange, Finished
from edgefed.algorithms.secure.secure_device_record import SecureRecord
from edgefed.algorithms.secure.secure_merging import open_session
from edgefed.algorithms.secure.secure_records import keys_of
from edgefed.errors import UnmergeableError
from tests.algorithms.play import bits, trainer
from tests.algorithms.secure_play import (
    FIT,
    KEYS,
    SHARES,
    UNMASK,
    Round,
    SecureDevices,
    algorithm,
    asked,
)
from tests.run_fixture import samples

SIZES = (5, 9, 6, 4, 7, 3, 8, 5, 4, 6)
LOST = ("device-02", "device-07")


def devices(count: int = 10, seed: int = 0) -> SecureDevices:
    parts = [samples(size, 10 + n) for n, size in enumerate(SIZES[:count])]
    return SecureDevices(parts, trainer(), seed=seed)


def plain(lost: tuple[str, ...] = (), **tables: Any) -> State:
    """Return the state after a round without masks."""
    there = Round.of(algorithm(secure=False, **tables), devices())
    there.until(FIT)
    there.step(FIT, lost)
    return there.state


def ends_as_plain(secure: Round, lost: tuple[str, ...] = ()) -> bool:
    """Whether the weights have the bits of a round without masks and the devices lost."""
    weights = secure.half.weights
    return bool(bits(weights(secure.state)) == bits(weights(plain(lost))))


MOMENTS = [KEYS, SHARES, FIT, UNMASK]
TABLES: list[dict[str, Any]] = [
    {},
    {"algorithm": {"weighting": "uniform"}},
    {"name": "fedprox"},
    {"name": "naivemix", "algorithm": {"exclude_own": True, "group_size": 2}},
    {"personal": {"preset": "fedper"}},
]


@pytest.mark.parametrize(
    ("tables", "moment"),
    [
        *((TABLES[0], moment) for moment in MOMENTS),
        *((each, MOMENTS[place % len(MOMENTS)]) for place, each in enumerate(TABLES[1:])),
    ],
    ids=str,
)
def test_the_result_is_the_plain_one_to_the_last_bit(tables: dict[str, Any], moment: str) -> None:
    secure = Round.of(algorithm(**tables), devices())
    secure.until(KEYS)
    for name in MOMENTS:
        lost = LOST if MOMENTS.index(name) >= MOMENTS.index(moment) else ()
        secure.step(name, lost)
    absent = () if moment == UNMASK else LOST
    wanted = plain(absent, **tables)
    assert secure.state.round == wanted.round == 1
    assert bits(secure.half.weights(secure.state)) == bits(secure.half.weights(wanted))
    assert not any(name.startswith("secure") for name in secure.state.groups)
    assert isinstance(secure.half.plan(secure.state, secure.devices.roster, 6), Finished)


def test_the_loss_is_the_mean_over_all_samples() -> None:
    secure, there = Round.of(algorithm(), devices()), Round.of(algorithm(secure=False), devices())
    secure.finish()
    there.step(FIT)
    answers = there.devices.answered[FIT]
    total = sum(each.samples for each in answers)
    mean = sum(each.metrics["loss"] * each.samples for each in answers) / total
    measured = secure.half.round_metrics(secure.state)
    assert measured["train_loss"] == pytest.approx(mean, abs=2**-15)


def test_answers_tell_nothing_beside() -> None:
    secure = Round.of(algorithm(), devices())
    secure.finish()
    answers = [each for some in secure.devices.answered.values() for each in some]
    assert len(answers) == 40
    assert {(each.samples, tuple(each.metrics)) for each in answers} == {(1, ())}
    assert {each.codec for answer in answers for each in answer.groups.values()} == {"fp32"}


def test_an_answer_that_tells_more_is_rejected() -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(FIT)
    (answer, *_) = secure.answers(planned)
    for telling in (replace(answer, samples=5), replace(answer, metrics={"loss": 1.0})):
        assert "beside what is masked" in secure.devices.rejected(secure.half, planned, telling)


# -- masks ----------------------------------------------------------------------------------------


def stream(key: bytes, count: int) -> Any:
    """Return a key stream of ChaCha20 as numbers modulo 2^64."""
    zeros = bytes(8 * count)
    return np.frombuffer(Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(zeros), "<u8")


def pair_stream(own: bytes, peer: bytes, purpose: bytes, count: int) -> Any:
    """Return a pair's mask, computed without the code of the product."""
    shared = X25519PrivateKey.from_private_bytes(own).exchange(
        X25519PublicKey.from_public_bytes(peer)
    )
    return stream(HKDF(SHA256(), 32, salt=None, info=purpose).derive(shared), count)


@pytest.mark.parametrize("count", [2, 3])
def test_masks_by_hand(count: int) -> None:
    secure = Round.of(algorithm(secure_aggregation={"threshold": 1.0}), devices(count))
    planned = secure.until(FIT)
    _, session = open_session(secure.state)
    keys, private = keys_of(secure.state, session), secure.devices.private
    records = {name: SecureRecord.of(private[name]) for name in keys.devices}
    answers = secure.answers(planned)
    digest = asked(planned).task_digest.hex()
    there = Round.of(algorithm(secure=False), devices(count))
    updates = {each.device: each for each in there.answers(there.plan())}
    total: Any = 0
    for answer in answers:
        wire = answer.groups["masked"].arrays["masked"]
        width = (
            7  # bytes of a number: 40 bits of the grid, 6 of the bound, 5 of the samples, a sign
        )
        masked: Any = np.zeros((3 + (wire.size - 24) // width, 8), np.uint8)
        masked[:3], masked[3:, :width] = wire[:24].reshape(3, 8), wire[24:].reshape(-1, width)
        masked = masked.reshape(-1).view("<u8")
        own = records[answer.device]
        with np.errstate(over="ignore"):
            masked -= stream(bytes.fromhex(own.seed), masked.size)
            total = total + masked
            for peer in set(keys.devices) - {answer.device}:
                mask = pair_stream(
                    bytes.fromhex(own.mask),
                    keys.of(peer).mask,
                    keys.mask_purpose(digest, answer.device, peer),
                    masked.size,
                )
                masked = masked - mask if answer.device < peer else masked + mask
        delta = updates[answer.device].groups["delta"].arrays
        values = np.concatenate([delta[name].ravel() for name in sorted(delta)])
        weighted = (
            np.rint(values.astype(np.float64) * 2**40).astype(np.int64)
            * updates[answer.device].samples
        )
        assert masked[:2].tolist() == [updates[answer.device].samples] * 2
        assert np.array_equal(masked[3:] << 8, weighted.view(np.uint64) << 8)
    assert total[0] == sum(SIZES[:count])  # the masks of pairs cancel


def masked_bytes(seed: int) -> Any:
    """Return one device's masked update."""
    secure = Round.of(algorithm(), devices(4, seed))
    planned = secure.until(FIT)
    (first, *_) = secure.answers(planned)
    return first.groups["masked"].arrays["masked"]


def test_one_masked_update_is_like_random_bytes() -> None:
    """Chi-square of the bytes, the share of ones, and no relation between updates and seeds."""
    # 255 degrees of freedom: 99.9 % of random samples are below 330.5, and above 190.9.
    found = [masked_bytes(seed) for seed in range(8)]
    for data in found:
        counts = np.bincount(data, minlength=256)
        expected = data.size / 256
        chi_square = float(((counts - expected) ** 2 / expected).sum())
        assert 190.9 < chi_square < 330.5
        ones = int(np.unpackbits(data).sum())
        deviation = abs(ones - 4 * data.size) / np.sqrt(2 * data.size)
        assert deviation < 3.9
    for data, other in pairwise(found):
        equal = int((data == other).sum())
        assert abs(equal - data.size / 256) < 5 * np.sqrt(data.size / 256)


def test_the_same_update_without_its_masks_is_not() -> None:
    """The statistics see a difference where there is one."""
    there = Round.of(algorithm(secure=False), devices(4))
    (first, *_) = there.answers(there.plan())
    values = np.concatenate([a.ravel() for a in first.groups["delta"].arrays.values()])
    data = np.rint(values.astype(np.float64) * 2**40).astype(np.int64).view(np.uint8)
    counts = np.bincount(data, minlength=256)
    assert float(((counts - data.size / 256) ** 2 / (data.size / 256)).sum()) > 1000


def test_fresh_randomness_masks_otherwise_and_sums_to_the_same() -> None:
    first, second = (Round.of(algorithm(), devices(seed=seed)) for seed in (1, 2))
    for name in MOMENTS:
        first.step(name)
        second.step(name)
    one, other = (each.devices.answered[FIT][0].groups["masked"].arrays for each in (first, second))
    assert not np.array_equal(one["masked"], other["masked"])
    assert bits(first.half.weights(first.state)) == bits(second.half.weights(second.state))


# -- answers that are wrong -----------------------------------------------------------------------


def with_group(answer: Answer, role: str, **arrays: Any) -> Answer:
    held = {**answer.groups[role].arrays, **arrays}
    return replace(answer, groups={**answer.groups, role: Group(held, "fp32")})


def broken(device: str, role: str, **arrays: Any) -> Any:
    """Return what makes one device's answer wrong."""

    def change(answer: Answer) -> Answer:
        return with_group(answer, role, **arrays) if answer.device == device else answer

    return change


BYTES = np.zeros(5, np.uint8)

MALFORMED = {
    "short key": (KEYS, broken("device-03", "keys", mask=BYTES)),
    "keys that are numbers": (KEYS, broken("device-03", "keys", mask=np.zeros(32, np.int64))),
    "a key too many": (KEYS, broken("device-03", "keys", more=BYTES)),
    "commitments to nobody": (SHARES, broken("device-03", "commitments", commitments=BYTES)),
    "no shares": (
        SHARES,
        lambda a: replace(a, relayed=a.relayed[1:]) if a.device == "device-03" else a,
    ),
    "shares of nobody": (UNMASK, broken("device-03", "shares", shares=BYTES)),
}


@pytest.mark.parametrize(("moment", "change"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_is_rejected_and_the_others_are_merged(moment: str, change: Any) -> None:
    secure = Round.of(algorithm(), devices())
    for name in MOMENTS:
        secure.step(name, change=change if name == moment else None)
    absent = () if moment == UNMASK else ("device-03",)
    assert ends_as_plain(secure, absent)


def test_a_tampered_share_is_rejected_and_the_others_uncover_the_sum() -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(UNMASK)
    answers = []
    for answer in secure.answers(planned):
        if answer.device not in ("device-01", "device-05", "device-09"):
            answers.append(answer)
            continue
        shares = answer.groups["shares"].arrays["shares"].copy()
        shares[4, 20] ^= 1
        answers.append(with_group(answer, "shares", shares=shares))
        reason = secure.devices.rejected(secure.half, planned, answers[-1])
        assert reason == "a share that it tells is not the one that it was sent"
    secure.merge(planned, answers)
    assert ends_as_plain(secure)


def test_shares_that_are_not_of_a_secret_abort_the_round_and_name_who_made_them() -> None:
    """A device that commits to wrong shares is found when its secret is put together."""
    secure = Round.of(algorithm(), devices())
    secure.step(KEYS)
    record = SecureRecord.of(secure.devices.private["device-03"])
    wrong = replace(record, seed="11" * 32)
    secure.devices.private["device-03"] = wrong.to_private()
    secure.step(SHARES)
    secure.step(FIT)
    planned = secure.plan()
    answers = secure.answers(planned)
    with pytest.raises(UnmergeableError, match="device-03") as raised:
        secure.half.merge(secure.state, asked(planned), answers)
    assert raised.value.devices == ("device-03",)
    secure.state = secure.half.begin_anew(secure.state, asked(planned), raised.value.devices)
    again = secure.step(KEYS)
    assert "device-03" not in [each.device for each in again.questions]
    assert (again.attempt, again.questions[0].params["number"]) == (1, 2)
    secure.finish()
    assert ends_as_plain(secure, ("device-03",))


def test_a_relay_that_was_changed_is_missed_and_the_rest_is_enough() -> None:
    secure = Round.of(algorithm(), devices())
    secure.until(FIT)
    for relay, data in secure.devices.relayed.items():
        if relay.receiver == "device-04" and relay.sender in ("device-01", "device-02"):
            secure.devices.relayed[relay] = data[:-1] + bytes([data[-1] ^ 1])
    secure.step(FIT)
    planned = secure.plan()
    answers = {each.device: each for each in secure.answers(planned)}
    known = answers["device-04"].groups["shares"].arrays["known"]
    assert known.tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    secure.merge(planned, list(answers.values()))
    assert ends_as_plain(secure)


def test_a_mask_for_other_keys_does_not_pass_for_a_sum() -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(FIT)
    answers = secure.answers(planned)
    wire = answers[0].groups["masked"].arrays["masked"].copy()
    wire[3] ^= 255
    secure.merge(planned, [with_group(answers[0], "masked", masked=wire), *answers[1:]])
    planned = secure.plan()
    with pytest.raises(UnmergeableError, match="not one of these devices"):
        secure.half.merge(secure.state, asked(planned), secure.answers(planned))


# -- a phase that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize("moment", [SHARES, UNMASK])
def test_a_phase_below_its_quorum_begins_anew_with_fresh_keys(moment: str) -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(moment)
    secure.answers(planned, lost=LOST)
    before = keys_told(secure) if moment != KEYS else None
    secure.state = secure.half.begin_anew(secure.state, asked(planned))
    assert not any(name.startswith("secure") for name in secure.state.groups)
    again = secure.plan()
    assert (again.name, again.attempt) == (KEYS, 1)
    secure.step(KEYS)
    assert keys_told(secure) != before
    secure.finish()
    assert ends_as_plain(secure)


def keys_told(secure: Round) -> Any:
    return bits(secure.state.groups["secure-keys"])


def test_the_last_attempt_leaves_all_of_them_to_a_run_that_is_resumed() -> None:
    secure = Round.of(algorithm(rounds={"retries": 1}), devices())
    attempts = []
    for _ in range(3):
        planned = secure.until(SHARES)
        attempts.append(planned.attempt)
        secure.state = secure.half.begin_anew(secure.state, asked(planned))
    assert attempts == [0, 1, 0]


def test_too_few_shares_uncover_nothing() -> None:
    secure = Round.of(algorithm(), devices())
    planned = secure.until(UNMASK)
    assert planned.quorum == 7
    answers = secure.answers(planned)[:6]
    with pytest.raises(UnmergeableError, match="6 devices hold shares of device-00, and 7"):
        secure.half.merge(secure.state, asked(planned), answers)


def test_quorums_are_the_threshold_at_least() -> None:
    secure = Round.of(algorithm(rounds={"quorum": 0.9}), devices())
    quorums: dict[str, int] = {}
    exchanges: list[Exchange] = [secure.step(name) for name in MOMENTS]
    quorums = {each.name: each.quorum for each in exchanges}
    assert quorums == {KEYS: 9, SHARES: 9, FIT: 9, UNMASK: 7}
    assert [each.preparatory for each in exchanges] == [True, True, False, True]
    assert [each.detail for each in exchanges] == [
        f"secure aggregation, {number} of 4" for number in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("moment", [SHARES, UNMASK])
def test_a_session_of_an_earlier_release_is_left_for_a_new_one(moment: str) -> None:
    """The coordinator was upgraded between two exchanges, while none was open."""
    secure = Round.of(algorithm(), devices())
    secure.until(moment)
    records = secure.state.params["secure"]
    session = {name: each for name, each in records["session"].items() if name != "form"}
    params = {**secure.state.params, "secure": {**records, "session": session}}
    secure.state = replace(secure.state, params=params)
    again = secure.plan()
    assert (again.name, again.questions[0].params["number"]) == (KEYS, 2)
    secure.finish()
    assert ends_as_plain(secure)
