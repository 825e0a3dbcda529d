"""What is fuzzed: how inputs are made, and what reads them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

Reader = Callable[[bytes], object]
"""Reads one input; anything but an ``EdgeFedError`` that it raises is a crash."""


@dataclass(frozen=True)
class Target:
    """One thing that reads what others send or supply.

    Attributes:
        name: of its folder in the corpus.
        make: an input from a random generator.
        open: what reads inputs, given a folder of its own; it is closed at the end.
        share: of all inputs of its kind, relative to the others'.
        kind: ``wire`` for what comes from the network, ``file`` for what users supply.
    """

    name: str
    make: Callable[[random.Random], bytes]
    open: Callable[[Path], AbstractContextManager[Reader]]
    share: float
    kind: str
