"""How likely inputs are on a device, p(x|s): a small variational autoencoder of its samples.

Kingma, Welling: Auto-Encoding Variational Bayes, 2014. Inputs are numbers from 0 to 1, such as
pixels; z has a standard normal prior, and

    log p(x) >= E log (1/L) sum_l p(x|z_l) p(z_l) / q(z_l|x),   z_l ~ q(z|x)

with L = 1 for the evidence lower bound and more draws for a tighter one (Burda, Grosse,
Salakhutdinov: Importance Weighted Autoencoders, 2016).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from edgefed.errors import DataError
from edgefed.learn.base.transfers import download, place_module, upload
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.training.mixture_prediction import Floats, log_softmax
from edgefed.learn.training.trainer import Stopped
from edgefed.seeds import derive, generator
from edgefed.wire.tensors import TensorSpec

LATENT, HIDDEN = 32, (512, 256)
"""Size of z, and of the encoder's layers; the decoder's are these in reverse."""

BATCH, PATIENCE, MOST_EPOCHS = 10, 3, 100
"""Samples of a training batch; epochs without a better bound on validation samples after which
training ends; and epochs at most."""

VALIDATION = 0.1
"""Fraction of the samples that is kept for that."""

ROWS = 64
"""Samples whose draws are in memory at a time."""


class _Autoencoder(nn.Module):
    """Encoder and decoder of inputs with ``size`` numbers."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.encoder = _layers((size, *HIDDEN, 2 * LATENT))
        self.decoder = _layers((LATENT, *reversed(HIDDEN), size))

    def forward(self, inputs: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return log p(x|z) p(z) / q(z|x), (draws, n), of inputs (n, size).

        ``noise`` (draws, n, LATENT) is standard normal.
        """
        mean, log_std = self.encoder(inputs).chunk(2, dim=1)
        z = mean + log_std.exp() * noise
        logits = self.decoder(z)
        target = inputs.expand_as(logits)
        shown = -functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        # The constants of both normal densities cancel in the quotient
        prior = -0.5 * z.square()
        posterior = -0.5 * noise.square() - log_std
        log_weights: torch.Tensor = shown.sum(-1) + (prior - posterior).sum(-1)
        return log_weights


def _layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers with ReLU between them."""
    pairs = list(pairwise(sizes))
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairs, 1):
        layers.append(nn.Linear(inputs, outputs))
        if number < len(pairs):
            layers.append(nn.ReLU())
    return nn.Sequential(*layers)


def density_specs(size: int) -> dict[str, TensorSpec]:
    """Return names and shapes of the weights for inputs of so many numbers."""
    with torch.device("meta"):
        state = _Autoencoder(size).state_dict()
    return {name: TensorSpec("float32", tuple(array.shape)) for name, array in state.items()}


def can_be_fitted(inputs: Array) -> bool:
    """Whether inputs are numbers from 0 to 1."""
    real = bool(np.issubdtype(inputs.dtype, np.floating))
    return real and inputs.size > 0 and 0 <= float(inputs.min()) <= float(inputs.max()) <= 1


def fit_density(
    inputs: Array,
    seed: int,
    device: torch.device,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Tensors:
    """Return the weights that fit inputs (n, …) best, by the bound on a tenth of them.

    Args:
        inputs: numbers from 0 to 1.
        seed: of initial weights, order and draws.
        device: to train on.
        progress: called with the share done, 0 to 1.
        stop: called before each epoch; True ends the training.

    Raises:
        DataError: ``data.density``: other inputs.
        Stopped: ``stop`` returned True.
    """
    if not can_be_fitted(inputs):
        raise DataError(
            "A density is fitted to inputs from 0 to 1 only.",
            code="data.density",
            hint="leave the data without normalisation",
        )
    order = generator(seed, "density", "split").permutation(len(inputs))
    flat = upload(torch.tensor(inputs.reshape(len(inputs), -1)[order]), device, "samples")
    held = max(1, int(VALIDATION * len(flat))) if len(flat) > 1 else 0
    # A single sample is trained on and validated on
    train, validation = flat[held:], flat[:held] if held else flat
    model = _begun(flat.shape[1], seed)
    place_module(model, device)
    optimizer = torch.optim.Adam(model.parameters())
    best, since, weights = -math.inf, 0, _arrays(model)
    for epoch in range(MOST_EPOCHS):
        if stop is not None and stop():
            raise Stopped("The training of a density was cancelled.")
        _train_epoch(model, optimizer, train, derive(seed, "density", "epoch", epoch))
        # The same draws in every epoch, so that the bounds compare
        bound = float(_bounds(model, validation, 1, derive(seed, "density", "bound")).mean())
        since = 0 if bound > best else since + 1
        if since == 0:
            best, weights = bound, _arrays(model)
        if progress is not None:
            progress((epoch + 1) / MOST_EPOCHS)
        if since == PATIENCE:
            break
    return weights


def log_densities(weights: Mapping[str, Array], inputs: Array, draws: int, seed: int) -> Floats:
    """Return a bound of log p(x) of each input, (n,), by so many draws."""
    flat = torch.tensor(inputs.reshape(len(inputs), -1), dtype=torch.float32)
    model = _Autoencoder(flat.shape[1])
    model.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    return _bounds(model, flat, draws, seed)


def density_shares(
    densities: Sequence[Mapping[str, Array]], samples: Sequence[int], draws: int, seed: int
) -> Callable[[Array], Floats]:
    """Return p(s|x), proportional to p(x|s) p(s), as a function of inputs (n, …) to (n, S).

    Args:
        densities: weights of each device.
        samples: of each device, to which p(s) is proportional.
        draws: see ``log_densities``.
        seed: of the draws.
    """
    log_prior = np.log(np.asarray(samples, np.float64) / sum(samples))

    def shares(inputs: Array) -> Floats:
        log_likelihoods = [log_densities(weights, inputs, draws, seed) for weights in densities]
        probabilities: Floats = np.exp(log_softmax(np.stack(log_likelihoods, axis=1) + log_prior))
        return probabilities

    return shares


def _begun(size: int, seed: int) -> _Autoencoder:
    """Return the network with initial weights that the seed alone decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "density", "weights"))
        return _Autoencoder(size)


def _train_epoch(
    model: _Autoencoder, optimizer: torch.optim.Optimizer, train: torch.Tensor, seed: int
) -> None:
    draws = generator(seed)
    order = upload(torch.tensor(draws.permutation(len(train))), train.device, "plan")
    for start in range(0, len(train), BATCH):
        batch = train[order[start : start + BATCH]]
        loss = -model(batch, _noise(draws, 1, batch)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def _bounds(model: _Autoencoder, inputs: torch.Tensor, draws: int, seed: int) -> Floats:
    numbers = generator(seed)
    bounds = [np.empty(0)]
    for start in range(0, len(inputs), ROWS):
        rows = inputs[start : start + ROWS]
        terms = model(rows, _noise(numbers, draws, rows)).double()
        bound = torch.logsumexp(terms, dim=0) - math.log(draws)
        bounds.append(download(bound, "losses").numpy())
    return np.concatenate(bounds)


def _noise(numbers: np.random.Generator, draws: int, rows: torch.Tensor) -> torch.Tensor:
    drawn = numbers.standard_normal((draws, len(rows), LATENT), dtype=np.float32)
    return upload(torch.tensor(drawn), rows.device, "plan")


def _arrays(model: _Autoencoder) -> Tensors:
    return {
        name: download(part, "results").numpy().copy() for name, part in model.state_dict().items()
    }
