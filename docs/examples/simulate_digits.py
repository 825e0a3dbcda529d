"""Train a small network on handwritten digits over eight devices, and recognise a digit.

Run it with ``python docs/examples/simulate_digits.py``.
"""

from __future__ import annotations

import edgefed
from edgefed.data.sets.digits import DigitsOptions, load_digits

RECIPE = {
    "model": {"name": "cnn"},
    "data": {"name": "digits", "partition": "dirichlet", "alpha": 0.5},
    "training": {"learning_rate": 0.1, "epochs": 2},
    "rounds": {"count": 12},
    "simulation": {"devices": 8},
}


def show(result: edgefed.RoundResult) -> None:
    """Print a line for each round."""
    print(f"round {result.number:2}  accuracy {result.metrics['accuracy']:.3f}")


def main() -> None:
    """Train, then predict."""
    result = edgefed.simulate(RECIPE, seed=1, callbacks=show)
    print(result)
    test = load_digits(DigitsOptions(), None).test
    found = result.model.predict(test.inputs[:10])
    print("predicted", *found.labels)
    print("labels   ", *test.targets[:10])


if __name__ == "__main__":
    main()
