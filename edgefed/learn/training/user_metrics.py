"""Users' own metrics: fractions whose numerators and denominators are summed over all devices.

A function of the name ``package.module:function`` is called as ``function(outputs, targets)`` with
a model's outputs (samples, classes) on all test samples of a device, float32, and their targets. It
returns two numbers, a numerator and a denominator. The metric is named as the function is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from edgefed.config.recipes.user_functions import metric_name
from edgefed.errors import DataError, EdgeFedError
from edgefed.files.user_code import FAILED, error_line, imported

HINT = "it is called as function(outputs, targets) and returns a numerator and a denominator"

MOST = 1e30
"""Largest magnitude of either number; sums over samples and devices stay finite."""

Fraction = tuple[float, float]
"""A numerator and a denominator."""


def measured(
    names: Sequence[str], outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, Fraction]:
    """Return the numerator and the denominator of each metric, by its reported name.

    The caller checks first that this program allows users' code.

    Raises:
        RecipeError: there is no such function.
        DataError: ``metric.failed`` or ``metric.output``: it fails, or returns something else.
    """
    return {metric_name(name): _fraction(name, outputs, targets) for name in names}


def find_metrics(names: Sequence[str]) -> None:
    """Check that there are functions of these names, which are imported.

    Raises:
        RecipeError: there is no such function.
    """
    for name in names:
        _function(name)


def divided(fractions: Mapping[str, Sequence[Fraction]]) -> dict[str, float]:
    """Return each metric over all of its fractions; one whose denominators sum to 0 is left out.

    The sums do not depend on the order.
    """
    quotients = {}
    for name, parts in fractions.items():
        whole = math.fsum(denominator for _, denominator in parts)
        if whole > 0:
            quotients[name] = math.fsum(numerator for numerator, _ in parts) / whole
    return quotients


@cache
def _function(name: str) -> Callable[..., Any]:
    return imported("metric", name)


def _fraction(name: str, outputs: torch.Tensor, targets: torch.Tensor) -> Fraction:
    function = _function(name)
    try:
        numerator, denominator = map(float, function(outputs, targets))
    except EdgeFedError:
        raise
    except FAILED as error:
        raise DataError(
            f"The metric {name} failed: {error_line(error)}.", code="metric.failed", hint=HINT
        ) from error
    if not (abs(numerator) <= MOST and 0 <= denominator <= MOST):  # neither is NaN
        raise DataError(
            f"The metric {name} returns {numerator:.3g} and {denominator:.3g}.",
            code="metric.output",
            hint="return finite numbers, the second at least 0",
        )
    return numerator, denominator
