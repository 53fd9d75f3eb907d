"""Requests to a real Triton are sampled, fetched into the store, and compared with the training data."""

from __future__ import annotations

import json
import time
import urllib.request

import numpy as np
import polars as pl
import pytest

from dmls_core.errors import DataError
from dmls_core.monitoring.inference_log import (
    RequestCursor,
    collect,
    download_newest,
    list_requests,
    new_requests,
)
from dmls_core.monitoring.new_data import check_files
from dmls_core.monitoring.profile import Values, profile_of
from dmls_core.serving import Deployment, ServingOptions, connect
from dmls_core.store import layout, open_store
from tests.support.table_endpoint import Served, request_body
from tests.support.trained_run import COLOURS, trained_run, user_rows

WAIT = 60


@pytest.fixture
def client(triton):
    with triton.client(timeout=60.0) as client:
        yield client


@pytest.fixture
def store(tmp_path):
    return open_store(str(tmp_path / "root"))


def write_baseline(model, rows):
    """Write what a training on ``rows`` leaves beside its model."""
    values = [
        Values(name, "feature", np.array([np.nan if v is None else v for v in rows[name]], np.float32))
        for name in ("size", "count")
    ]
    codes = [np.nan if v is None else float(COLOURS.index(v)) for v in rows["colour"]]
    values.append(Values("colour", "feature", np.array(codes), COLOURS))
    profile = profile_of(values, len(codes))
    (model / "baseline.json").write_text(json.dumps(profile.as_json()))


def end_of_log(triton, client, served):
    """Have Triton end the endpoint, and wait for the files that it leaves."""
    client.unload(f"{served.name}.table")
    folder = triton.context.inference_log / served.name
    end = time.monotonic() + WAIT
    while not list(folder.glob("*.jsonl")) or list(folder.glob("*.part")):
        assert time.monotonic() < end
        time.sleep(0.05)


def metric(triton, name, model):
    with urllib.request.urlopen(f"http://{triton.context.address('triton_metrics')}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f'{name}{{model="{model}"}} '):
                return float(line.rpartition(" ")[2])
    return None


def test_requests_reach_the_store_with_their_answers_and_drift_is_seen(triton, client, store, tmp_path):
    """What users ask, and nothing else: no golden row, no sensitive column."""
    model = tmp_path / "run/model"
    trained_run(tmp_path / "run")
    write_baseline(model, user_rows(400))
    served = Served(triton.repository, client, tmp_path / "run")
    deployment = Deployment(triton.repository, client, served.name)
    options = ServingOptions(log_share=1.0, log_leave_out=("colour",))
    trained_run(tmp_path / "second", seed=1)
    version = deployment.deploy(tmp_path / "second/model", options=options)
    rows = user_rows(90, seed=8)
    body = request_body(served.encoder, rows) | {"id": "order 7"}
    status, answer = served.post(body)
    assert status == 200
    assert answer["id"] == "order 7"
    shifted = rows | {"size": [None if v is None else v + 3 for v in rows["size"]]}
    for _ in range(3):
        served.ask(shifted, "grpc")
    end_of_log(triton, client, served)

    team, job = served.name.split(".")
    found = collect(store, triton.context.inference_log)
    assert found.rows[served.name] == 4 * 90
    files = new_requests(list_requests(store)[team, job], RequestCursor())
    paths = download_newest(store, files, tmp_path)
    frame = pl.concat([pl.read_parquet(path) for path in paths]).sort("dmls.time", "dmls.row")
    assert "colour" not in frame.columns
    first = frame.head(90)
    assert set(first["dmls.request_id"]) == {"order 7"}
    assert set(frame["dmls.version"]) == {version.version} == {2}
    assert first["size"].fill_nan(None).to_list() == rows["size"]
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert first["dmls.prediction"].to_list() == outputs["label"]
    logged = first.select(pl.col(r"^dmls\.probability\..*$")).to_numpy()
    assert np.array_equal(logged.ravel(), np.array(outputs["probabilities"], np.float32))

    drift = check_files(model, paths, 0.2)
    verdicts = {column.name: column.verdict for column in drift.columns}
    assert verdicts == {"size": "drifted", "count": "steady", "colour": "absent"}


def test_rows_of_a_split_request_keep_their_positions(triton, client, store, tmp_path, monkeypatch):
    served = Served(triton.repository, client, tmp_path / "a")
    trained_run(tmp_path / "b", seed=1)
    deployment = Deployment(triton.repository, client, served.name)
    deployment.deploy(tmp_path / "b/model", options=ServingOptions(log_share=1.0))
    monkeypatch.setattr("dmls_core.serving.predict.connect.MAX_BATCH_SIZE", 4)
    with connect(served.name, grpc=client.addresses["grpc"]) as model:
        model.predict(user_rows(10), request_id="order 8")
        with pytest.raises(DataError, match="the request's id is not allowed"):
            model.predict(user_rows(1), request_id="dmls.candidate.1")
    end_of_log(triton, client, served)
    collect(store, triton.context.inference_log)
    found = store.list(layout.inference_folder(*served.name.split(".")))
    frame = pl.concat([pl.read_parquet(f"{store.url}/{info.key}") for info in found])
    assert set(frame["dmls.request_id"]) == {"order 8"}
    assert sorted(frame["dmls.row"]) == list(range(10))


def test_versions_follow_and_options_stay_after_a_rollback(triton, client, store, tmp_path):
    served = Served(triton.repository, client, tmp_path / "a")
    deployment = Deployment(triton.repository, client, served.name)
    trained_run(tmp_path / "b", seed=1)
    options = ServingOptions(log_share=1.0)
    deployment.deploy(tmp_path / "b/model", options=options)
    served.ask(user_rows(5))
    deployment.rollback()
    assert triton.repository.options(served.name) == options
    served.ask(user_rows(7))
    end_of_log(triton, client, served)
    assert collect(store, triton.context.inference_log).rows[served.name] == 12
    found = store.list(layout.inference_folder(*served.name.split(".")))
    frame = pl.concat([pl.read_parquet(f"{store.url}/{info.key}") for info in found])
    assert sorted(frame["dmls.version"]) == [1] * 7 + [2] * 5


def test_a_log_that_cannot_be_written_fails_no_request_and_is_counted(triton, client, tmp_path):
    name = "lab.nolog"
    place = triton.context.inference_log / name
    place.write_text("a file stands where the folder should be")
    served = Served(triton.repository, client, tmp_path / "run", name)
    trained_run(tmp_path / "b", seed=1)
    Deployment(triton.repository, client, name).deploy(
        tmp_path / "b/model", options=ServingOptions(log_share=1.0)
    )
    end = time.monotonic() + WAIT
    while not metric(triton, "dmls_log_dropped_rows_total", name):
        assert time.monotonic() < end
        assert set(served.ask(user_rows(3))["version"].ravel()) == {2}
    assert metric(triton, "dmls_logged_rows_total", name) == 0


def test_without_options_nothing_is_logged(triton, client, tmp_path):
    served = Served(triton.repository, client, tmp_path / "run")
    served.ask(user_rows(5))
    client.unload(f"{served.name}.table")
    assert not (triton.context.inference_log / served.name).exists()
