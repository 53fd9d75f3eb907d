"""Training on two nodes: processes that each hold half of the rows, some of which are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import psutil

ROWS = 30_000

SPEC = """model = "xgboost-classifier"
n_trials = 4
[columns]
target = "y"
[n_estimators]
min = 10
max = 60
[max_depth]
min = 3
max = 6
[learning_rate]
value = 0.2
[resources]
nodes = {nodes}
"""


def write_data(path: Path) -> None:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(ROWS, 20)).astype(np.float32)
    target = values[:, :3].sum(axis=1) + draw.normal(size=ROWS)
    kind = draw.choice(["red", "green", "blue"], ROWS)
    frame = pl.DataFrame({f"x{at}": values[:, at] for at in range(20)})
    answer = np.where(target + (kind == "red") > 0, "a", "b")
    frame = frame.with_columns(kind=pl.Series(kind), y=pl.Series(answer))
    frame.write_parquet(path)


def command(folder: Path, nodes: int) -> list[str]:
    spec = folder / f"spec-{nodes}.toml"
    spec.write_text(SPEC.format(nodes=nodes))
    out, data = str(folder / f"out-{nodes}"), str(folder / "data.parquet")
    return [sys.executable, "-m", "dmls_core.cli", "train", str(spec), data, "--out", out]


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    titles = ("spawn_main", "dask worker")  # the second if setproctitle is installed
    return [child for child in children if any(title in " ".join(child.cmdline()) for title in titles)]


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_nodes_train_the_model_of_one_machine_and_recover_from_kills(tmp_path: Path) -> None:
    write_data(tmp_path / "data.parquet")
    trials = tmp_path / "out-2" / "trials"
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(tmp_path, 2), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    # A killed trainer leaves no workers.
    first = start()
    wait_until(lambda: list(trials.glob("**/*.json")), first)
    workers = workers_of(first)
    first.kill()
    first.communicate()
    assert len(workers) == 2
    assert not psutil.wait_procs(workers, timeout=60)[1]
    kept = {path: path.read_bytes() for path in trials.glob("**/*.json")}
    assert 1 <= len(kept) < 4

    # A killed worker is replaced, and the fit that lost it starts again.
    second = start()
    wait_until(lambda: len(list(trials.glob("**/*.json"))) > len(kept), second)
    workers_of(second)[0].kill()
    _, errors = second.communicate(timeout=300)

    assert second.returncode == 0, errors
    assert "1 of 2 nodes lost: the fit starts again" in errors
    result = json.loads((tmp_path / "out-2" / "result.json").read_text())
    assert (result["n_trials"], result["data"]["train_rows"]) == (4, ROWS * 4 // 5)
    assert {path: path.read_bytes() for path in kept} == kept

    done = subprocess.run(command(tmp_path, 1), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    alone = json.loads((tmp_path / "out-1" / "result.json").read_text())
    error = np.sqrt(alone["score"] * (1 - alone["score"]) / result["data"]["holdout_rows"])
    assert abs(result["score"] - alone["score"]) < error


def test_nodes_of_a_cluster_that_is_there(tmp_path: Path) -> None:
    from distributed import LocalCluster
    from distributed.security import Security

    write_data(tmp_path / "data.parquet")
    security = Security.temporary()
    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, security=security
    ) as cluster:
        # Dask takes the text of a certificate as well as its path.
        tls = security.get_tls_config_for_role("client")
        names = {"ca_file": "CA_FILE", "cert": "CLIENT__CERT", "key": "CLIENT__KEY"}
        variables = {f"DASK_DISTRIBUTED__COMM__TLS__{names[key]}": tls[key] for key in names}
        variables["DMLS_DASK_SCHEDULER"] = cluster.scheduler_address
        run = command(tmp_path, 2)
        done = subprocess.run(
            run, env=os.environ | variables, capture_output=True, text=True, timeout=300, check=False
        )

    assert done.returncode == 0, done.stderr
    assert f"training on 2 nodes of {cluster.scheduler_address}" in done.stderr
    assert json.loads((tmp_path / "out-2" / "result.json").read_text())["score"] > 0.8
