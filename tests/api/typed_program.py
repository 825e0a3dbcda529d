"""A user's program, for the type check of `make types`: right calls pass, and wrong ones do not.

It is not run. An error that is expected and absent is one itself (``warn_unused_ignores``).
"""

from __future__ import annotations

import numpy as np

import edgefed


def stop(result: edgefed.RoundResult) -> bool:
    return result.metrics["loss"] > 0.1


def watch(result: edgefed.RoundResult) -> None:
    assert result.number


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
    edgefed.simulate({}, callbacks=len)  # type: ignore[arg-type]
    result.weights_digest = ""  # type: ignore[misc]
