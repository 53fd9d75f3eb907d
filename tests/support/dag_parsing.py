"""Parse a folder of DAG files: in this process, or in one of its own that opens no socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def parse_dags(folder: str) -> dict[str, Any]:
    """Return the ids of the DAGs, the errors, and the hashes by which Airflow sees a new version."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization

    bag = DagBag(folder, bundle_path=folder, bundle_name="dmls")
    hashes = {name: SerializedDagModel.hash(DagSerialization.to_dict(dag)) for name, dag in bag.dags.items()}
    return {"dags": sorted(hashes), "errors": bag.import_errors, "hashes": hashes}


def parse_dags_offline(folder: str) -> dict[str, Any]:
    """Parse in a new process, with another hash seed, that raises where a socket is opened."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    done = subprocess.run(
        [sys.executable, "-m", __name__, folder],
        env=os.environ | {"PYTHONHASHSEED": seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    parsed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return parsed


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("the parse opened a socket")


if __name__ == "__main__":
    import airflow  # noqa: F401 - Airflow itself may look at the machine's name when it starts

    for name in ("socket", "create_connection", "getaddrinfo"):
        setattr(socket, name, _refuse)
    print(json.dumps(parse_dags(sys.argv[1])))
