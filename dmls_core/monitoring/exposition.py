"""What Prometheus is told of all jobs: counters and the latest comparisons, from the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from dmls_core.errors import ObjectMissingError
from dmls_core.monitoring.counts import COUNTS, count_families
from dmls_core.monitoring.families import Family, read_families
from dmls_core.store import Store, layout

log = logging.getLogger(__name__)

THREADS = 16
ENDING = ".prom"


def drift_file(team: str, job: str, source: str) -> str:
    """Key of the latest comparison of a job for Prometheus; ``source`` is what was compared."""
    return f"{layout.metrics_folder(team, job)}drift-{source}{ENDING}"


def decay_file(team: str, job: str) -> str:
    """Key of the latest comparison of a job's late labels for Prometheus."""
    return f"{layout.metrics_folder(team, job)}decay{ENDING}"


class JobMetrics:
    """Reads what changed since the last time; may be shared between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, list[Family]]] = {}
        self._lock = threading.Lock()

    def families(self) -> Iterator[Family]:
        """Yield the families of every job; one whose files cannot be read hides no other.

        Raises:
            StoreError: the store does not answer.
        """
        with self._lock:
            found = {info.key: info.etag for info in self._store.list(layout.METRICS)}
            changed = [key for key, etag in found.items() if self._known.get(key, ("",))[0] != etag]
            with ThreadPoolExecutor(THREADS) as threads:
                for key, families in zip(changed, threads.map(self._read, changed), strict=True):
                    self._known[key] = found[key], families
            self._known = {key: known for key, known in self._known.items() if key in found}
            every = [known[1] for _, known in sorted(self._known.items())]
        for families in every:
            yield from families

    def _read(self, key: str) -> list[Family]:
        team, job, file = key.removeprefix(layout.METRICS).split("/", 2)
        try:
            data = self._store.get(key)
            if file == COUNTS:
                return count_families(data, team, job)
            return list(read_families(data.decode())) if file.endswith(ENDING) else []
        except (ObjectMissingError, ValueError, KeyError, TypeError) as error:
            log.warning("%s cannot be read: %s", key, error)
            return []
