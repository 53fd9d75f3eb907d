"""Training on two nodes: processes that each hold half of the rows, some of which are killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import psutil
import pytest

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.models.cluster import Cluster
from dmls_core.models.engines import all_reduce
from dmls_core.store import open_store
from dmls_core.training import nodes
from dmls_core.training.node_trainers import ClusterAddress, write_cluster
from tests.services.seaweed import S3Server

if TYPE_CHECKING:
    from distributed import Client, Future

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


@pytest.mark.nightly(
    "`test_nodes_that_are_trainers_join_their_leader_and_recover_from_a_kill` does it with LightGBM"
)
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


def node_worker(node: subprocess.Popen[str]) -> psutil.Process | None:
    return next(iter(workers_of(node)), None) if node.poll() is None else None


def test_nodes_that_are_trainers_join_their_leader_and_recover_from_a_kill(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path / "data.parquet")
    spec, data = tmp_path / "spec.toml", str(tmp_path / "data.parquet")
    lightgbm = SPEC.replace("xgboost", "lightgbm").replace("[max_depth]", "[max_bin]")
    spec.write_text(lightgbm.replace("min = 3\nmax = 6", "values = [63, 255]").format(nodes=2))
    bucket, client = s3_server.bucket(), s3_server.client()
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    out = f"s3://{bucket}/run"
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    store = open_store(out)
    # What an attempt that was killed has left.
    write_cluster(store, ClusterAddress("job.a.b.1", "tls://127.0.0.1:1", "certificate", "old-key"))
    environment = os.environ | {"TMPDIR": str(tmp_path), "DMLS_NODE_HOST": "127.0.0.1"}
    environment["DMLS_NODE_TRAINERS"] = "job.a.b.2"

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "dmls_core.cli", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    nodes = [start("node", out), start("node", out)]
    leader = start("train", str(spec), data, "--out", out)
    try:
        wait_until(lambda: list(store.list("trials/")), leader)
        kept = client.list_object_versions(Bucket=bucket, Prefix="run/cluster.json")
        assert kept.keys().isdisjoint({"Versions", "DeleteMarkers"})
        killed = node_worker(nodes[0])
        assert killed is not None
        killed.kill()
        _, errors = leader.communicate(timeout=300)
        assert leader.returncode == 0, errors
        assert "training on 2 nodes of 2 trainers" in errors
        assert "1 of 2 nodes lost: the fit starts again" in errors
        assert "nodes are left" not in errors
        assert [node.wait(60) for node in nodes] == [0, 0]
    finally:
        for process in (leader, *nodes):
            process.kill()
            process.communicate()

    result = json.loads(store.get("result.json"))
    assert result["n_trials"] == 4
    rows = result["data"]["holdout_rows"]
    alone = score_alone(spec, data, tmp_path)
    assert abs(result["score"] - alone) < np.sqrt(alone * (1 - alone) / rows)


def score_alone(spec: Path, data: str, folder: Path) -> float:
    """Return the score of the same search by one process."""
    spec.write_text(spec.read_text().replace("nodes = 2", "nodes = 1"))
    out = folder / "alone"
    command = [sys.executable, "-m", "dmls_core.cli", "train", str(spec), data, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    score: float = json.loads((out / "result.json").read_text())["score"]
    return score


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers whose calls may end in a moment after another one has failed."""
    from distributed import Client, LocalCluster
    from distributed.security import Security

    options = {"host": "127.0.0.1", "dashboard_address": None, "security": Security.temporary()}
    with (
        pytest.MonkeyPatch.context() as patch,
        LocalCluster(n_workers=2, threads_per_worker=1, **options) as own,
        Client(own) as client,
    ):
        patch.setattr("dmls_core.models.cluster.GRACE_SECONDS", 0.2)
        yield client


def test_a_call_that_waits_for_a_failed_one_for_ever_ends_with_its_worker(client: Client) -> None:
    def wait_or_fail(worker: int) -> None:
        if worker:
            time.sleep(600)
        raise DataError(ValidationIssue("cannot be fitted"))

    cluster = Cluster(client, 2, "127.0.0.1", lambda _: None)
    before = cluster.workers
    with pytest.raises(DataError, match="cannot be fitted"):
        cluster.retried(lambda: cluster.results([cluster.submit(at, wait_or_fail, at) for at in range(2)]))
    assert cluster.generation == 2
    assert before[0] in cluster.workers
    assert before[1] not in cluster.workers
    assert cluster.results([cluster.submit(at, abs, -at) for at in range(2)]) == [0, 1]


def test_pages_of_libraries_do_not_count_against_the_memory_of_a_node() -> None:
    def loaded() -> int:
        import sklearn.ensemble  # noqa: F401

        return os.getpid()

    # With the libraries, a worker needs about 155 MB and 95 MB of pages.
    with ExitStack() as stack:
        client = nodes._start(1, 200 << 20, stack)
        first = client.submit(loaded, pure=False).result()
        time.sleep(0.5)  # Dask looks ten times a second
        assert client.submit(loaded, pure=False).result() == first


def test_lightgbm_connects_by_other_ports_if_another_process_has_taken_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = all_reduce.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address, ports = taken.getsockname()[1], []

        def submitted(worker: int, function: Callable[..., object], *arguments: object) -> Future:
            if function is free:
                ports.append(worker)
                if len(ports) == 2:  # of the second worker, for the first try
                    return submit(worker, int, address)
            return submit(worker, function, *arguments)

        notes: list[str] = []
        cluster = Cluster(client, 2, "127.0.0.1", notes.append)
        submit = cluster.submit
        monkeypatch.setattr(cluster, "submit", submitted)

        def attempt() -> list[int]:
            with all_reduce.all_reduce(cluster, "lightgbm") as members:
                sizes = [
                    submit(at, lambda member: member.call(lambda: member.size), members[at])
                    for at in range(2)
                ]
                return cluster.results(sizes)

        assert cluster.retried(attempt) == [2, 2]
    assert notes == [f"another process has taken port {address} of a node: the fit starts again"]


LEADER = """import sys, time
from dmls_core.training import nodes
from dmls_core.training.node_trainers import lead_nodes
with lead_nodes(1, sys.argv[1], "job.a.b.1", lambda line: None):
    print("joined", flush=True)
    time.sleep(600)
"""


def test_a_node_ends_with_a_leader_that_is_killed(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    environment = os.environ | {"TMPDIR": str(tmp_path), "DMLS_NODE_HOST": "127.0.0.1"}
    environment["DMLS_NODE_TRAINERS"] = "job.a.b.1"
    node = subprocess.Popen([sys.executable, "-m", "dmls_core.cli", "node", out], env=environment)
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, out], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "joined\n"
        assert list((tmp_path / "out").iterdir()) == []  # the key is erased
        children = psutil.Process(node.pid).children(recursive=True)
        listening = {
            found.laddr.ip
            for process in (psutil.Process(leader.pid), psutil.Process(node.pid), *children)
            for found in process.net_connections("inet")
            if found.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        leader.kill()
        assert node.wait(120) == 0
        assert not psutil.wait_procs(children, timeout=30)[1]
    finally:
        for process in (leader, node):
            process.kill()
            process.communicate()


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
