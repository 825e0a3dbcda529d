"""The exchange defines, role by role, which answers are valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edgefed.algorithms.interface.exchange import ReplyRole
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.reply_checks import Rejection, check
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import DIVERGED
from edgefed.learn.base.types import Tensors
from edgefed.wire.messages import BlobRef, Reply, Task
from edgefed.wire.tensors import TensorSpec, digest
from tests.coordinator.fleets import exact
from tests.worker.tasks import task

ASKED = OpenExchange("r-0", 0, "count", 1, (), 1, 1, 60.0)
MASK = ReplyRole({"mask": TensorSpec("float32", (2,))}, 3.0)
COUNTS = ReplyRole(None, 3.0)


def answered(
    roles: dict[str, ReplyRole],
    groups: dict[str, Tensors],
    bases: dict[str, str] | None = None,
    given: Task | None = None,
) -> set[str]:
    """Return the roles that are taken of an answer with these groups."""
    given = given or task()
    blobs = {digest(exact(arrays)): exact(arrays) for arrays in groups.values()}
    reply = Reply(
        run=given.run,
        exchange=ASKED.exchange,
        index=0,
        device=given.device,
        session="0" * 16,
        bases=_bases(given) if bases is None else bases,
        status="ok",
        samples=3,
        blobs={
            role: BlobRef(digest=digest(exact(arrays)), size=len(exact(arrays)))
            for role, arrays in groups.items()
        },
    )
    delivered = Delivered(reply, blobs.__getitem__, 0.0, 1)
    exchange = replace(ASKED, tasks=(given,), reply_roles=roles)
    return set(check(delivered, exchange, lambda answer: "").groups)


def _bases(given: Task) -> dict[str, str]:
    return {role: ref.digest for role, ref in given.blobs.items()}


def floats(*values: float, name: str = "mask") -> Tensors:
    return {name: np.array(values, np.float32)}


def test_the_roles_of_the_exchange_are_taken_whatever_it_is_called() -> None:
    integers = {"seen": np.array([2**26], np.int64)}
    taken = answered({"mask": MASK, "counts": COUNTS}, {"mask": floats(1, -3), "counts": integers})
    assert taken == {"mask", "counts"}


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({}, "it does not contain mask"),
        (
            {"mask": floats(1, 2), "delta": floats(1, 2)},
            "it contains delta, which was not requested",
        ),
        ({"mask": floats(1, 2, 3)}, "mask: .*float32.3. instead of float32.2."),
        ({"mask": floats(1, 2, name="m")}, "mask: .*'m' is not expected"),
        ({"mask": floats(1, -3.5)}, "^mask mask holds 3.5, more than 3$"),
    ],
    ids=["missing", "unasked", "shape", "name", "too large"],
)
def test_another_answer_is_rejected(groups: dict[str, Tensors], reason: str) -> None:
    with pytest.raises(Rejection, match=reason):
        answered({"mask": MASK}, groups)


def test_integers_that_would_overflow_a_sum_are_rejected() -> None:
    with pytest.raises(Rejection, match=r"^counts seen holds 1\.1e\+12, more than 6\.71089e\+07$"):
        answered({"counts": COUNTS}, {"counts": {"seen": np.array([2**40], np.int64)}})


def test_only_what_was_trained_is_said_to_have_diverged() -> None:
    with pytest.raises(Rejection, match=f"^{DIVERGED}: mask mask holds 4"):
        answered({"mask": replace(MASK, trained=True)}, {"mask": floats(1, 4)})


@pytest.mark.parametrize("role", [MASK, COUNTS, replace(MASK, trained=True)])
def test_a_role_comes_back_from_json_as_it_was(role: ReplyRole) -> None:
    assert ReplyRole.from_json(role.to_json()) == role


ONE, TWO = "1" * 64, "2" * 64


@pytest.mark.parametrize(
    ("bases", "reason"),
    [
        ({"weights": ONE}, "it started from other mask than the task names"),
        ({"weights": ONE, "mask": ONE}, "it started from other mask than the task names"),
        ({"weights": TWO, "mask": ONE}, "it started from other weights than the task names"),
        (
            {"weights": ONE, "mask": TWO, "old": TWO},
            "it started from old, which the task does not name",
        ),
    ],
    ids=["missing", "another role's", "exchanged", "unasked"],
)
def test_an_answer_from_other_blobs_is_rejected_whatever_their_role(
    bases: dict[str, str], reason: str
) -> None:
    given = task(
        blobs={"weights": BlobRef(digest=ONE, size=9), "mask": BlobRef(digest=TWO, size=9)}
    )
    assert answered({}, {}, _bases(given), given) == set()
    with pytest.raises(Rejection, match=reason):
        answered({}, {}, bases, given)
