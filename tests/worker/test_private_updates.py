"""A device's half of private runs: where its noise comes from, and what its owner limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.config.recipes.privacy_section import PrivacySection
from edgefed.sharing.policy import Policy
from edgefed.wire.messages import Task
from edgefed.worker.outcomes import Outcome, PersistentState
from edgefed.worker.trainer_cache import TrainerCache
from edgefed.worker.worker import Worker
from tests.run_fixture import samples
from tests.worker.tasks import read, task

LOCAL = PrivacySection(mechanism="local", noise_multiplier=4.0, clip=0.5)
CENTRAL = PrivacySection(mechanism="central", noise_multiplier=4.0, clip=0.5)


def private_task(section: PrivacySection | None, **changes: Any) -> Task:
    told = {} if section is None else section.model_dump(mode="json")
    return task(privacy=told, params={"clip": 0.5}, **changes)


def worker(policy: Policy | None = None, **more: Any) -> Worker:
    given = policy or Policy()
    return Worker(TrainerCache("cpu"), samples(9, 1), samples(5, 2), given, **more)


def done(given: Worker, what: Task, persistent: PersistentState | None = None) -> Outcome:
    return given.work(what, read, {}, persistent=persistent or PersistentState())


def test_the_noise_of_a_task_is_not_that_of_its_seed() -> None:
    what = private_task(LOCAL)
    first, second = (done(worker(), what) for _ in range(2))
    assert first.status == second.status == "ok"
    assert first.blobs["delta"] != second.blobs["delta"]
    plain, again = (done(worker(), private_task(CENTRAL)) for _ in range(2))
    assert plain.blobs["delta"] == again.blobs["delta"]


def test_only_a_constructor_fixes_the_noise() -> None:
    fixed = [worker(private_randomness=lambda _: np.random.default_rng(3)) for _ in range(2)]
    first, second = (done(each, private_task(LOCAL)) for each in fixed)
    assert first.blobs == second.blobs


def test_a_release_is_in_what_is_committed_with_the_answer() -> None:
    outcome = done(worker(), private_task(LOCAL))
    (entry,) = outcome.ledger
    assert (entry["kind"], entry["round"], entry["noise_multiplier"]) == ("update", 2, 4.0)
    assert outcome.private["privacy"]["releases"].tolist() == [1]
    assert done(worker(), private_task(CENTRAL)).ledger == ()


@pytest.mark.parametrize("section", [None, CENTRAL], ids=["none", "central"])
def test_an_owner_with_a_limit_trains_only_with_noise_of_its_own(
    section: PrivacySection | None,
) -> None:
    limited = worker(Policy(update_epsilon=100.0))
    outcome = done(limited, private_task(section))
    assert outcome.status == "refused"
    assert "update_epsilon" in outcome.reason
    assert not outcome.blobs
    assert done(limited, private_task(LOCAL)).status == "ok"
    assert done(limited, private_task(None, question="evaluate")).status == "ok"


def test_a_limit_counts_the_releases_of_all_runs() -> None:
    limited = worker(Policy(update_epsilon=3.0))
    kept = PersistentState()
    for _ in range(10):
        outcome = done(limited, private_task(LOCAL), kept)
        if outcome.status != "ok":
            break
        kept = PersistentState(ledger=(*kept.ledger, *outcome.ledger))
    assert outcome.status == "refused"
    assert "its owner allows updates epsilon 3 over all runs" in outcome.reason
    assert 1 <= len(kept.ledger) < 10
