"""What is written of a comparison by late labels: a page, JSON, and metrics for Prometheus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dmls_core.airflow.monitor.label_judging import Judged
from dmls_core.store import Store, layout

LATEST = "latest-labels/"


def point_of(one: Judged, at: str) -> dict[str, Any]:
    """Return what the history remembers of a version.

    Args:
        one: the version.
        at: when it was compared, in ISO 8601.
    """
    kept = ("verdict", "metric", "rows", "score", "interval", "trained_score")
    found = one.decay.as_json()
    return {"at": at, "version": one.version, **{key: found[key] for key in kept}}


def write_record(store: Store, document: Mapping[str, Any], name: str) -> str:
    """Write the files of a comparison; return the page's address.

    Args:
        store: of the platform.
        document: the content of ``decay.json``.
        name: of the comparison; the same one again has the same.
    """
    from dmls_core.evaluate.decay import RULE
    from dmls_core.monitoring.pages import decay_page
    from dmls_core.monitoring.prometheus import decay_file, decay_metrics

    team, job = document["team"], document["job"]
    files = {
        "decay.html": decay_page(document, RULE).encode(errors="replace"),
        "decay.prom": decay_metrics(document).encode(),
        "decay.json": json.dumps(document, indent=1, allow_nan=False).encode(),
    }
    folder = layout.monitor_folder(team, job)
    for place in (f"labels-{name}/", LATEST):
        for file, content in files.items():
            store.put(f"{folder}{place}{file}", content)
    store.put(decay_file(team, job), files["decay.prom"])
    return f"{store.url}/{folder}labels-{name}/decay.html"
