"""Further initial weights for a model of which one set is known.

Algorithms that train several models of one network start them from different weights. The
coordinator's half gets one initial set, which the network's own initialisers drew.
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Tensors
from edgefed.seeds import generator


def redrawn(weights: Tensors, seed: int, *purpose: str | int) -> Tensors:
    """Return weights whose tensors hold the values of ``weights`` in a random order.

    Each tensor keeps its distribution, with mean and standard deviation, and a constant one, such
    as a normalisation layer's, stays as it is. The order depends on the seed, the purpose and the
    tensor's name, and on nothing else.

    Args:
        weights: initial weights, buffers among them; not changed.
        seed: of the draws.
        purpose: the use of the weights, such as ``"cluster", 2``; another purpose gives other
            weights.
    """
    return {
        name: generator(seed, *purpose, name).permutation(np.ravel(array)).reshape(array.shape)
        for name, array in weights.items()
    }
