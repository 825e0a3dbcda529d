"""``import edgefed`` imports nothing else, and its names lead where they say."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import edgefed


def python(code: str) -> str:
    """Return what a fresh interpreter prints."""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def test_importing_it_imports_no_other_module() -> None:
    code = "import sys; before = set(sys.modules); import edgefed; print(set(sys.modules) - before)"
    assert python(code) == "{'edgefed'}"


def test_a_name_imports_what_it_needs_and_no_torch() -> None:
    absent = "import sys, edgefed; sys.modules['torch'] = None; edgefed.Recipe(); print('here')\n"
    assert python("import sys, edgefed; edgefed.Recipe(); print('torch' in sys.modules)") == "False"
    code = "try:\n  edgefed.simulate\nexcept ModuleNotFoundError as error:\n  print(error.name)"
    assert python(absent + code) == "here\ntorch", "the test above could not fail"


@pytest.mark.parametrize("name", edgefed.__all__)
def test_each_name_is_what_its_module_defines(name: str) -> None:
    value = getattr(edgefed, name)
    assert value.__name__ == name
    assert getattr(import_module(value.__module__), name) is value
    assert name in dir(edgefed)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'edgefed' has no attribute 'simulat'"):
        edgefed.simulat  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError):
        exec("from edgefed import simulat")
