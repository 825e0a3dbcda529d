"""Match the hidden layers of multilayer perceptrons, as PFNM does.

Yurochkin, Agarwal, Ghosh, Greenewald, Hoang, Khazaeni: Bayesian Nonparametric Federated Learning of
Neural Networks, ICML 2019, section 3.2. Layers are matched from the last hidden one down. A unit is
compared by its bias and its outgoing weights, in the first hidden layer also by its incoming ones.
The outgoing weights lead to the atoms of the layer above, which is matched by then; to an atom that
the device does not hold they are 0. The outgoing weights of the last hidden layer are as precise as
the device's share of the samples of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.learn.matching import Matched, match_layer
from edgefed.learn.matching_settings import MatchSettings
from edgefed.learn.permutation_groups import Layer, PermutationGroups
from edgefed.learn.types import Array, Tensors


@dataclass(frozen=True)
class MatchedPerceptron:
    """The global network that matching makes of several.

    Attributes:
        weights: float64, by the names and in the order of the given ones.
        layers: the matching of each hidden layer, by its permutation group, first layer first.
    """

    weights: Tensors
    layers: dict[str, Matched]


@dataclass(frozen=True)
class Prior:
    """What is believed before any network is seen.

    Attributes:
        settings: given a layer's units on a device, those of its matching.
        bias: mean of biases; that of weights is 0.
        generator: given a layer's name, what its matching draws from.
    """

    settings: Callable[[int], MatchSettings]
    bias: float
    generator: Callable[[str], np.random.Generator]


def match_perceptrons(
    networks: Sequence[Tensors], groups: PermutationGroups, shares: Array, prior: Prior
) -> MatchedPerceptron:
    """Match all hidden layers; equal arguments give equal bits.

    Args:
        networks: weights of each device's network.
        groups: the permutation groups of these networks, which have hidden layers.
        shares: float64 (devices, outputs), each device's share of what is known of an output; the
            shares of an output add up to 1.
        prior: settings and means.

    Raises:
        DataError: the networks cannot be matched, for instance because of NaN.
    """
    weights: Tensors = {}
    found: dict[str, Matched] = {}
    *hidden, output = groups.layers
    above, previous = output, None
    for layer in reversed(hidden):
        is_first = layer is hidden[0]
        units = [_units(each, layer, above, is_first) for each in networks]
        incoming = units[0].shape[1] - networks[0][_weight(above)].shape[0]
        if previous is not None:
            units = [
                _scattered(each, incoming, previous, device) for device, each in enumerate(units)
            ]
        matched = match_layer(
            units,
            settings=prior.settings(groups.widths[layer.outputs[0]]),
            rng=prior.generator(layer.name),
            mean=_means(units[0].shape[1], incoming - 1, prior.bias),
            precisions=None if previous is not None else _precisions(incoming, shares),
        )
        weights |= _split(matched.atoms, layer, above, incoming)
        if previous is None:
            biases = np.stack([each[_bias(output)] for each in networks]).astype(np.float64)
            weights[_bias(output)] = _output_bias(biases, shares, matched, prior)
        found[layer.outputs[0]] = previous = matched
        above = layer
    ordered = {name: weights[name] for name in networks[0]}
    return MatchedPerceptron(ordered, dict(reversed(found.items())))


def _units(network: Tensors, layer: Layer, above: Layer, is_first: bool) -> Array:
    """Return a unit's incoming weights, if they are compared, its bias and its outgoing weights."""
    parts = [network[_bias(layer)][:, None], network[_weight(above)].T]
    if is_first:
        parts.insert(0, network[_weight(layer)])
    return np.concatenate(parts, axis=1).astype(np.float64)


def _scattered(units: Array, incoming: int, above: Matched, device: int) -> Array:
    """Return units whose outgoing weights lead to the atoms of the layer above."""
    wide = np.zeros((len(units), incoming + len(above.counts)))
    wide[:, :incoming] = units[:, :incoming]
    wide[:, incoming + above.assignments[device]] = units[:, incoming:]
    return wide


def _means(numbers: int, bias: int, mean: float) -> Array:
    means = np.zeros(numbers)
    means[bias] = mean
    return means


def _precisions(incoming: int, shares: Array) -> list[Array]:
    return [np.concatenate([np.ones(incoming), each]) for each in shares]


def _split(atoms: Array, layer: Layer, above: Layer, incoming: int) -> Tensors:
    """Return the weights that atoms hold: the reverse of ``_units``."""
    split = {_bias(layer): atoms[:, incoming - 1], _weight(above): atoms[:, incoming:].T}
    if incoming > 1:
        split[_weight(layer)] = atoms[:, : incoming - 1]
    return split


def _output_bias(biases: Array, shares: Array, matched: Matched, prior: Prior) -> Array:
    """Return the output layer's bias, float64 (outputs,)."""
    mean: Array = (biases * shares).sum(axis=0)
    if prior.settings(1).average != "map":
        return mean
    precision, own = 1.0 / matched.sigma, 1.0 / matched.sigma0
    posterior: Array = (mean * precision + prior.bias * own) / (precision + own)
    return posterior


def _weight(layer: Layer) -> str:
    return layer.compared[0]


def _bias(layer: Layer) -> str:
    return layer.compared[1]
