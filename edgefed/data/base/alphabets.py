"""Alphabets that map characters to numbers: those of papers, or the one of a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.errors import DataError

AlphabetName = Literal["80", "84", "data"]

LEAF = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters of LEAF's Shakespeare, in its order."""

SPECIAL = 4
"""Numbers in the alphabet of 84 beside LEAF's characters: padding, unknown, start and end."""

OTHER = 1
"""Which of the special ones stands for any other character."""


@dataclass(frozen=True)
class Alphabet:
    """Which character has which number.

    Attributes:
        characters: number k is the k-th of them.
        size: how many numbers there are; above the characters are special ones.
        other: the number of a character that is not among them.
    """

    characters: str
    size: int
    other: int

    def encode(self, text: str) -> tuple[Indices, int]:
        """Return the numbers of a text's characters, and how many were not in the alphabet."""
        codes = np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.uint32)
        known = np.array([ord(character) for character in self.characters], np.uint32)
        order = np.argsort(known)
        places = np.searchsorted(known[order], codes).clip(max=len(known) - 1)
        numbers = order[places]
        strange = known[numbers] != codes
        return np.where(strange, self.other, numbers).astype(np.int64), int(strange.sum())


def alphabet_of(name: AlphabetName, texts: Iterable[str]) -> Alphabet:
    """Return an alphabet.

    Args:
        name: ``80``, LEAF's; ``84``, LEAF's and four special numbers; ``data``, the characters of
            the texts, sorted.
        texts: looked at for ``data`` only.

    Raises:
        DataError: ``data``, and the texts are empty.
    """
    if name == "80":
        return Alphabet(LEAF, len(LEAF), LEAF.index(" "))
    if name == "84":
        return Alphabet(LEAF, len(LEAF) + SPECIAL, len(LEAF) + OTHER)
    used = "".join(sorted(set().union(*texts)))
    if not used:
        raise DataError("The texts are empty.", code="data.empty", hint="name files with text")
    return Alphabet(used, len(used), 0)
