"""Seconds from a drop to its answer, its DAG and the start of its training, on the embedded platform.

Run it with ``python tests/bench/latency.py``: it starts a platform of its own and takes it down in the end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.report import Row, run
from tests.e2e import data
from tests.services.demo_platform import dmls
from tests.services.platform_client import PlatformClient

SPEC = data.SMALL_IRIS + '[deploy]\nmode = "never"\n'


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Drop the iris spec again and again, each time as a new job, one after the other."""
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as folder:
        home = Path(folder) / ".dmls"
        started = time.monotonic()
        up = dmls(home, "up", timeout=420)
        assert up.returncode == 0, up.stderr
        print(f"platform up after {time.monotonic() - started:.1f} s")
        try:
            platform = PlatformClient(home / "platform.json")
            drops = [_drop(platform, f"job{number}") for number in range(arguments.drops)]
        finally:
            dmls(home, "down", timeout=120)
    return [
        {
            "from the drop to": event,
            "first s": drops[0][event],
            "median s": statistics.median(d[event] for d in drops),
            "slowest s": max(d[event] for d in drops),
        }
        for event in drops[0]
    ]


def _drop(platform: PlatformClient, job: str) -> dict[str, float]:
    checks = {
        "accepted": lambda: platform.status("bench", job)["state"] not in ("unanswered", "waiting"),
        "DAG visible": lambda: platform.dag_exists(f"dmls.bench.{job}"),
        "training started": lambda: any("/progress.json" in k for k in platform.keys(f"runs/bench/{job}/")),
    }
    platform.drop("bench", job, SPEC, data.iris())
    start, seen = time.monotonic(), {}
    while len(seen) < len(checks):
        for event, happened in checks.items():
            if event not in seen and happened():
                seen[event] = time.monotonic() - start
        assert time.monotonic() - start < 180, f"{job}: only {seen}, status {platform.status('bench', job)}"
        time.sleep(0.1)
    platform.wait_run("bench", job, "success")
    seen["run ended"] = time.monotonic() - start
    return {event: seen[event] for event in (*checks, "run ended")}


if __name__ == "__main__":
    run(__doc__, measure, ("--drops", 5, "number of drops"))
