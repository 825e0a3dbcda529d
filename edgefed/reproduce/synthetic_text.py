"""Synthetic texts, so that the smallest scale of a table about texts needs no file.

Each role uses words of a few syllables of its own. Roles therefore differ, and the next character
can be learned.
"""

from __future__ import annotations

import json
from pathlib import Path

from edgefed.files.writing import write_atomic
from edgefed.seeds import generator

ROLES = 8
WORDS = 60
VOWELS, CONSONANTS = "aeiou", "bdfgklmnprst"


def made_texts(path: Path) -> Path:
    """Write the same texts as every time, unless they are there, and return their path.

    Raises:
        StorageError: the disk does not take them.
    """
    text = "".join(f"{json.dumps(_role(number))}\n" for number in range(ROLES)).encode()
    if not path.is_file() or path.read_bytes() != text:
        write_atomic(path, text)
    return path


def _role(number: int) -> dict[str, str]:
    rng = generator(0, "reproduce", "made", number)
    syllables = [str(rng.choice(list(CONSONANTS))) + str(rng.choice(list(VOWELS))) for _ in "four"]
    words = ["".join(rng.choice(syllables, size=rng.integers(1, 4))) for _ in range(WORDS)]
    return {"role": f"made/{number}", "text": " ".join(words)}
