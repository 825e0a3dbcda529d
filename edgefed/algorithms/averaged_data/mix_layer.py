"""Where a model mixes averaged data: at its input, or after some of its layers.

Yoon, Shin, Hwang, Yang: FedMix, ICLR 2021, appendix E: the encoder is the layers up to the split,
the decoder the others; averages are of hidden states of the round's encoder. An embedding is linear
in one-hot tokens, so averages of one-hot tokens fit every embedding and are exchanged once.
"""

from __future__ import annotations

from edgefed.errors import DataError, RecipeError
from edgefed.learn.base.types import Objective
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.manifold_mixing import ManifoldMixing


def check_split(algorithm: str, model: Model, split: int) -> None:
    """Check that a run's model can be mixed there, before any device is asked.

    Args:
        algorithm: its name, for the message.
        model: the run's.
        split: layers in front of the split; 0 mixes inputs.

    Raises:
        RecipeError: ``algorithm.tokens`` or ``algorithm.split``.
    """
    if split == 0 and model.vocabulary is not None:
        raise RecipeError(
            f"{algorithm} mixes inputs, but this model's inputs are tokens, which have no mean.",
            code="algorithm.tokens",
            hint="mix after the embedding: set split = 1 in [algorithm]",
        )
    if split == 0:
        return
    try:
        encoder, _ = model.halves(split)
    except DataError as error:
        raise RecipeError(error.message, code="algorithm.split", hint=error.hint) from error
    if model.vocabulary is not None and len(encoder.names) != 1:
        raise RecipeError(
            f"Averaged tokens cannot be mixed after {split} layers, only after the embedding.",
            code="algorithm.split",
            hint="set split = 1 in [algorithm]",
        )


def entry_shape(model: Model, split: int, *, raw: bool) -> tuple[int, ...]:
    """Return the shape of an entry of averaged data: an input's, a hidden state's, one-hot tokens'.

    Args:
        model: the run's.
        split: layers in front of the split.
        raw: whether entries are raw samples, so that tokens stay tokens.
    """
    if model.vocabulary is not None:
        return model.shape if raw else (*model.shape, model.vocabulary)
    return model.shape if split == 0 else model.halves(split)[1].shape


def averages_hidden(model: Model, split: int) -> bool:
    """Return whether averages are of hidden states, and so of one round's weights."""
    return split > 0 and model.vocabulary is None


def behind(objective: Objective, split: int, embedding_grad: bool, usual: Objective) -> Objective:
    """Return a mixing objective at its place in the model.

    Args:
        objective: the mixing objective.
        split: layers in front of it.
        embedding_grad: whether it trains those too.
        usual: the second objective, for all layers, where there are layers in front.
    """
    return ManifoldMixing(objective, split, embedding_grad, usual) if split else objective
