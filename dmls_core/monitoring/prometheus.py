"""Metrics of all jobs for Prometheus: counters and the latest comparisons, kept in the store.

The processes that count (tasks, commands) live for seconds, so counters in memory would never exceed 1: a
job's counters are one object that is changed conditionally. Each comparison is stored as one file in the text
exposition format 0.0.4; ``JobMetricsCollector`` puts the files of all jobs together. ``prometheus_client`` is
imported when metrics are written or read.
"""

from __future__ import annotations

import json
import logging
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from dmls_core.errors import ConflictError, ObjectMissingError, StoreError
from dmls_core.store import Store, all_process_failures, layout

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily, Metric

    from dmls_core.monitoring.drift import DriftResult

log = logging.getLogger(__name__)

JobCounter = Literal[
    "deployments",
    "verification_failures",
    "rollbacks",
    "repairs",
    "drift_checks",
    "drifts",
    "decay_checks",
    "decays",
]

COUNTER_HELP: dict[JobCounter, str] = {
    "deployments": "Versions that were promoted.",
    "verification_failures": "Candidates that failed verification or could not be promoted.",
    "rollbacks": "Manual rollbacks to an earlier version.",
    "repairs": "Repairs of models for which Triton did not serve the champion.",
    "drift_checks": "Comparisons with the training data.",
    "drifts": "Comparisons in which a column had drifted.",
    "decay_checks": "Comparisons of the score on delayed labels with the score in training.",
    "decays": "Comparisons in which a version had decayed.",
}

_COUNTS_FILE = "counts.json"
_SCHEMA = 1

_MAX_ATTEMPTS = 20
"""Attempts to change the counters while other processes change them too."""

MIN_BACKOFF, MAX_BACKOFF = 0.005, 0.5
"""Bounds of the random delay between attempts, in seconds: the first one doubles up to the second."""


def count(store: Store, team: str, job: str, name: JobCounter, increment: int = 1) -> None:
    """Increment one of a job's counters; if the store fails, log a warning and continue."""
    key = layout.metrics_folder(team, job) + _COUNTS_FILE
    try:
        for attempt in range(_MAX_ATTEMPTS):
            try:
                _increment(store, key, name, increment)
            except ConflictError:
                time.sleep(random.uniform(0, min(MAX_BACKOFF, MIN_BACKOFF * 2**attempt)))  # noqa: S311
                continue
            return
        log.warning("%s was not counted: other processes kept changing %s", name, key)
    except (StoreError, ValueError) as error:
        log.warning("%s was not counted: %s", name, error)


def _increment(store: Store, key: str, name: JobCounter, increment: int) -> None:
    """Increment once, or raise ConflictError if another process has changed the counters."""
    try:
        data, info = store.read(key)
    except ObjectMissingError:
        store.create(key, json.dumps({"schema": _SCHEMA, "counts": {name: increment}}).encode())
        return
    counts = json.loads(data)["counts"]
    counts[name] = counts.get(name, 0) + increment
    store.replace(key, json.dumps({"schema": _SCHEMA, "counts": counts}).encode(), info.etag)


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_MAX_COLUMNS = 100
"""Columns of a job with their own series, the most drifted columns: each series uses memory in Prometheus."""

_THREADS = 16
"""Files that are read from the store at the same time."""

_SUFFIX = ".prom"


def drift_file(team: str, job: str, source: str) -> str:
    """Return the key of the metrics of a job's latest comparison of ``source``: ``requests`` or ``data``."""
    return f"{layout.metrics_folder(team, job)}drift-{source}{_SUFFIX}"


def decay_file(team: str, job: str) -> str:
    """Return the key of the metrics of a job's latest scores on delayed labels."""
    return f"{layout.metrics_folder(team, job)}decay{_SUFFIX}"


def drift_metrics(drift: DriftResult, team: str, job: str, source: str) -> str:
    """Return the metrics of a comparison of ``requests`` or ``data`` in the exposition format."""
    labels = {"team": team, "job": job, "source": source}
    gauges = (
        ("detected", "1 if any column of the latest data has drifted.", drift.verdict == "drifted"),
        ("rows", "Rows of the latest data that was compared.", drift.rows),
        ("columns_compared", "Columns that were compared.", len(drift.compared)),
        ("columns_drifted", "Columns that have drifted.", len(drift.drifted)),
        ("timestamp_seconds", "Time of the latest comparison.", _timestamp(drift.at)),
    )
    psi = [(labels | {"role": c.role, "column": c.name}, c.psi or 0.0) for c in drift.compared[:_MAX_COLUMNS]]
    families = [gauge(f"dmls_drift_{name}", text, [(labels, value)]) for name, text, value in gauges]
    return exposition([*families, gauge("dmls_drift_psi", "Population stability index of a column.", psi)])


def decay_metrics(document: Mapping[str, Any]) -> str:
    """Return the metrics of the scores in ``decay.json`` in the exposition format."""
    job = {"team": document["team"], "job": document["job"]}
    versions = [
        (job | {"version": str(version["version"]), "metric": version["metric"]}, version)
        for version in document["versions"]
    ]
    scored = [(labels, version) for labels, version in versions if version["score"] is not None]
    return exposition(
        [
            gauge(
                "dmls_decay_detected",
                "1 if the error of a version on labeled predictions is larger than in training.",
                [(job, document["verdict"] == "decayed")],
            ),
            gauge(
                "dmls_decay_timestamp_seconds",
                "Time of the latest comparison of labels.",
                [(job, _timestamp(document["at"]))],
            ),
            gauge(
                "dmls_decay_rows",
                "Labeled predictions of a version.",
                [(labels, version["rows"]) for labels, version in versions],
            ),
            gauge(
                "dmls_decay_score",
                "Score of a version on labeled predictions.",
                [(labels, version["score"]) for labels, version in scored],
            ),
            gauge(
                "dmls_decay_trained_score",
                "Score of the same version in training.",
                [(labels, version["trained_score"]) for labels, version in scored],
            ),
        ]
    )


def process_metrics(store: Store) -> Iterator[Metric]:
    """Yield how often processes of Triton ended and were reloaded, and which do not answer now.

    The process that small models share has neither a team nor a job.

    Raises:
        StoreError: the store does not answer.
    """
    from prometheus_client.core import CounterMetricFamily

    reloads = CounterMetricFamily(
        "dmls_process_reloads", "Processes of Triton that ended and were reloaded.", labels=["team", "job"]
    )
    ended: list[tuple[Mapping[str, str], float]] = []
    for model, record in all_process_failures(store):
        team, _, job = model.partition(".") if "." in model else ("", "", "")
        reloads.add_metric([team, job], record.reloads)
        by_server = Counter[str]()
        for failure in record.failures:
            by_server[failure.server] += not failure.reloaded
        ended += [({"team": team, "job": job, "server": server}, n) for server, n in by_server.items()]
    yield reloads
    yield gauge("dmls_processes_ended", "Processes of Triton that ended and do not answer yet.", ended)


def gauge(name: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> GaugeMetricFamily:
    """Return a gauge with samples, each a pair of labels and value."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text)
    for labels, value in samples:
        family.add_sample(name, {key: encodable(label) for key, label in labels.items()}, float(value))
    return family


def encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded in UTF-8."""
    return re.sub(r"[\ud800-\udfff]", "\ufffd", text)


class _Families:
    """A collector of given metric families."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import Metric

        merged: dict[str, Metric] = {}
        for family in self._families:
            metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            metric.samples.extend(family.samples)
        yield from (family for _, family in sorted(merged.items()))


def exposition(families: Iterable[Metric]) -> str:
    """Return metric families in the text exposition format 0.0.4; families of one name are merged."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry).decode()


class JobMetricsCollector:
    """Collects the metrics of all jobs; reads only files that have changed. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._families: dict[str, tuple[str, Sequence[Metric]]] = {}
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of every job; an unreadable file is skipped with a warning.

        Raises:
            StoreError: the store does not answer.
        """
        with self._lock:
            etags = {info.key: info.etag for info in self._store.list(layout.METRICS)}
            changed = [key for key, etag in etags.items() if self._families.get(key, ("",))[0] != etag]
            with ThreadPoolExecutor(_THREADS) as threads:
                for key, families in zip(changed, threads.map(self._read, changed), strict=True):
                    self._families[key] = etags[key], families
            self._families = {key: entry for key, entry in self._families.items() if key in etags}
            every = [families for _, (_, families) in sorted(self._families.items())]
        for families in every:
            yield from families

    def _read(self, key: str) -> Sequence[Metric]:
        from prometheus_client.parser import text_string_to_metric_families

        team, job, file = key.removeprefix(layout.METRICS).split("/", 2)
        try:
            data = self._store.get(key)
            if file == _COUNTS_FILE:
                return _counter_families(data, team, job)
            return list(text_string_to_metric_families(data.decode())) if file.endswith(_SUFFIX) else []
        except (ObjectMissingError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read: %s", key, error)
            return []


def _counter_families(data: bytes, team: str, job: str) -> list[Metric]:
    """Return a job's counters from the content of ``counts.json``; a counter without an entry is 0."""
    from prometheus_client.core import CounterMetricFamily

    counts = json.loads(data)["counts"]
    families: list[Metric] = []
    for name, text in COUNTER_HELP.items():
        family = CounterMetricFamily(f"dmls_{name}", text, labels=["team", "job"])
        family.add_metric([team, job], counts.get(name, 0))
        families.append(family)
    return families


def _timestamp(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()
