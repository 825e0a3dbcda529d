"""The secrets of secure aggregation: drawn anew each time, and told by enough shares only."""

from __future__ import annotations

import pytest

from edgefed.algorithms.secure.secure_device_record import SecureRecord
from edgefed.algorithms.secure.secure_keys import CohortKeys, DeviceKeys
from edgefed.algorithms.secure.secure_records import SecureRecords, keys_of
from edgefed.errors import DataError
from edgefed.sharing.pairwise_keys import NONCE_BYTES, commitment, public_key
from edgefed.sharing.shamir import PRIME, SHARE_BYTES, combine
from tests.algorithms.secure.test_secure_aggregation import devices
from tests.algorithms.secure_play import FIT, SHARES, Round, algorithm

THRESHOLD = 7


@pytest.fixture(scope="module")
def masked() -> Round:
    """A round whose devices hold each other's shares."""
    secure = Round.of(algorithm(), devices())
    planned = secure.until(FIT)
    secure.answers(planned)
    return secure


def cohort(secure: Round) -> CohortKeys:
    session = SecureRecords.of(secure.state).session
    assert session is not None
    assert session.threshold == THRESHOLD
    return keys_of(secure.state, session)


def held_shares(secure: Round, owner: str, start: int) -> dict[int, bytes]:
    """Return what each device holds of one secret, by place: of a mask key (0) or of a seed."""
    keys, found = cohort(secure), {}
    for holder in keys.devices:
        shares = SecureRecord.of(secure.devices.private[holder]).shares[owner]
        found[keys.place(holder)] = bytes.fromhex(shares)[start : start + SHARE_BYTES]
    return found


def some(shares: dict[int, bytes], count: int) -> dict[int, bytes]:
    return {place: shares[place] for place in sorted(shares)[-count:]}


def is_secret(keys: DeviceKeys, start: int, shares: dict[int, bytes]) -> bool:
    """Whether shares give the secret that a device advertised a public half of."""
    try:
        secret = combine(shares)
    except DataError:
        return False
    return commitment(secret) == keys.seed if start else public_key(secret) == keys.mask


@pytest.mark.parametrize("start", [0, SHARE_BYTES], ids=["mask key", "seed"])
def test_as_many_shares_as_the_threshold_give_a_secret_and_one_less_none(
    masked: Round, start: int
) -> None:
    for owner in cohort(masked).devices:
        keys, shares = cohort(masked).of(owner), held_shares(masked, owner, start)
        assert is_secret(keys, start, some(shares, THRESHOLD))
        assert not is_secret(keys, start, some(shares, THRESHOLD - 1))


def test_every_secret_of_every_device_is_another(masked: Round) -> None:
    public = [value for each in cohort(masked).keys for value in (each.mask, each.channel)]
    seeds = [each.seed for each in cohort(masked).keys]
    assert len({*public, *seeds}) == 3 * len(seeds)
    other = Round.of(algorithm(), devices())
    other.devices.seed = 1
    other.until(SHARES)
    assert not {*seeds, *public} & {
        value for each in cohort(other).keys for value in (each.mask, each.channel, each.seed)
    }


def test_every_polynomial_is_another(masked: Round) -> None:
    """What a share adds to its secret tells nothing of another device's, or of another secret."""
    added = set()
    for owner in cohort(masked).devices:
        for start in (0, SHARE_BYTES):
            shares = held_shares(masked, owner, start)
            secret = int.from_bytes(combine(some(shares, THRESHOLD)), "big")
            added.add((int.from_bytes(shares[1], "big") - secret) % PRIME)
    assert len(added) == 2 * len(cohort(masked).devices)


def test_every_message_has_a_nonce_of_its_own(masked: Round) -> None:
    nonces = {data[:NONCE_BYTES] for data in masked.devices.relayed.values()}
    assert len(nonces) == len(masked.devices.relayed) == 90
