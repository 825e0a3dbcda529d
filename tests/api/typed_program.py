"""A user's program, for the type check of `make types`: right calls pass, and wrong ones do not.

It is not run. An error that is expected and absent is one itself (``warn_unused_ignores``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import edgefed
from edgefed.data.partitioners.cover import Parts
from edgefed.extension import (
    Candidate,
    Cover,
    FedAvg,
    Partitioner,
    PartitionRequest,
    Selector,
    SelectorSettings,
)


def stop(result: edgefed.RoundResult) -> bool:
    return result.metrics["loss"] > 0.1


def watch(result: edgefed.RoundResult) -> None:
    assert result.number


class Mine(FedAvg):
    """An algorithm."""


class Last(Selector[SelectorSettings]):
    """A selector."""

    def order(
        self, candidates: Sequence[Candidate], count: int, number: int, rng: np.random.Generator
    ) -> Sequence[str]:
        return [each.device for each in reversed(candidates)]


def split(request: PartitionRequest, rng: np.random.Generator) -> Parts:
    return tuple(np.array_split(rng.permutation(len(request.labels)), request.devices))


def own_code() -> None:
    edgefed.simulate({}, algorithm=Mine, partition=split, selection=Last)
    edgefed.simulate(partition=Partitioner(split, Cover.ALL))
    swept: edgefed.SweepResult = edgefed.sweep({"recipe": {}, "seeds": [1]}, out="out")
    edgefed.sweep("sweep.toml", seeds=(1, 2), recompute=True, on="ray")
    edgefed.sweep("sweep.toml", jobs=2, figures=["pdf"], trackers=(), progress=True)
    mean: float | None = swept["recipe"].values["accuracy"].mean
    told = (mean, swept.rows[0].case, swept.failures, swept.folder, swept.to_json()["cases"])
    assert told


def right() -> edgefed.LoadedModel:
    arrays = np.zeros((9, 4)), np.arange(9) % 3
    result: edgefed.Result = edgefed.simulate(
        {"rounds": {"count": 1}}, data={"a": arrays, "b": arrays}, callbacks=[stop, watch], seed=3
    )
    edgefed.simulate("recipe.toml", data=arrays, test=arrays, callbacks=stop, folder="runs")
    edgefed.simulate(edgefed.Recipe(seed=2))
    score: float = result.scores["accuracy"]
    path: str = str(result.save(f"{score}.safetensors"))
    model: edgefed.LoadedModel = edgefed.load_model(path)
    return result.model if score > 0.5 else model


def wrong(result: edgefed.Result) -> None:
    result.score  # type: ignore[attr-defined]  # noqa: B018
    edgefed.simulat({})  # type: ignore[attr-defined]
    edgefed.simulate(5)  # type: ignore[arg-type]
    edgefed.simulate({}, on="moon")  # type: ignore[arg-type]
    edgefed.simulate({}, algorithm=Last)  # type: ignore[arg-type]
    edgefed.simulate({}, selection="last")  # type: ignore[arg-type]
    edgefed.sweep(5)  # type: ignore[arg-type]
    edgefed.sweep({}, figures=["gif"])  # type: ignore[list-item]
    edgefed.sweep({}, on="rai")  # type: ignore[arg-type]
    edgefed.simulate({}, callbacks=len)  # type: ignore[arg-type]
    result.weights_digest = ""  # type: ignore[misc]
