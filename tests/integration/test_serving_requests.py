"""What happens to requests that are cancelled, and to those in flight when the server stops."""

from __future__ import annotations

import signal
import threading
from urllib.request import urlopen

import numpy as np
import pytest

from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import ServingError
from tests.support.table_endpoint import Served
from tests.support.trained_run import user_rows

CLIENTS = 8
QUEUED = 60
GONE = ("does not answer", "shutting down", "unavailable", "not ready")


@pytest.fixture
def served(triton, tmp_path):
    with triton.client() as client:
        yield Served(triton.repository, client, tmp_path / "run")


def metric(server, model, name, label=""):
    """Return a figure of Triton's about a model."""
    with urlopen(f"http://{server.context.address('triton_metrics')}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    wanted = (name + "{", f'model="{model}"', label)
    return sum(float(line.split()[-1]) for line in lines if all(part in line for part in wanted))


def test_a_cancelled_request_is_not_computed(triton, served):
    import tritonclient.grpc

    rows = np.repeat(served.encoder.transform(user_rows(64)), 128, axis=0)
    tensor = tritonclient.grpc.InferInput("input__0", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    before = metric(triton, served.name, "nv_inference_exec_count")
    outcomes = []

    def keep(result, error):
        assert (result is None) != (error is None)
        outcomes.append(error)

    with tritonclient.grpc.InferenceServerClient(served.client.addresses["grpc"]) as client:
        calls = [client.async_infer(served.name, [tensor], keep) for _ in range(QUEUED)]
        wait_until(lambda: metric(triton, served.name, "nv_inference_pending_request_count") > 1, 30)
        for call in calls[1:]:
            call.cancel()
        wait_until(lambda: len(outcomes) == QUEUED, 60)
    assert outcomes.count(None) >= 1
    assert {error.status() for error in outcomes if error is not None} == {"StatusCode.CANCELLED"}
    failures = ("nv_inference_request_failure", 'reason="CANCELED"')
    wait_until(lambda: metric(triton, served.name, *failures) > 0, 30)
    assert metric(triton, served.name, "nv_inference_exec_count") - before < QUEUED
    got = served.client.infer(served.name, rows[:128], version=1)
    np.testing.assert_array_equal(got, served.expected(user_rows(64))[[0] * 128])


def test_a_stopping_server_answers_the_requests_in_flight(triton, tmp_path):
    # Closed before the end: Triton waits for idle HTTP connections until its exit timeout.
    with triton.client() as client:
        served = Served(triton.repository, client, tmp_path / "run")
    rows = served.encoder.transform(user_rows(64))
    expected = served.expected(user_rows(64))
    answered, refused, wrong = [], [], []

    def ask():
        with triton.client() as client:
            while True:
                try:
                    got = client.infer(served.name, rows, version=1)
                except ServingError as error:
                    refused.append(str(error))
                    return
                answered.append(len(got))
                if not np.array_equal(got, expected):
                    wrong.append(got)

    threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(answered) >= 5 * CLIENTS, 60)
    try:
        triton.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(60)
        triton.process.wait(60)
    finally:
        triton.stop()
        triton.start()
    assert not wrong
    assert len(refused) == CLIENTS
    # Nothing is lost on the way: a request is answered, or the server is known to be going.
    assert all(any(text in message for text in GONE) for message in refused), refused
