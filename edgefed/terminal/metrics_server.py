"""Metrics of a service over HTTP, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from edgefed.errors import UsageError

MetricsAddress = Annotated[
    str,
    typer.Option(
        metavar="[HOST:]PORT", help="Serve metrics for Prometheus; by default on 127.0.0.1."
    ),
]

Values = Mapping[str, float | Mapping[str, float] | None]
"""Values by metric; of one with a label, values by that label. None is no value."""


@dataclass(frozen=True)
class Metric:
    """A metric.

    Attributes:
        name: with its unit, by the conventions of Prometheus.
        meaning: a sentence.
        kind: a counter only grows while the process runs.
        label: name of its label; empty for none.
    """

    name: str
    meaning: str
    kind: Literal["gauge", "counter"] = "gauge"
    label: str = ""


LOOP_AGE = Metric(
    "edgefed_main_loop_age_seconds", "Seconds since the last turn of the main loop of the service."
)
INFO = Metric(
    "edgefed_version_info", "Always 1; the label has the version of EdgeFed.", "gauge", "version"
)


def serve_metrics(address: str, metrics: Sequence[Metric], read: Callable[[], Values]) -> None:
    """Serve metrics in a thread until the process ends; without an address, do nothing.

    Args:
        address: ``[HOST:]PORT``; empty for none.
        metrics: all that may have values.
        read: returns the values now; called in the server's threads.

    Raises:
        UsageError: ``metrics.missing``: prometheus-client is not installed; ``metrics.address``:
            the address cannot be used.
    """
    if not address:
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise UsageError(
            "--metrics needs the package prometheus-client.",
            code="metrics.missing",
            hint="pip install 'edgefed[metrics]'",
        ) from error
    registry = CollectorRegistry()
    registry.register(_Collector(metrics, read))
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host.strip("[]") or "127.0.0.1", registry)
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(
            f"Metrics cannot be served at {address}: {error}.",
            code="metrics.address",
            hint="such as --metrics 9464, with a port that no other program uses",
        ) from error


class _Collector:
    """Reads the values for each request."""

    def __init__(self, metrics: Sequence[Metric], read: Callable[[], Values]) -> None:
        self._metrics, self._read = metrics, read

    def describe(self) -> list[Any]:
        """Return nothing: names are not needed before the first request."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield a family of samples for each metric that has a value."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        values = self._read()
        for metric in self._metrics:
            value = values.get(metric.name)
            if value is None:
                continue
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(
                metric.name, metric.meaning, labels=[metric.label] if metric.label else []
            )
            if isinstance(value, Mapping):
                for word, number in value.items():
                    family.add_metric([word], number)
            else:
                family.add_metric([], value)
            yield family
