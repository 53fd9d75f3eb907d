"""Small models that share one process of a real Triton server: answers, versions, refusals, and a kill."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from functools import partial

import numpy as np
import psutil
import pytest

from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import ServingError, ServingTimeoutError
from dmls_core.monitoring.request_counts import RequestCounter, Requests
from dmls_core.serving import Deployment, Predictor, connect
from dmls_core.serving.deployment.reconcile import differences
from dmls_core.serving.deployment.verification import GoldenRows
from dmls_core.serving.formats.treelite.serving_format import TreeliteFormat
from dmls_core.serving.repository.folder import FolderFiles
from dmls_core.serving.repository.shared_process import RECORDS, SharedProcess, process_runs, restart_process
from dmls_core.serving.triton import shared_process
from dmls_core.serving.triton.model_config import table_name
from dmls_core.serving.triton.shared_process import HUNG_SECONDS, SHARED
from tests.services.triton_server import new_triton
from tests.support.table_endpoint import Served, post
from tests.support.trained_run import trained_run, user_rows


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = new_triton(tmp_path_factory.mktemp("shared"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def client(server):
    with server.client(timeout=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def served(server, client, tmp_path_factory):
    """Two jobs in the shared process."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DMLS_SERVING_SHARED_BYTES", "4000000")
        yield [
            Served(server.repository, client, folder / "classes", "lab.shared-classes"),
            Served(server.repository, client, folder / "value", "lab.shared-value", regression=True),
        ]


def processes(server):
    """Return the processes of Triton's Python backend."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [child for child in children if "triton_python_backend_stub" in child.name()]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_two_jobs_answer_from_one_process(server, client, served, protocol):
    rows = user_rows(40, seed=3)
    classes, value = served
    assert np.array_equal(
        classes.ask(rows, protocol)["probabilities"].astype(np.float32), classes.expected(rows)
    )
    assert np.array_equal(value.ask(rows, protocol)["value"].ravel().astype(np.float32), value.expected(rows))
    answers = Predictor(server.repository, client, classes.name).predict(rows)
    assert np.array_equal(answers.probabilities, classes.expected(rows))
    with connect(classes.name, grpc=client.addresses["grpc"]) as model:
        assert list(model.predict(rows)["prediction"]) == answers.values
        assert not model.notes
        with pytest.warns(UserWarning, match="'Red' does not occur in the training data"):
            model.predict({**rows, "colour": ["Red", *rows["colour"][1:]]})
        assert list(model.notes) == [0]
    assert len(processes(server)) == 1


def test_requests_are_counted_for_each_job_and_their_time_once(client, served):
    counter = RequestCounter()
    counter.look([client])
    # Triton counts a request after its answer: those of an earlier test may still be missing.
    time.sleep(1.0)
    counter.look([client])
    started = time.monotonic()
    for _ in range(20):
        served[0].ask(user_rows(5), "http")
    seconds = time.monotonic() - started
    looks = [counter.look([client])]
    wait_until(lambda: looks.append(counter.look([client])) or not looks[-1].count, 10)
    found = sum(looks, Requests())
    assert found.count == 20
    assert 0 < found.busy_seconds < seconds


def test_a_change_of_version_fails_no_request(server, client, served, tmp_path):
    classes, _ = served
    trained_run(tmp_path / "next", seed=1)
    deployment, rows = Deployment(server.repository, client, classes.name), user_rows(4)
    ended, failures, versions = threading.Event(), [], []

    def ask():
        while not ended.is_set():
            try:
                versions.append(int(classes.ask(rows, "grpc")["version"][0, 0]))
            except Exception as error:  # noqa: BLE001  the test fails for any
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        assert deployment.deploy(tmp_path / "next/model").version == 2
        wait_until(lambda: 2 in versions, 30)
        deployment.rollback()
        wait_until(lambda: versions[-1] == 1, 30)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert set(versions) == {1, 2}
    assert len(processes(server)) == 1


@pytest.mark.parametrize("width", [1, 2, 4])
def test_rows_of_another_width_sent_to_the_shared_model_are_refused(client, served, width):
    slot = client.config(served[0].name)["parameters"]["slot"]["string_value"].split()
    tensor = {"datatype": "FP32", "data": [0.0] * width, "shape": [1, width], "name": f"input_{slot[1]}"}
    body = {"inputs": [tensor], "outputs": [{"name": f"output_{slot[0]}"}]}
    status, answer = post(client.addresses["http"], SHARED, body)
    assert status == 400
    assert f"the rows have shape [1, {width}], expected [-1, 3]" in answer["error"]


def test_a_killed_process_comes_back(server, client, served):
    classes, value = served
    rows = user_rows(4)
    (process,) = processes(server)
    process.kill()
    with pytest.raises(ServingError):
        client.infer(classes.name, classes.encoder.transform(rows))
    assert restart_process(client)
    assert not restart_process(client)
    assert np.array_equal(classes.ask(rows)["probabilities"].astype(np.float32), classes.expected(rows))
    assert np.array_equal(value.ask(rows)["value"].ravel().astype(np.float32), value.expected(rows))
    deployment = partial(Deployment, server.repository, client)
    assert [differences(deployment(s.name), s.version) for s in served] == ["", ""]


def test_a_busy_process_does_not_count_as_ended(server, client, served):
    (process,) = processes(server)
    process.suspend()
    try:
        with client.again(1.0) as impatient, pytest.raises(ServingTimeoutError):
            restart_process(impatient)
    finally:
        process.resume()
    assert process_runs(client)
    assert processes(server) == [process]


def test_a_hung_process_ends_and_comes_back(server, client, served, monkeypatch):
    """A record that is a named pipe without a writer hangs it, as a dead network file system does."""
    classes, value = served
    shared = SharedProcess(server.repository.store, FolderFiles(server.repository.store))
    slot = client.config(classes.name)["parameters"]["slot"]["string_value"].replace(" ", "/")
    record = server.repository.root / RECORDS / f"{slot}.json"
    content = record.read_bytes()

    def load_again(seconds):
        monkeypatch.setattr(shared_process, "HUNG_SECONDS", seconds)
        shared.write_model(TreeliteFormat())
        client.unload(SHARED)
        client.load(SHARED)

    load_again(2)
    record.unlink()
    os.mkfifo(record)
    try:
        with client.again(30.0) as patient, pytest.raises(ServingError) as error:
            patient.infer(classes.name, classes.encoder.transform(user_rows(4)))
        assert not isinstance(error.value, ServingTimeoutError)
        assert not process_runs(client)
    finally:
        record.unlink()
        record.write_bytes(content)
    assert restart_process(client)
    rows = user_rows(4)
    assert np.array_equal(classes.ask(rows)["probabilities"].astype(np.float32), classes.expected(rows))
    assert np.array_equal(value.ask(rows)["value"].ravel().astype(np.float32), value.expected(rows))
    load_again(HUNG_SECONDS)


def test_a_stopped_process_is_replaced(server, client, served):
    """Triton notices it by itself, and fails the requests."""
    classes, _ = served
    wait_until(lambda: len(processes(server)) == 1, 30)  # that of the test before ends after its unload
    (process,) = processes(server)
    process.suspend()
    try:
        assert restart_process(client)
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()
    rows = user_rows(4)
    assert np.array_equal(classes.ask(rows)["probabilities"].astype(np.float32), classes.expected(rows))


def test_a_model_leaves_the_shared_process_and_returns(server, client, served, monkeypatch):
    classes, _ = served
    deployment = Deployment(server.repository, client, classes.name)
    rows = user_rows(40)
    for setting in ("", "4000000"):
        monkeypatch.setenv("DMLS_SERVING_SHARED_BYTES", setting)
        with server.repository.lock(classes.name):
            deployment.serve(GoldenRows.read(server.repository, classes.name, 1), 1)
        assert client.config(table_name(classes.name)).get("platform", "") == ("ensemble" if setting else "")
        assert np.array_equal(classes.ask(rows)["probabilities"].astype(np.float32), classes.expected(rows))
