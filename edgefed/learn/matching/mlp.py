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

from edgefed.learn.base.permutation_groups import Layer, PermutationGroups
from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.settings import MatchSettings


@dataclass(frozen=True)
class MatchedPerceptron:
    """The global network that several networks were matched to.

    Attributes:
        weights: float64, by the names and in the order of the given ones.
        layers: the matching of each hidden layer, by its permutation group, first layer first.
    """

    weights: Tensors
    layers: dict[str, Matched]


@dataclass(frozen=True)
class NetworkPrior:
    """The prior belief, before any network is seen.

    Attributes:
        settings: given a layer's units on a device, those of its matching.
        bias: mean of biases; that of weights is 0.
        shrinks: whether the output layer's bias is the maximum a posteriori, as atoms are.
        generator: given a layer's name, the random generator of its matching.
    """

    settings: Callable[[int], MatchSettings]
    bias: float
    shrinks: bool
    generator: Callable[[str], np.random.Generator]


def match_perceptrons(
    networks: Sequence[Tensors], groups: PermutationGroups, shares: Array, prior: NetworkPrior
) -> MatchedPerceptron:
    """Match all hidden layers; equal arguments give equal bits.

    Args:
        networks: weights of each device's network.
        groups: the permutation groups of these networks, which have hidden layers.
        shares: float64 (devices, outputs), each device's share of the samples of an output; the
            shares of an output add up to 1.
        prior: settings and means.

    Raises:
        DataError: the networks cannot be matched, for instance because of NaN.
    """
    weights: Tensors = {}
    matches: dict[str, Matched] = {}
    *hidden, output = groups.layers
    # Each hidden layer with the layer above it, from the last one down
    for layer, above in zip(reversed(hidden), reversed(groups.layers), strict=False):
        units = [_units(network, layer, above, layer is hidden[0]) for network in networks]
        incoming = units[0].shape[1] - len(networks[0][_weight(above)])
        precisions = None
        if above is output:
            precisions = [np.concatenate([np.ones(incoming), share]) for share in shares]
        else:
            atoms = matches[above.outputs[0]]
            units = [_led(own, incoming, atoms, place) for place, own in enumerate(units)]
        matched = match_layer(
            units,
            settings=prior.settings(groups.widths[layer.outputs[0]]),
            rng=prior.generator(layer.name),
            mean=_means(units[0].shape[1], incoming - 1, prior.bias),
            precisions=precisions,
        )
        matches[layer.outputs[0]] = matched
        weights |= _split(matched.atoms, layer, above, incoming)
    first = matches[hidden[-1].outputs[0]]
    weights[_bias(output)] = _output_bias(networks, output, shares, first, prior)
    ordered = {name: weights[name] for name in networks[0]}
    return MatchedPerceptron(ordered, dict(reversed(matches.items())))


def _units(network: Tensors, layer: Layer, above: Layer, is_first: bool) -> Array:
    """Return a unit's incoming weights, if they are compared, its bias and its outgoing weights."""
    parts = [network[_bias(layer)][:, None], network[_weight(above)].T]
    if is_first:
        parts.insert(0, network[_weight(layer)])
    return np.concatenate(parts, axis=1).astype(np.float64)


def _led(units: Array, incoming: int, above: Matched, device: int) -> Array:
    """Return units whose outgoing weights lead to the atoms of the layer above."""
    led = np.zeros((len(units), incoming + len(above.counts)))
    led[:, :incoming] = units[:, :incoming]
    led[:, incoming + above.assignments[device]] = units[:, incoming:]
    return led


def _means(numbers: int, bias: int, mean: float) -> Array:
    means = np.zeros(numbers)
    means[bias] = mean
    return means


def _split(atoms: Array, layer: Layer, above: Layer, incoming: int) -> Tensors:
    """Return the weights that atoms hold: the reverse of ``_units``."""
    split = {_bias(layer): atoms[:, incoming - 1], _weight(above): atoms[:, incoming:].T}
    if incoming > 1:
        split[_weight(layer)] = atoms[:, : incoming - 1]
    return split


def _output_bias(
    networks: Sequence[Tensors], output: Layer, shares: Array, matched: Matched, prior: NetworkPrior
) -> Array:
    """Return the output layer's bias, float64 (outputs,): a mean, or the maximum a posteriori."""
    biases = np.stack([network[_bias(output)] for network in networks]).astype(np.float64)
    mean: Array = (biases * shares).sum(axis=0)
    if not prior.shrinks:
        return mean
    posterior: Array = matched.sigma0 * mean + matched.sigma * prior.bias
    return posterior / (matched.sigma0 + matched.sigma)


def _weight(layer: Layer) -> str:
    return layer.compared[0]


def _bias(layer: Layer) -> str:
    return layer.compared[1]
