"""A character model: embedding, LSTM, and scores for the next character.

In FedMix (Yoon, Shin, Hwang, Yang, ICLR 2021) it has two layers of 256 units over 84 characters:
820,980 parameters. In FedMA (Wang et al., ICLR 2020) it has one layer over 80: 293,584. The LSTM is
that of Hochreiter and Schmidhuber, 1997, in the form and with the names of ``torch.nn.LSTM``.

In its permutation groups, a hidden unit has an entry in each gate's block of rows, and one among
the columns of each block of the weights from the layer's last output; these are therefore permuted
on both axes. The numbers of a token's embedding are units, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.base.permutation_groups import Layer, PermutationGroups, Segment, combined
from edgefed.learn.base.recurrent_state import State
from edgefed.learn.base.torch_private import peek_interpreter_stack
from edgefed.learn.networks.base import Network, NetworkSettings, Shape
from edgefed.learn.networks.layer_groups import Described, affine

EMBEDDING = "embedding"
GATES = 4


def lstm_groups(embedding: int, widths: Sequence[int]) -> PermutationGroups:
    """Return a group for the embedding, and one for each LSTM layer (``lstm_l0`` …).

    Args:
        embedding: size of a token's embedding.
        widths: units of each LSTM layer.
    """
    weight = f"{EMBEDDING}.weight"
    table = Layer(EMBEDDING, (weight,), (EMBEDDING,), (), (weight,))
    layers: list[Described] = [(table, {(weight, 1): (Segment(EMBEDDING),)})]
    before = EMBEDDING
    for number in range(len(widths)):
        layers.append(_lstm_layer(number, before))
        before = group_of(number)
    layers.append(affine("decoder", (), (Segment(before),)))
    sizes = {group_of(number): width for number, width in enumerate(widths)}
    return combined({EMBEDDING: embedding, **sizes}, layers)


def group_of(number: int) -> str:
    """Return the group of an LSTM layer's units."""
    return f"lstm_l{number}"


def _lstm_layer(number: int, before: str) -> Described:
    """Return an LSTM layer; its units are matched by their inputs from the layer before."""
    group = group_of(number)
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    weights = tuple(f"lstm.{part}_l{number}" for part in parts)
    gates = (Segment(group),) * GATES
    axes = {(weight, 0): gates for weight in weights}
    axes |= {(weights[0], 1): (Segment(before),), (weights[1], 1): (Segment(group),)}
    return Layer(group, weights, (group,), (before,), (weights[0], weights[2])), axes


class LstmSettings(NetworkSettings):
    """Settings of ``lstm``."""

    vocabulary: Annotated[int, Field(ge=0, le=2**20)] = 0
    """Number of tokens in the vocabulary; 0 for the number of classes."""

    embedding: Annotated[int, Field(ge=1, le=65536)] = 8
    """Size of a token's embedding."""

    hidden: Annotated[int, Field(ge=1, le=65536)] = 256
    """Units of each LSTM layer."""

    layers: Annotated[int, Field(ge=1, le=16)] = 2
    """Number of stacked LSTM layers."""

    widths: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=16)] = ()
    """Units of each LSTM layer, in place of ``hidden`` and ``layers``; an empty list: ``layers``
    times ``hidden``."""


class LstmLayers(nn.Module):
    """LSTM layers of any widths, batch first.

    Names, shapes and initial values of the weights are those of ``torch.nn.LSTM``, which cannot
    have layers of different widths.

    Args:
        inputs: numbers in a step of the first layer's input.
        widths: units of each layer.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        for layer, (before, after) in enumerate(pairwise((inputs, *self.widths))):
            for name, shape in _shapes(before, after).items():
                part = nn.Parameter(torch.empty(shape))
                nn.init.uniform_(part, -1 / sqrt(after), 1 / sqrt(after))
                self.register_parameter(f"{name}_l{layer}", part)

    def forward(self, values: torch.Tensor, state: State = ()) -> tuple[torch.Tensor, State]:
        """Return the last layer's outputs (batch, length, width), and the state after them.

        Torch's own kernel is quicker than the steps spelled out, but can be neither stacked over
        clients nor, on a GPU, differentiated twice; so under a transform of ``torch.func`` they
        are.

        Args:
            values: the inputs (batch, length, inputs).
            state: hidden and cell state of each layer in turn, each (batch, width); an empty one
                stands for zeros.
        """
        by_layer = [self._weights(layer) for layer in range(len(self.widths))]
        if peek_interpreter_stack() is None and len(set(self.widths)) == 1:
            return _kernel(values, by_layer, state, self.training)
        after: State = ()
        for layer, weights in enumerate(by_layer):
            own = state[2 * layer : 2 * layer + 2]
            if peek_interpreter_stack() is None:
                values, ended = _kernel(values, [weights], own, self.training)
            else:
                values, ended = _spelled(values, weights, own)
            after += ended
        return values, after

    def _weights(self, layer: int) -> list[torch.Tensor]:
        """Return a layer's weights and biases: into the gates, and from the layer's last output."""
        return [getattr(self, f"{name}_l{layer}") for name in _shapes(1, 1)]


def _shapes(before: int, after: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of a layer with ``after`` units, in torch's order."""
    gates = 4 * after
    return {
        "weight_ih": (gates, before),
        "weight_hh": (gates, after),
        "bias_ih": (gates,),
        "bias_hh": (gates,),
    }


def _kernel(
    values: torch.Tensor,
    layers: Sequence[Sequence[torch.Tensor]],
    state: State,
    training: bool,
) -> tuple[torch.Tensor, State]:
    """Return the outputs and the new state of layers of one width, by torch's kernel."""
    width = layers[0][1].shape[1]
    hidden = memory = values.new_zeros(len(layers), values.shape[0], width)
    if state:
        hidden, memory = torch.stack(state[::2]), torch.stack(state[1::2])
    weights = [tensor for layer in layers for tensor in layer]
    # bias, layers, dropout, training, both directions, batch first
    outputs, hidden, memory = torch.lstm(
        values, (hidden, memory), weights, True, len(layers), 0.0, training, False, True
    )
    return outputs, tuple(part for pair in zip(hidden, memory, strict=True) for part in pair)


def _spelled(
    values: torch.Tensor, weights: Sequence[torch.Tensor], state: State
) -> tuple[torch.Tensor, State]:
    """Return a layer's outputs and its new state, step by step."""
    inward, across, bias, more = weights
    projected = functional.linear(values, inward, bias + more)
    hidden = memory = values.new_zeros(values.shape[0], across.shape[1])
    if state:
        hidden, memory = state
    outputs = []
    for gates in projected.unbind(dim=1):
        drive = gates + functional.linear(hidden, across)
        enter, keep, new, leave = drive.chunk(4, dim=-1)
        memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * memory.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), (hidden, memory)


class CharacterLstm(nn.Module):
    """Maps token numbers (batch, length) to scores (batch, classes) of the next token."""

    def __init__(self, tokens: int, settings: LstmSettings, classes: int) -> None:
        super().__init__()
        widths = layer_widths(settings)
        self.embedding = nn.Embedding(tokens, settings.embedding)
        self.lstm = LstmLayers(settings.embedding, widths)
        self.decoder = nn.Linear(widths[-1], classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return self.forward_with_state(inputs, ())[0]

    def forward_with_state(self, inputs: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        """Return the scores and the state after the last token; see ``recurrent_state``."""
        outputs, after = self.lstm(self.embedding(inputs), state)
        return self.decoder(outputs[:, -1]), after

    def cuts(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the halves of the one place where it can be cut: behind the embedding."""
        embed = nn.Sequential(OrderedDict(embedding=self.embedding))
        return [(embed, AfterEmbedding(self.lstm, self.decoder))]


class AfterEmbedding(nn.Module):
    """The layers behind the embedding: (batch, length, numbers) to scores (batch, classes)."""

    def __init__(self, lstm: LstmLayers, decoder: nn.Linear) -> None:
        super().__init__()
        self.lstm = lstm
        self.decoder = decoder

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        scores: torch.Tensor = self.decoder(self.lstm(inputs)[0][:, -1])
        return scores


def layer_widths(settings: LstmSettings) -> tuple[int, ...]:
    """Return the units of each LSTM layer."""
    return settings.widths or (settings.hidden,) * settings.layers


def tokens(settings: LstmSettings, classes: int) -> int:
    """Return how many different tokens the model takes."""
    return settings.vocabulary or classes


def make_lstm(settings: LstmSettings, shape: Shape, classes: int) -> nn.Module:
    """Return the model for sequences of one length."""
    if len(shape) != 1 or not shape[0]:
        text = "×".join(str(size) for size in shape) or "a single number"
        raise DataError(
            f"The model lstm takes sequences of tokens, but one input is {text}.",
            code="model.input",
            hint="use inputs of shape (samples, length) with token numbers from 0",
        )
    return CharacterLstm(tokens(settings, classes), settings, classes)


def groups_of(settings: LstmSettings, shape: Shape, classes: int) -> PermutationGroups:
    """Return a group for the embedding, and one for each LSTM layer."""
    del shape, classes
    return lstm_groups(settings.embedding, layer_widths(settings))


def resized_lstm(settings: LstmSettings, widths: Mapping[str, int]) -> LstmSettings:
    """Return the settings for other widths."""
    layers = range(len(layer_widths(settings)))
    changed = {"embedding": widths[EMBEDDING], "widths": tuple(widths[group_of(n)] for n in layers)}
    return settings.model_copy(update=changed)


LSTM = Network(
    "lstm",
    "embedding and LSTM, for sequences of characters",
    LstmSettings,
    make_lstm,
    tokens,
    groups=groups_of,
    resized=resized_lstm,
)
