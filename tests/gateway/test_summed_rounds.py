"""Whole rounds whose replies come as sums of sites: the flat bits, verdicts, and refused sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefed.algorithms.composed.registry import make
from edgefed.algorithms.interface.exchange import Exchange
from edgefed.algorithms.interface.member import Member
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.devices.trust_scores import TrustScores
from edgefed.coordinator.exchanges.awaited_replies import PendingExchange
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.exchanges.site_sums import choice_of, sum_requests
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.errors import RecipeError
from edgefed.gateway.site_sums import SiteSums
from edgefed.wire.blobs import BlobCache
from edgefed.wire.messages import Reply
from edgefed.wire.site_messages import SumReply
from tests.coordinator.fleets import Tamper, TamperedFleet, silent
from tests.run_fixture import World, recipe

SITES = {f"device-0{number}": site for number, site in enumerate(("a", "b", "a", ""))}
"""The gateway of each device; the last has none."""


def at_sites(cache: BlobCache, lied: Sequence[str] = ()) -> Tamper:
    """Let gateways answer for their devices; those of ``lied`` count a sample too many."""

    def tamper(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        sums = {site: SiteSums(cache, lambda out, since: {}) for site in SITES.values() if site}
        pending = PendingExchange(opened, 0.0)
        for site, request in sum_requests(pending, SITES.__getitem__, SITES.__contains__, 0.0):
            sums[site].request(request, 0.0)
        for each in replies:
            site, reply = SITES[each.reply.device], each.reply.model_copy(update={"inline": {}})
            passed: list[Reply | None] = [reply]
            if site:
                for ref in reply.blobs.values():
                    cache.put(each.read(ref.digest))
                passed = [sums[site].take(opened.task_of[reply.device], reply)]
                passed += sums[site].complete(0.0)
            for one in passed:
                if isinstance(one, SumReply):
                    yield summed(replace(each, read=partial(read, cache)), one, lied)
                elif one is not None:
                    yield replace(each, reply=one)

    return tamper


def read(cache: BlobCache, digest: str) -> bytes:
    data = cache.get(digest)
    assert data is not None
    return data


def summed(last: Delivered, reply: SumReply, lied: Sequence[str]) -> Delivered:
    parts = tuple(
        replace(last, reply=one.model_copy(update={"samples": 99}))
        if one.device in lied
        else replace(last, reply=one)
        for one in reply.replies
    )
    return replace(last, reply=reply, parts=parts)


def ran(folder: Path, plan: Recipe, *lied: str, site_sums: str = "always") -> tuple[str, Any]:
    """Return the final digest of a run with sites, and its verdicts, and the run."""
    rounds = plan.rounds.model_copy(update={"site_sums": site_sums})
    with closing(World(folder, plan.model_copy(update={"rounds": rounds}))) as here:
        fleet = TamperedFleet(here.devices, at_sites(here.cache, lied))
        record = here.engine(fleet).run()
        assert record.status == "finished", record.reason
        choices = {opened.site_sums for opened in fleet.asked}
        return record.weights_digest, (fleet.verdicts, here.seen("reply"), here.rows, choices)


def flat(folder: Path, plan: Recipe, *without: str) -> tuple[str, Any]:
    with closing(World(folder, plan)) as here:
        fleet = TamperedFleet(here.devices, silent(*without))
        return here.engine(fleet).run().weights_digest, here.rows


PLANS: dict[str, dict[str, Any]] = {
    "int8": {"wire": {"downlink": "bf16", "uplink": "int8"}},
    "uniform": {"algorithm": {"name": "fedavg", "weighting": "uniform"}},
    "adam": {"algorithm": {"name": "fedopt", "server": "adam"}},
}


@pytest.mark.parametrize("name", PLANS)
def test_rounds_of_summed_sites_end_in_the_flat_bits(tmp_path: Path, name: str) -> None:
    plan = recipe(**PLANS[name])
    digest, (verdicts, _, rows, choices) = ran(tmp_path / "sites", plan)
    expected, flat_rows = flat(tmp_path / "flat", plan)
    assert digest == expected
    assert choices == {"always"}
    assert sorted(verdicts) == sorted([(device, "accepted", "") for device in SITES] * 3)
    assert {row["summed"] for row in rows} == {sum(map(bool, SITES.values()))}
    assert not any("summed" in row for row in flat_rows)
    same = ("train_loss", "replies", "late")
    assert [[row[key] for key in same] for row in rows] == [
        [row[key] for key in same] for row in flat_rows
    ]


def test_of_a_refused_sum_nothing_is_merged(tmp_path: Path) -> None:
    plan = recipe()
    digest, (verdicts, replies, rows, _) = ran(tmp_path / "sites", plan, "device-02")
    assert digest == flat(tmp_path / "flat", plan, "device-00", "device-02")[0]
    refused = {device for device, outcome, _ in verdicts if outcome == "rejected"}
    assert refused == {"device-00", "device-02"}
    reasons = {fields["reason"] for fields in replies if fields["outcome"] == "rejected"}
    assert reasons == {"in the sum of its site, device-02 counts 99 samples, and it announced 6"}
    assert [row["replies"] for row in rows] == [2, 2, 2]


def test_a_sum_with_the_answer_of_a_quarantined_device_is_refused(tmp_path: Path) -> None:
    plan = recipe(rounds={"site_sums": "always", "count": 1})
    trust = TrustScores()
    with closing(World(tmp_path, plan)) as here:
        gateways = at_sites(here.cache)

        def tamper(opened: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
            trust.quarantine("device-02", "operator.ann", "now")
            return gateways(opened, replies)

        fleet = TamperedFleet(here.devices, tamper)
        assert here.engine(fleet, trust=trust).run().status == "finished"
    refused = [(device, why) for device, outcome, why in fleet.verdicts if outcome == "rejected"]
    why = "the sum of its site has an answer of device-02, which is quarantined"
    assert refused == [("device-00", why), ("device-02", why)]


SINGLE: dict[str, dict[str, Any]] = {
    "merging.rule = median": {"merging": {"rule": "median"}},
    "[checks]": {"checks": {"norm_factor": 9.0}},
    "rounds.over_selection": {"rounds": {"over_selection": 0.5, "cohort": 2}},
    "algorithm.divergence": {"algorithm": {"name": "fedavg", "divergence": True}},
    "fednova": {"algorithm": {"name": "fednova"}},
    "[privacy]": {"privacy": {"mechanism": "central", "clip": 1.0, "noise_multiplier": 0.1}},
}
"""Recipes that need single updates, by the beginning of the reason."""

NOT_IN_A_SIMULATION: dict[str, dict[str, Any]] = {
    "buffered rounds": {"rounds": {"mode": "buffered", "buffer": 2}},
    "[secure_aggregation]": {"secure_aggregation": {"enabled": True}},
    "fedma": {"algorithm": {"name": "fedma"}, "model": {"name": "lenet5"}},
}


@pytest.mark.parametrize("reason", SINGLE)
def test_what_needs_single_updates_is_never_summed(tmp_path: Path, reason: str) -> None:
    assert ran(tmp_path, recipe(**SINGLE[reason]), site_sums="auto")[1][3] == {"never"}


def test_which_exchanges_are_summed() -> None:
    plan = recipe(rounds={"site_sums": "always"})
    algorithm = make(plan)
    roster = tuple(Member(device, 5) for device in SITES)
    state = algorithm.start({"w": np.zeros(3, np.float32)}, roster, 0)
    asked = algorithm.plan(state, roster, 0)
    assert isinstance(asked, Exchange)
    assert choice_of(asked, plan, algorithm) == "always"
    role = asked.reply_roles["delta"]
    many = tuple(replace(question, samples=2**27) for question in asked.questions)
    for other in (
        replace(asked, name="evaluate"),
        replace(asked, preparatory=True),
        replace(asked, wanted=3),
        replace(asked, reply_roles={"delta": role, "control": role}),
        replace(asked, reply_roles={"delta": replace(role, tensors=None)}),
    ):
        assert choice_of(other, plan, algorithm) == "never"
    assert choice_of(replace(asked, questions=many), plan, algorithm) == "always"
    larger = many * 16
    assert choice_of(replace(asked, questions=larger, wanted=64), plan, algorithm) == "never"


@pytest.mark.parametrize("reason", [*SINGLE, *NOT_IN_A_SIMULATION])
def test_forced_sums_of_what_needs_single_updates_are_refused(reason: str) -> None:
    sections = {**SINGLE, **NOT_IN_A_SIMULATION}[reason]
    rounds = {**sections.get("rounds", {}), "site_sums": "always"}
    with pytest.raises(RecipeError) as caught:
        make(recipe(**{**sections, "rounds": rounds}))
    assert caught.value.code == "rounds.site_sums"
    assert f"do not go with {reason}" in caught.value.message.replace("the [", "[")
