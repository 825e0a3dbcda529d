"""Compute the loss of a mixture of experts and its gradient in one call of the compiled kernels."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_double, c_int64, c_void_p

from edgefed.native.chain import Layers, call
from edgefed.native.convolution import strides_of

_NUMBERS = "experts here conditions trains_experts prunes_gate detaches adds_entropy"
_ADDRESSES = (
    "numbers phi frequencies shares gate_weight gate_bias bias"
    " phi_gradient gate_weight_gradient gate_bias_gradient bias_gradient next_shares"
)


class Mixture(ctypes.Structure):
    """A mixture, as the kernels take it; addresses are of contiguous float32 arrays.

    Sizes are K experts in the fleet, M of them here. Meanings are those of the attributes of
    ``ExpertMixture``, and of the arrays that it is given.

    Attributes:
        experts: K.
        here: M.
        conditions: rows of phi; 0 with ``shares``.
        trains_experts: whether gradients of the experts' weights are written.
        prunes_gate: whether the gate learns q'.
        detaches: whether no gradient flows from the gate into the features.
        adds_entropy: whether the entropy of q' is a part of the objective.
        threshold: eta.
        skip_below: weight below which a sample gets no gradient from an expert.
        damping: of the shares before the step.
        numbers: int64 (M,), which experts are here, rising.
        phi: (conditions, K); None with ``shares``.
        frequencies: (conditions,); likewise.
        shares: (K,), the q(z|s) of every sample; None with ``phi``.
        gate_weight: (width, K).
        gate_bias: (K,).
        bias: (classes,), added to all logits; None for none.
        phi_gradient: takes the gradient; the next ones likewise.
        gate_weight_gradient: as ``phi_gradient``.
        gate_bias_gradient: as ``phi_gradient``.
        bias_gradient: as ``phi_gradient``.
        next_shares: takes the shares after the step.
    """

    _fields_ = [
        *((name, c_int64) for name in _NUMBERS.split()),
        *((name, c_double) for name in ("threshold", "skip_below", "damping")),
        *((name, c_void_p) for name in _ADDRESSES.split()),
    ]


def gradients(
    chains: Layers,
    count: int,
    batch: int,
    x: int,
    strides: tuple[int, ...],
    labels: int | None,
    soft: int | None,
    conditions: int | None,
    mixture: Mixture,
    loss: int,
) -> None:
    """Write the loss of a batch, and all gradients.

    Args:
        chains: the layers of all experts here, one expert after the other.
        count: layers of one expert.
        batch: samples; no more than there is room for.
        x: address of the inputs.
        strides: as for ``chain.gradients``.
        labels: address of int64 (batch,), or None.
        soft: address of soft targets, float32 (batch, classes), where there are no labels.
        conditions: address of int64 (batch,); None where soft targets weigh the rows of phi.
        mixture: all other arguments.
        loss: address of one float32.

    Raises:
        ValueError: a label is none of the classes, or a condition none of phi's.
        MemoryError: there was too little for the work.
    """
    inputs = (chains, count, batch, x, strides_of(strides))
    call("edgefed_expert_gradients", *inputs, labels, soft, conditions, byref(mixture), loss)
