"""Counters of the table endpoint in Triton's own metrics; copied into each version's folder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

COUNT_SECONDS = 5.0
"""Interval between two updates of Triton's metrics."""


class Counts:
    """Counters in Triton's own metrics."""

    def __init__(self) -> None:
        self._counters: list[list[Any]] = []
        self._next = 0.0

    def add(self, name: str, text: str, labels: dict[str, str], of: Any, attribute: str) -> None:  # noqa: ANN401
        """Export ``attribute`` of an object as a counter."""
        with suppress(pb_utils.TritonModelException):  # a server without metrics
            family = pb_utils.MetricFamily(name=name, description=text, kind=pb_utils.MetricFamily.COUNTER)
            self._counters.append([family, family.Metric(labels=labels), of, attribute, 0])

    def update_sometimes(self) -> None:
        """Update the metrics unless that was done recently: an update takes a fraction of a millisecond."""
        if self._counters and time.monotonic() >= self._next:
            self._next = time.monotonic() + COUNT_SECONDS
            self.update()

    def update(self) -> None:
        """Add what has changed since the last update."""
        for counter in self._counters:
            _, metric, of, attribute, exported = counter
            if new := getattr(of, attribute) - exported:
                metric.increment(new)
                counter[4] += new


class Noted:
    """Notes on the rows of users' requests to a model, by kind."""

    def __init__(self, counts: Counts, model: str, kinds: Sequence[str]) -> None:
        self.unknown_category = self.out_of_range = self.empty_row = 0
        text = "Values and rows unlike those of the training."
        for kind in kinds:
            labels = {"model": model, "kind": kind}
            counts.add("dmls_notes_total", text, labels, self, kind.replace("-", "_"))

    def count(self, numbers: Mapping[str, int]) -> None:
        """Add the notes of a request."""
        for kind, number in numbers.items():
            name = kind.replace("-", "_")
            setattr(self, name, getattr(self, name) + number)
