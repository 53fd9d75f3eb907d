"""From a training to drift: the baseline that it leaves, ``dmls drift``, and a look of the monitor."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from dmls_core.airflow.notifiers import notify
from dmls_core.airflow.sources import connections
from dmls_core.cli.main import main
from dmls_core.intake import read_status, write_status
from dmls_core.models import load_spec
from dmls_core.monitoring.monitor_run import MonitorRun, run_monitor
from dmls_core.store import Registry, Store, layout, open_store
from dmls_core.tracking.registry import promote
from dmls_core.tracking.runs import log_run
from dmls_core.training import TrainRequest, train
from tests.support.drifting import answers_of, stream
from tests.support.webhook import webhook

SPEC = """model = "{model}"
n_trials = 1

[columns]
target = "y"

[n_estimators]
value = 10

[data]
path = "{{date}}.csv"
labels = "labels/{{date}}.csv"

[drift]
action = "retrain"

[owner]
notify = ["webhook:drift"]
"""
ROWS = 600


def train_job(store: Store, folder: Path, name: str, model: str, data: pl.DataFrame) -> dict:
    """Accept a job and train it as the platform does."""
    folder.mkdir()
    spec = load_spec(SPEC.format(model=model).encode())
    data.write_csv(folder / "data.csv")
    info = store.upload(f"incoming/lab/{name}/data.csv", folder / "data.csv")
    record = Registry(store).accept(spec, "lab", name, [info], datetime.now(UTC))
    (folder / "spec.json").write_bytes(spec.canonical())
    out = f"{store.url}/{layout.run_folder('lab', name, record.run_key)}"
    result = train(
        TrainRequest(
            spec=str(folder / "spec.json"),
            data=(str(folder / "data.csv"),),
            out=out,
            team="lab",
            name=name,
            run_key=record.run_key,
        ),
        progress=lambda _: None,
    )
    write_status(store, "lab", name, "deployed", "deployed as version 1", run_key=record.run_key)
    return result | {"out": out}


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    return open_store(str(tmp_path_factory.mktemp("root")))


@pytest.fixture(scope="module")
def jobs(store, mlflow_uri, tmp_path_factory) -> dict[str, dict]:
    """A classifier and a regressor, both champions; and a job that has none."""
    folder = tmp_path_factory.mktemp("jobs")
    data = stream(ROWS, 0)
    numbers = data.with_columns(y=pl.col("a") * 2 + pl.col("b"))
    done = {
        "classes": train_job(store, folder / "c", "classes", "random-forest-classifier", data),
        "numbers": train_job(store, folder / "n", "numbers", "xgboost-regressor", numbers),
    }
    for name, result in done.items():
        run = log_run(mlflow_uri, result, Path(result["out"]), spec={})
        promote(mlflow_uri, f"lab.{name}", run.model_version, triton_version=1)
    Registry(store).accept(
        load_spec(SPEC.format(model="xgboost-regressor").encode()), "lab", "aaa", [], datetime.now(UTC)
    )
    return done


def test_training_keeps_a_baseline_with_the_model(jobs):
    for name, result in jobs.items():
        baseline = json.loads((Path(result["out"]) / "model/baseline.json").read_text())
        assert "model/baseline.json" in {artifact["name"] for artifact in result["artifacts"]}
        columns = {(column["role"], column["name"]): column for column in baseline["columns"]}
        assert set(columns) == {
            *(("feature", feature) for feature in "abk"),
            ("target", "y"),
            ("prediction", "prediction"),
        }
        assert baseline["rows"] == ROWS
        assert sum(columns["prediction", "prediction"]["counts"]) == result["data"]["holdout_rows"]
        kind = "category" if name == "classes" else "number"
        assert columns["target", "y"]["kind"] == columns["prediction", "prediction"]["kind"] == kind


@pytest.fixture
def drift(store, jobs, mlflow_uri, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("DMLS_ROOT", store.url)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / ".dmls"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(job: str, data: pl.DataFrame, *options: str) -> tuple[int, str, str]:
        data.write_csv("new.csv")
        monkeypatch.setattr("sys.argv", ["dmls", "drift", job, "new.csv", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


@pytest.mark.parametrize("job", ["lab/classes", "lab/numbers"])
def test_the_exit_code_is_1_with_drift_and_0_without(drift, job, tmp_path):
    code, out, err = drift(job, stream(400, 1).drop("y"))
    assert (code, err) == (0, "")
    assert "no drift in 400 rows and 4 columns" in out
    assert (tmp_path / "drift.html").is_file()

    code, out, _ = drift(job, stream(400, 2, shift=1.5).drop("y"), "--json", "--out", "other.html")
    assert code == 1
    found = json.loads(out)
    assert found["verdict"] == "drifted"
    assert {"b", "prediction"} <= {c["name"] for c in found["columns"] if c["verdict"] == "drifted"}
    assert {c["name"]: c["verdict"] for c in found["columns"]}["y"] == "absent"
    assert (tmp_path / "other.html").is_file()


def test_the_target_is_compared_if_it_is_known(drift):
    code, out, _ = drift("lab/classes", stream(400, 3).with_columns(y=pl.lit("yes")), "--json")
    verdicts = {(c["role"], c["name"]): c["verdict"] for c in json.loads(out)["columns"]}
    assert code == 1
    assert verdicts["target", "y"] == "drifted"
    assert verdicts["feature", "a"] == verdicts["feature", "b"] == "steady"


def test_too_few_rows_are_no_drift(drift):
    code, out, _ = drift("lab/classes", stream(20, 3, shift=9))
    assert code == 0
    assert "too few rows to compare: 20 with 600" in out


def test_wrong_input_prints_an_error_and_no_verdict(drift):
    code, out, err = drift("lab/classes", pl.DataFrame({"q": [1, 2]}), "--json")
    assert (code, out) == (1, "")
    assert "contains no feature of the model" in err
    code, out, err = drift("lab/nothing", stream(20, 3))
    assert (code, out) == (1, "")
    assert "there is no job lab/nothing" in err
    code, _, err = drift("lab/aaa", stream(20, 3))
    assert code == 1
    assert "no champion" in err


def requests_of(store: Store, job: str, data: pl.DataFrame, name: str, folder: Path) -> None:
    data.with_columns(request_id=pl.lit("r"), version=1).write_parquet(folder / name)
    store.upload(f"{layout.inference_folder('lab', job)}dt=2026-01-01/{name}", folder / name)


def deep_parquet() -> bytes:
    """A Parquet file of 100,000 groups, each in the one before: the stack of who reads it overflows."""
    # Thrift's compact form of a schema: a root, groups with one child each, a column of integers.
    groups = 100_000 * b"\x35\0\x18\x01a\x15\x02\0"
    schema = b"\x48\x01m\x15\x02\0" + groups + b"\x15\2\x25\0\x18\1x\0"
    footer = b"\x15\x02\x19\xfc\xa2\x8d\x06" + schema + b"\x16\x02\x19\x0c\0"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def settle(store: Store, run: MonitorRun) -> None:
    """Note up to where was compared, as the monitor's last task does."""
    for key, state in run.states.items():
        store.put(key, json.dumps(state).encode())


def partition_of(store: Store, job: str, day: str, data: pl.DataFrame) -> None:
    store.put(f"incoming/lab/{job}/{day}.csv", data.write_csv().encode())


def test_a_monitor_run_compares_requests_of_every_job(store, jobs, mlflow_uri, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=mlflow_uri, registry_uri=mlflow_uri)
    assert run_monitor(store, mlflow_uri, notify).drift_checks == []

    # A job without a champion hides no other, and a few rows wait for more.
    requests_of(store, "aaa", stream(300, 4), "a.parquet", tmp_path)
    requests_of(store, "numbers", stream(30, 4).drop("y"), "a.parquet", tmp_path)
    requests_of(store, "classes", stream(300, 5, shift=2).drop("y"), "a.parquet", tmp_path)
    run = run_monitor(store, mlflow_uri, notify)
    (reason,) = run.failures
    assert reason.startswith("lab/aaa: lab.aaa has no champion")
    (checked,) = run.drift_checks
    key = jobs["classes"]["run_key"]
    assert checked.drift.verdict == "drifted"
    assert checked.retrain_run_id == f"drift__{key}__{checked.drift.at[:10]}"

    # Until it is noted, the same files are compared again, and end in the same run.
    again = run_monitor(store, mlflow_uri, notify)
    assert (again.states, again.drift_checks[0].retrain_run_id) == (run.states, checked.retrain_run_id)
    settle(store, run)
    assert run_monitor(store, mlflow_uri, notify).drift_checks == []

    folder = layout.monitor_folder("lab", "classes")
    name = checked.page.split("/")[-2]
    written = {info.key.removeprefix(folder) for info in store.list(folder)}
    names = {"drift.html", "drift.json", "drift.prom"}
    assert written == {
        "state.json",
        *(f"latest/{name}" for name in names),
        *(f"{name}/{file}" for file in names),
    }
    document = json.loads(store.get(folder + "latest/drift.json"))
    assert (document["job"], document["run_key"], document["verdict"]) == ("classes", key, "drifted")
    assert b'dmls_drift_detected{job="classes",source="requests",team="lab"} 1.0' in store.get(
        folder + "latest/drift.prom"
    )
    tags = client.get_model_version("lab.classes", "1").tags
    assert "columns drifted in 300 rows" in tags["dmls.drift"]
    status = read_status(store, "lab", "classes")
    assert status.state == "deployed"
    assert status.message.startswith("deployed as version 1; later: ")
    assert "columns drifted in 300 rows" in status.message
    assert status.links["drift"].endswith(f"{name}/drift.html")

    # More rows of the job that had too few: now they are enough, together. A file that ends its reader ends
    # nothing else, and is read once.
    requests_of(store, "numbers", stream(300, 6).drop("y"), "b.parquet", tmp_path)
    store.put(f"{layout.inference_folder('lab', 'classes')}dt=2026-01-02/deep.parquet", deep_parquet())
    run = run_monitor(store, mlflow_uri, notify)
    assert [reason.partition(" (")[0] for reason in run.failures if "lab/classes" in reason] == [
        "lab/classes: requests: the file cannot be read"
    ]
    (checked,) = run.drift_checks
    assert (checked.job.name, checked.drift.rows, checked.drift.verdict) == ("numbers", 330, "steady")
    assert checked.retrain_run_id == ""
    assert read_status(store, "lab", "numbers").message.count("; later: ") == 1
    settle(store, run)
    run = run_monitor(store, mlflow_uri, notify)
    assert ([reason[:7] for reason in run.failures], run.drift_checks) == (["lab/aaa"], [])


def test_new_partitions_are_compared_one_by_one_except_those_trained_on(store, jobs, mlflow_uri, tmp_path):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=mlflow_uri, registry_uri=mlflow_uri)
    client.set_model_version_tag("lab.classes", "1", "dmls.interval_end", "2026-01-03T00:00:00+00:00")
    key = jobs["classes"]["run_key"]
    for day in ("2026-01-01", "2026-01-02"):
        partition_of(store, "classes", day, stream(300, 7, shift=9))
    assert run_monitor(store, mlflow_uri, notify).drift_checks == []

    partition_of(store, "classes", "2026-01-03", stream(200, 8))
    partition_of(store, "classes", "2026-01-04", stream(60, 9))
    partition_of(store, "classes", "2026-01-05", stream(200, 10))
    partition_of(store, "classes", "2026-01-06", stream(200, 11, shift=2))
    partition_of(store, "classes", "2026-01-07", stream(30, 12))
    run = run_monitor(store, mlflow_uri, notify)
    found = [(checked.source, checked.drift.rows, checked.drift.verdict) for checked in run.drift_checks]
    assert found == [
        ("2026-01-03.csv", 200, "steady"),
        ("2026-01-04.csv and 1 more", 260, "steady"),
        ("2026-01-06.csv", 200, "drifted"),
    ]
    assert [bool(checked.retrain_run_id) for checked in run.drift_checks] == [False, False, True]
    state = run.states["monitor/lab/classes/partitions.json"]
    assert (state["until"][:10], state["run_key"]) == ("2026-01-07", key)
    document = json.loads(store.get("monitor/lab/classes/latest-data/drift.json"))
    assert (document["source"], document["verdict"]) == ("2026-01-06.csv", "drifted")
    assert "(2026-01-06.csv)" in read_status(store, "lab", "classes").message
    settle(store, run)
    assert run_monitor(store, mlflow_uri, notify).drift_checks == []

    # The champion was trained on a partition before the monitor ran: it is compared with the previous one.
    other = jobs["classes"] | {"run_key": "f" * 16}
    for info in list(store.list(layout.run_folder("lab", "classes", key))):
        store.put(info.key.replace(key, other["run_key"]), store.get(info.key))
    run = log_run(mlflow_uri, other, Path(other["out"]), spec={})
    promote(mlflow_uri, "lab.classes", run.model_version)
    client.set_model_version_tag(
        "lab.classes", str(run.model_version), "dmls.interval_end", "2026-01-09T00:00:00+00:00"
    )
    partition_of(store, "classes", "2026-01-08", stream(200, 13, shift=2))
    run = run_monitor(store, mlflow_uri, notify)
    (checked,) = run.drift_checks
    assert (checked.source, checked.drift.verdict) == ("2026-01-07.csv and 1 more", "drifted")
    assert checked.retrain_run_id == ""
    assert run.states["monitor/lab/classes/partitions.json"] == {
        "schema": 1,
        "until": "2026-01-09T00:00:00+00:00",
        "run_key": other["run_key"],
    }


def label(store: Store, job: str, day: str, frame: pl.DataFrame) -> None:
    store.put(f"incoming/lab/{job}/labels/{day}.csv", frame.write_csv().encode())


@pytest.fixture(autouse=True)
def owner(monkeypatch, tmp_path):
    """The webhook that the jobs' specs name."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))  # whose notifiers tell it
    with webhook() as received:
        connection = {"conn_type": "http", "host": "127.0.0.1", "port": received.port}
        monkeypatch.setenv("AIRFLOW_CONN_DMLS_WEBHOOK_DRIFT", json.dumps(connection))
        allowed = SimpleNamespace(connections={"dmls_webhook_drift": ["lab"]})
        monkeypatch.setattr(connections, "airflow_settings", lambda: allowed)
        yield received


@pytest.fixture
def labelled(store, jobs, mlflow_uri) -> dict:
    """A trained job, with nothing but labels to look at: requests and partitions are noted as compared."""
    for key in list(store.list("inference/lab/")):
        store.delete(key.key)
    settle(store, run_monitor(store, mlflow_uri, notify))
    return jobs["classes"]


def test_delayed_labels_show_that_a_model_has_decayed(store, labelled, owner, mlflow_uri, tmp_path):
    from mlflow import MlflowClient

    from dmls_core.monitoring.prometheus import JobMetricsCollector, exposition

    right = labelled["score"]
    promote(mlflow_uri, "lab.classes", 1, triton_version=1)
    owner.heard.clear()

    def look() -> MonitorRun:
        found = run_monitor(store, mlflow_uri, notify)
        assert found.failures == []
        settle(store, found)
        return found

    def status() -> str:
        return read_status(store, "lab", "classes").message

    # Too few labels belong to logged predictions: they wait for more, and the message appears once.
    early = answers_of(store, "classes", 1, right, 60, tmp_path)
    unlogged = pl.DataFrame({"request_id": [f"u{n}" for n in range(500)], "y": ["no"] * 500})
    label(store, "classes", "2026-02-01", pl.concat([early, unlogged]))
    assert look().label_checks == 0
    assert "too few labels: 60 labeled predictions of version 1" in status()

    # With these it is enough, and the model does as well as it did.
    label(store, "classes", "2026-02-02", answers_of(store, "classes", 2, right, 300, tmp_path))
    found = look()
    assert (found.label_checks, found.retrains) == (1, set())
    document = json.loads(store.get("monitor/lab/classes/latest-labels/decay.json"))
    assert (document["verdict"], document["labels"], document["matched"]) == ("steady", 860, 360)
    (version,) = document["versions"]
    assert (version["rows"], version["champion"], version["trained_score"]) == (360, True, right)
    assert "no drift in 360 rows" in status()
    assert "on 360 labeled predictions of version 1" in status()
    before = {info.key: info.etag for info in store.list("monitor/lab/classes/")}
    assert look().label_checks == 0
    assert owner.heard == []
    assert {info.key: info.etag for info in store.list("monitor/lab/classes/")} == before

    # It has decayed: reported wherever drift is, and trained again.
    label(store, "classes", "2026-02-03", answers_of(store, "classes", 3, right - 0.3, 300, tmp_path))
    store.put("incoming/lab/classes/labels/2026-02-04.csv", b"id,y\n1,no\n")
    found = look()
    assert found.label_checks == 1
    ((dag_id, run_id),) = found.retrains
    assert dag_id == "dmls.lab.classes"
    assert run_id.startswith(f"drift__{labelled['run_key']}__")
    assert "the model has decayed" in status()
    assert "cannot read label files: 2026-02-04.csv" in status()
    tags = MlflowClient(tracking_uri=mlflow_uri).get_model_version("lab.classes", "1").tags
    assert "the model has decayed" in tags["dmls.decay"]
    page = read_status(store, "lab", "classes").links["labels"].removeprefix(f"{store.url}/")
    assert b"<svg" in store.get(page)
    metrics = exposition(JobMetricsCollector(store).collect())
    assert 'dmls_decay_detected{job="classes",team="lab"} 1.0' in metrics
    assert 'dmls_decay_score{job="classes",metric="accuracy",team="lab",version="1"}' in metrics
    assert 'dmls_decays_total{job="classes",team="lab"} 1.0' in metrics
    document = json.loads(store.get("monitor/lab/classes/latest-labels/decay.json"))
    assert [point["verdict"] for point in document["history"]] == ["steady", "decayed"]
    assert look().label_checks == 0
    assert [message["event"] for message in owner.contents] == ["decayed", "rejected"]
