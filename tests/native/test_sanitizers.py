"""The compiled kernels pass the sanitizers for all shapes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "edgefed" / "native" / "kernels.c"
# Pointers beyond an array are seen once they are used; the check of all doubles the compile.
UNSEEN = "-fno-sanitize=pointer-overflow"
SANITIZED = ("-fsanitize=address,undefined", UNSEEN, "-fno-sanitize-recover=all")


def runtime() -> Path | None:
    """Return the address sanitizer's library of this machine's GCC; None where there is none."""
    if not shutil.which("gcc") or not sys.platform.startswith("linux"):
        return None
    command = ["gcc", "-print-file-name=libasan.so"]
    path = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


needs_sanitizers = pytest.mark.skipif(runtime() is None, reason="needs GCC with its sanitizers")


NARROW = "return wide ? 16 : 8;", 'return wide && !getenv("NARROW") ? 16 : 8;'
"""What lets one library use shorter vectors than this processor has."""
PLAIN = "#if defined(__x86_64__)", "#if 0"


def build(folder: Path, before: str, after: str) -> Path:
    """Build the kernels with the sanitizers, as setup.py builds them but for the optimisation.

    Args:
        folder: for the library.
        before: a part of the source that is replaced.
        after: what it is replaced with.
    """
    text = SOURCE.read_text()
    assert before in text
    source, path = folder / "kernels.c", folder / "kernels.so"
    source.write_text(text.replace(before, after))
    flags = ("-std=gnu11", "-O0", "-g1", "-ffp-contract=fast", "-Wno-psabi", "-shared", "-fPIC")
    command = ["gcc", *flags, *SANITIZED, f"-I{SOURCE.parent}", str(source), "-lm", "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sanitized"), *NARROW)


def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("EDGEFED_")},
        "LD_PRELOAD": str(runtime()),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",
        **more,
    }
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@needs_sanitizers
def test_random_shapes_pass_the_sanitizers(built: Path) -> None:
    done = run("-m", "tests.native.fuzz", str(built), "1")
    assert done.returncode == 0, done.stderr[-6000:]
    assert [line.split()[1] for line in done.stdout.splitlines()] == [
        "fuzz_convolution",
        "fuzz_chain",
        "fuzz_experts",
        "fuzz_merging",
        "fuzz_noise_image",
        "fuzz_pink",
    ]


@pytest.mark.slow
@needs_sanitizers
@pytest.mark.parametrize("vectors", ["avx2", "plain"])
def test_natural_noise_in_shorter_vectors_agrees_with_numpy(
    built: Path, tmp_path: Path, vectors: str
) -> None:
    path = built if vectors == "avx2" else build(tmp_path, *PLAIN)
    done = run(
        "-m", "tests.native.fuzz", str(path), "2", "fuzz_noise_image", "fuzz_pink", NARROW=""
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert len(done.stdout.splitlines()) == 2


BEYOND = """
import ctypes, sys
import numpy as np
from pathlib import Path
from edgefed.native import library, merging
library.find = lambda _: Path(sys.argv[1])
cells, values = np.zeros(40, np.uint64), np.zeros(41, np.float32)
merging.add(cells, values, 1.0, 1, 1.0)
"""


@pytest.mark.slow
@needs_sanitizers
def test_the_sanitizers_see_a_write_beyond_an_array(built: Path) -> None:
    done = run("-c", BEYOND, str(built))
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
