"""A character model: embedding, LSTM, and scores for the next character.

In FedMix (Yoon, Shin, Hwang, Yang, ICLR 2021) it has two layers of 256 units over 84 characters:
820,980 parameters. In FedMA (Wang et al., ICLR 2020) it has one layer over 80: 293,584. The LSTM is
that of Hochreiter and Schmidhuber, 1997, in the form and with the names of ``torch.nn.LSTM``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Annotated

import torch
from pydantic import Field
from torch import nn
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.networks.base import Network, NetworkSettings, Shape


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


class CharacterLstm(nn.Module):
    """Token numbers (batch, length) to scores (batch, classes) for what follows the last one."""

    def __init__(self, tokens: int, settings: LstmSettings, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, settings.embedding)
        self.lstm = nn.LSTM(settings.embedding, settings.hidden, settings.layers, batch_first=True)
        self.decoder = nn.Linear(settings.hidden, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return _scores(self.lstm, self.decoder, self.embedding(inputs))

    def cuts(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return the halves of the one place where it can be cut: behind the embedding."""
        embed = nn.Sequential(OrderedDict(embedding=self.embedding))
        return [(embed, AfterEmbedding(self.lstm, self.decoder))]


class AfterEmbedding(nn.Module):
    """What follows the embedding: (batch, length, numbers) to scores (batch, classes)."""

    def __init__(self, lstm: nn.LSTM, decoder: nn.Linear) -> None:
        super().__init__()
        self.lstm = lstm
        self.decoder = decoder

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return _scores(self.lstm, self.decoder, inputs)


def _scores(lstm: nn.LSTM, decoder: nn.Linear, values: torch.Tensor) -> torch.Tensor:
    """Return the scores of embedded tokens (batch, length, numbers).

    Torch's own kernel is quicker than the steps spelled out, but can be neither stacked over
    clients nor, on a GPU, differentiated twice; so under a transform of ``torch.func`` they are.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        values = _kernel(lstm, values)
    else:
        for layer in range(lstm.num_layers):
            values = _layer(lstm, values, layer)
    scores: torch.Tensor = decoder(values[:, -1])
    return scores


def _weights(lstm: nn.LSTM, layer: int) -> list[torch.Tensor]:
    """Return a layer's weights and biases: into the gates, and from the layer's last output."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [getattr(lstm, f"{part}_l{layer}") for part in parts]


def _kernel(lstm: nn.LSTM, values: torch.Tensor) -> torch.Tensor:
    """Return the last layer's outputs (batch, length, hidden), by torch's kernel."""
    layers = lstm.num_layers
    start = values.new_zeros(layers, len(values), lstm.hidden_size)
    weights = [tensor for layer in range(layers) for tensor in _weights(lstm, layer)]
    # bias, layers, dropout, training, both directions, batch first
    outputs: torch.Tensor = torch.lstm(
        values, (start, start), weights, True, layers, 0.0, lstm.training, False, True
    )[0]
    return outputs


def _layer(lstm: nn.LSTM, values: torch.Tensor, layer: int) -> torch.Tensor:
    """Return a layer's outputs (batch, length, hidden), from a state of zeros."""
    inward, across, bias, more = _weights(lstm, layer)
    projected = functional.linear(values, inward, bias + more)
    hidden = memory = values.new_zeros(len(values), lstm.hidden_size)
    outputs = []
    for gates in projected.unbind(dim=1):
        drive = gates + functional.linear(hidden, across)
        enter, keep, new, leave = drive.chunk(4, dim=-1)
        memory = keep.sigmoid() * memory + enter.sigmoid() * new.tanh()
        hidden = leave.sigmoid() * memory.tanh()
        outputs.append(hidden)
    return torch.stack(outputs, dim=1)


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


LSTM = Network(
    "lstm", "embedding and LSTM, for sequences of characters", LstmSettings, make_lstm, tokens
)
