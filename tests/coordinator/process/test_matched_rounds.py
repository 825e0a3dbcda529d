"""FedMA in an engine: devices that are lost in a round, bad answers, restarts, and its result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from edgefed.algorithms.interface.member import Member, Roster
from edgefed.algorithms.matched.fedma_records import LAYER
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.config.values.address import Address
from edgefed.coordinator.exchanges.fleet import Delivered
from edgefed.coordinator.process.run_check import RunCheck
from edgefed.coordinator.process.service_settings import ServiceSettings
from edgefed.coordinator.storage.stored_runs import OpenExchange
from edgefed.data.base.types import Shard
from edgefed.errors import EdgeFedError
from edgefed.files.samples import Samples
from edgefed.learn.base.types import Tensors
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import Trainer
from edgefed.wire.tensors import weights_digest
from tests.coordinator.conftest import MakeWorld
from tests.coordinator.exchanges.test_resume import Fuse, PowerCut, cut_in_replies, parts
from tests.coordinator.fleets import Forge, TamperedFleet, forged, told, with_bits
from tests.coordinator.rounds.test_saved_evaluation import evaluated
from tests.run_fixture import CLASSES, SHAPE, World, recipe, shards

STEPS = 3
GROWING: dict[str, Any] = {"gamma": 1e6, "sigma": 1e-3, "sigma0": 1.0, "most_growth": 1.5}
"""Settings with which few units are matched."""


def plan(
    *, rounds: dict[str, Any] | None = None, hidden: tuple[int, ...] = (4, 3), **ours: Any
) -> Recipe:
    return recipe(
        model={"name": "mlp", "hidden": list(hidden)},
        algorithm={"name": "fedma", **ours},
        rounds={"count": 2, "quorum": 0.5, "retries": 0, **(rounds or {})},
    )


def undisturbed(world: MakeWorld, given: Recipe) -> World:
    here = world(given, parts())
    assert here.engine().run().status == "finished"
    return here


def saved(here: World) -> tuple[Tensors, dict[str, str]]:
    path = Path(here.folder, "runs", here.run, "model.safetensors")
    with safe_open(path, "np") as opened:
        return load_file(path), opened.metadata()


def asked(fleet: TamperedFleet) -> list[list[str]]:
    return [[task.device for task in each.tasks] for each in fleet.asked if each.name != "evaluate"]


def warnings(here: World) -> list[str]:
    return [fields["text"] for fields in here.seen("note", level="warning")]


# -- devices that are lost ------------------------------------------------------------------------


class Outage(TamperedFleet):
    """A device is no longer known from the second exchange to the end of the first round."""

    def roster(self) -> Roster:
        is_out = 1 <= len(self.asked) < STEPS
        return tuple(each for each in super().roster() if not is_out or each.device != "device-01")


EVERYBODY = [f"device-{number:02d}" for number in range(4)]


@pytest.mark.parametrize("at", [1, 2])
def test_the_round_goes_on_without_a_device_that_is_gone(world: MakeWorld, at: int) -> None:
    here = world(plan(), parts())

    def lose(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return (
            each for each in replies if exchange.index != at or each.reply.device != "device-01"
        )

    fleet = TamperedFleet(here.devices, lose)
    assert here.engine(fleet).run().status == "finished"
    others = [each for each in EVERYBODY if each != "device-01"]
    first = [EVERYBODY] * (at + 1) + [others] * (STEPS - 1 - at)
    assert asked(fleet) == first + [EVERYBODY] * STEPS
    assert warnings(here) == ["round 1: 1 device is left out until the next round"]
    assert {outcome for _, outcome, _ in fleet.verdicts} == {"accepted"}


def test_a_device_that_is_no_longer_known_is_not_asked_and_comes_back(world: MakeWorld) -> None:
    here = world(plan(), parts())
    fleet = Outage(here.devices)
    assert here.engine(fleet).run().status == "finished"
    others = [each for each in EVERYBODY if each != "device-01"]
    assert asked(fleet) == [EVERYBODY, others, others] + [EVERYBODY] * STEPS
    assert warnings(here) == ["round 1: 1 device is left out until the next round"]


def test_when_all_are_gone_the_last_complete_model_is_kept(world: MakeWorld) -> None:
    chosen = plan(**GROWING)
    here = world(chosen, parts())

    def lose(exchange: OpenExchange, replies: Iterator[Delivered]) -> Iterator[Delivered]:
        return iter(()) if exchange.round == 2 and exchange.name == "fit" else replies

    record = here.engine(TamperedFleet(here.devices, lose)).run()
    assert (record.status, record.error, record.round) == ("failed", "round.quorum", 1)
    weights, told_of = saved(here)
    assert told_of["weights_digest"] == record.weights_digest
    assert json.loads(told_of["model"])["hidden"] == [
        len(weights["fc1.bias"]),
        len(weights["fc2.bias"]),
    ]
    first = world(plan(rounds={"count": 1}, **GROWING), parts())
    assert first.engine().run().weights_digest == record.weights_digest
    assert len(weights["fc1.bias"]) > 4

    after = TamperedFleet(here.devices)
    resumed = here.engine(after).run()
    assert (resumed.status, resumed.round) == ("finished", 2), resumed.reason
    assert asked(after) == [EVERYBODY], "it goes on with the layer that was open"


# -- bad answers ----------------------------------------------------------------------------------


def failed(each: Delivered) -> Delivered:
    return told(status="failed", reason="Training diverged", blobs={})(each)


@pytest.mark.parametrize(
    ("forge", "reason"),
    [(with_bits(0x7F, 0xC0, LAYER), "finite"), (failed, "diverged")],
)
def test_the_others_go_on_without_a_diverged_device(
    world: MakeWorld, forge: Forge, reason: str
) -> None:
    here = world(plan(), parts())
    fleet = TamperedFleet(here.devices, forged("device-01", forge))
    record = here.engine(fleet).run()
    assert record.status == "finished", record.reason
    bad = [each for each in fleet.verdicts if each[1] != "accepted"]
    assert {device for device, _, _ in bad} == {"device-01"}
    assert len(bad) == 2, "once in each round"
    assert all(reason in why for _, _, why in bad)
    assert all(np.isfinite(each).all() for each in saved(here)[0].values())


def of_class(label: int, count: int) -> Shard:
    rng = np.random.default_rng(label)
    inputs = rng.standard_normal((count, *SHAPE)).astype(np.float32) + label
    return Shard(Samples(inputs, np.full(count, label)), shards((1,))[0].test, CLASSES)


@pytest.mark.parametrize("labels", [(0, 1, 1), (1,)], ids=["none-of-2", "lone"])
def test_devices_need_not_have_samples_of_every_class(
    world: MakeWorld, labels: Sequence[int]
) -> None:
    here = world(plan(), [of_class(label, 5) for label in labels])
    assert here.engine().run().status == "finished"
    assert all(np.isfinite(each).all() for each in saved(here)[0].values())
    assert here.rows[-1]["loss"] is not None


@pytest.mark.parametrize(
    ("sections", "allowed", "code"),
    [
        ({"model": {"name": "tests.learn.own_models:linear"}}, True, "model.groups"),
        ({"model": {"name": "tests.learn.own_models:linear"}}, False, "model.refused"),
        ({"personal": {"preset": "fedper"}}, True, "personal.algorithm"),
    ],
)
def test_run_check_refuses_what_the_run_would(
    tmp_path: Path, sections: dict[str, Any], allowed: bool, code: str
) -> None:
    members = (Member("device-00", 5, SHAPE, CLASSES),)
    settings = ServiceSettings(Address("127.0.0.1", 1), "fleet", tmp_path)
    chosen = recipe(algorithm={"name": "fedma"}, data={"name": "none"}, **sections)
    with pytest.raises(EdgeFedError) as raised:
        RunCheck(replace(settings, user_models=allowed)).report(chosen, members)
    assert raised.value.code == code
    plain = recipe(algorithm={"name": "fedma"}, data={"name": "none"})
    assert RunCheck(settings).report(plain, members)["fits"]


def test_run_check_says_which_setting_needs_more_devices(tmp_path: Path) -> None:
    settings = ServiceSettings(Address("127.0.0.1", 1), "fleet", tmp_path)
    chosen = recipe(algorithm={"name": "fedavg"}, merging={"rule": "krum"}, data={"name": "none"})
    members = tuple(Member(f"device-{n:02}", 5, SHAPE, CLASSES) for n in range(5))
    assert RunCheck(settings).report(chosen, members)["fits"]
    found = RunCheck(settings).report(chosen, members[:4])
    assert (found["fits"], found["problem"]["code"]) == (False, "run.devices")
    assert (
        "needs 2f + 3 = 5 answers a round. 4 of 5 devices are there" in found["problem"]["message"]
    )


@pytest.mark.parametrize(
    ("tables", "fits"),
    [
        ({"labels": {"supplement": 0.5}}, False),
        ({"labels": {"supplement": 0.5, "mix_share": 0.0}}, True),
        ({"secure_aggregation": {"enabled": True}}, False),
        ({}, True),
    ],
)
def test_run_check_knows_what_stays_within_a_site(
    tmp_path: Path, tables: dict[str, Any], fits: bool
) -> None:
    settings = ServiceSettings(Address("127.0.0.1", 1), "fleet", tmp_path)
    chosen = recipe(algorithm={"name": "fedavg"}, data={"name": "none"}, **tables)
    members = tuple(Member(name, 5, (1, 8, 8), CLASSES) for name in ("a", "b", "c", "d"))

    def problem(gateways: dict[str, str]) -> Any:
        check = RunCheck(settings, gateway_of=lambda device: gateways.get(device, ""))
        return check.report(chosen, members)["problem"]

    apart = problem({"c": "hall-1"})
    assert (apart is None) == fits
    assert fits or apart["code"] == "site.relays"
    assert problem(dict.fromkeys("abcd", "hall-1")) is None
    assert problem({}) is None


# -- its result -----------------------------------------------------------------------------------


def test_the_result_is_an_ordinary_network_of_the_found_widths(world: MakeWorld) -> None:
    here = undisturbed(world, plan(**GROWING))
    weights, told_of = saved(here)
    section = ModelSection.model_validate(json.loads(told_of["model"]))
    model = build(section, SHAPE, CLASSES, 1)
    assert section.settings()["hidden"] == [6, 4]
    assert {name: each.shape for name, each in model.weights().items()} == {
        name: each.shape for name, each in weights.items()
    }
    score = Trainer(model, "cpu").evaluate(weights, here.dataset.test)
    last, again = here.rows[-1], evaluated(here, "both")["scores"]
    assert (last["accuracy"], last["loss"]) == (again["accuracy"], again["loss"])
    assert (last["accuracy"], last["loss"]) == pytest.approx((score.accuracy, score.loss))
    assert (
        weights_digest({name: weights[name] for name in model.names}) == told_of["weights_digest"]
    )


@pytest.mark.parametrize("passes", [2, 16])
def test_a_coordinator_killed_in_a_round_ends_in_the_same_bits(
    world: MakeWorld, passes: int
) -> None:
    chosen = plan(**GROWING)
    whole, here = undisturbed(world, chosen), world(chosen, parts())
    with pytest.raises(PowerCut):
        cut_in_replies(here, Fuse(passes))
    resumed = here.engine().run()
    assert (resumed.status, resumed.weights_digest) == ("finished", whole.record.weights_digest)
