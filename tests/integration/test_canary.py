"""A challenger beside what a real Triton serves: as a canary, as a shadow, and when it goes away."""

from __future__ import annotations

import threading
import time
import urllib.request

import numpy as np
import pytest

from dmls_core.errors import ServingError, UserError
from dmls_core.serving import Deployment, ServingOptions, connect
from tests.support.table_endpoint import Served, outputs_of, request_body
from tests.support.trained_run import trained_run, user_rows

ROWS = user_rows(40, seed=9)
WAIT = 60


@pytest.fixture
def client(triton):
    with triton.client(timeout=60.0) as client:
        yield client


@pytest.fixture
def served(triton, client, tmp_path):
    """Version 1 of a model of its own; the challenger's run lies in ``b``."""
    trained_run(tmp_path / "b", seed=1, n_trees=5)
    made = Served(triton.repository, client, tmp_path / "a")
    yield made
    Deployment(triton.repository, client, made.name).end_canary()


def ask(served, request_id="", rows=ROWS):
    """Return the version that answered, and the probabilities."""
    status, answer = served.post(request_body(served.encoder, rows) | {"id": request_id})
    assert status == 200, answer
    outputs = outputs_of(answer)
    (version,) = set(outputs["version"].ravel().tolist())
    return version, outputs["probabilities"].astype(np.float32)


def metrics(triton, model):
    """Return DMLS's counters of a model at Triton's own address."""
    with urllib.request.urlopen(f"http://{triton.context.address('triton_metrics')}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("dmls_") and f'model="{model}"' in line
    }


def wait_metric(triton, served, name, atleast):
    end = time.monotonic() + WAIT
    while metrics(triton, served.name).get(name, 0) < atleast:
        assert time.monotonic() < end, metrics(triton, served.name)
        ask(served)
    return metrics(triton, served.name)


def test_a_canary_answers_its_share_by_request_id_and_says_so(triton, client, served, tmp_path):
    folder = tmp_path / "b/model"
    assert (
        Deployment(triton.repository, client, served.name).start_canary(folder, share=0.4, shadow=False) == 2
    )
    expected = {1: served.expected(ROWS), 2: None}
    first = {name: ask(served, name) for name in map(str, range(60))}
    versions = [version for version, _ in first.values()]
    assert 8 <= versions.count(2) <= 45
    for name, (version, probabilities) in list(first.items())[:20]:
        assert ask(served, name)[0] == version
        known = expected[version] = probabilities if expected[version] is None else expected[version]
        assert np.abs(probabilities - known).max() <= 1e-6
    assert np.abs(expected[1] - expected[2]).max() > 0.05
    with connect(served.name, grpc=client.addresses["grpc"]) as model:
        for _ in range(5):
            assert len(model.predict(ROWS)["prediction"]) == 40
    # The forest itself, and who asks it, know nothing of this.
    assert client.versions(served.name) == (1,)
    assert wait_metric(triton, served, "dmls_canary_rows_total", 40)["dmls_canary_missed_total"] == 0


def test_a_challenger_that_goes_away_fails_no_request(triton, client, served, tmp_path):
    deployment = Deployment(triton.repository, client, served.name)
    deployment.start_canary(tmp_path / "b/model", share=0.5, shadow=False)
    wrong, seen, stop = [], [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            try:
                seen.append(ask(served)[0])
            except AssertionError as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=keep_asking) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for step in (
            lambda: None,
            lambda: client.unload(f"{served.name}.challenger"),
            lambda: deployment.end_canary(),
        ):
            step()
            count, end = len(seen), time.monotonic() + WAIT
            while len(seen) < count + 30 and time.monotonic() < end:
                time.sleep(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert set(seen) == {1, 2}
    assert {ask(served)[0] for _ in range(20)} == {1}
    assert client.versions(f"{served.name}.challenger") == ()


def test_a_shadow_is_compared_and_logged_while_the_live_version_answers(triton, client, served, tmp_path):
    deployment = Deployment(triton.repository, client, served.name)
    model = tmp_path / "a/model"
    deployment.deploy(model)
    triton.repository.set_options(served.name, ServingOptions(log_share=1.0))
    deployment.start_canary(tmp_path / "b/model", share=1.0, shadow=True)
    version, probabilities = ask(served, "compared")
    assert version == 1
    assert np.abs(probabilities - served.expected(ROWS)).max() <= 1e-6
    counted = wait_metric(triton, served, "dmls_canary_rows_total", 40)
    assert 0 < counted["dmls_canary_different_rows_total"] < counted["dmls_canary_rows_total"]
    deployment.end_canary()
    folder = triton.context.inference_log / served.name
    end = time.monotonic() + WAIT
    while not list(folder.glob("*.jsonl")):
        assert time.monotonic() < end
        time.sleep(0.05)
    from dmls_core.monitoring.inference_log import _entries, _frame

    entry = next(e for path in folder.glob("*.jsonl") for e in _entries(path) if e["id"] == "compared")
    frame = _frame(entry)
    assert set(frame["dmls.version"]) == {1}
    assert set(frame["dmls.challenger_version"]) == {2}
    assert frame["dmls.prediction"].to_list() != frame["dmls.challenger_prediction"].to_list()


def test_a_canary_is_rejected_if_unverified_served_or_of_another_kind(triton, client, served, tmp_path):
    repository = triton.repository
    deployment = Deployment(repository, client, served.name)
    with pytest.raises(UserError, match="which is already served"):
        deployment.start_canary(tmp_path / "a/model", share=0.5, shadow=False)
    trained_run(tmp_path / "numbers", regression=True)
    with pytest.raises(UserError, match="is a classification, and the challenger a regression"):
        deployment.start_canary(tmp_path / "numbers/model", share=0.5, shadow=False)
    golden = tmp_path / "b/model/golden.json"
    golden.write_text(golden.read_text().replace('"expected": [[0', '"expected": [[7'))
    with pytest.raises(ServingError):
        deployment.start_canary(tmp_path / "b/model", share=0.5, shadow=False)
    assert repository.options(served.name).canary is None
    assert ask(served)[0] == 1
    assert client.versions(f"{served.name}.candidate") == ()


def test_a_deployment_ends_the_canary_and_a_rollback_does_not(triton, client, served, tmp_path):
    repository = triton.repository
    deployment = Deployment(repository, client, served.name)
    trained_run(tmp_path / "c", seed=2)
    deployment.deploy(tmp_path / "c/model")
    deployment.start_canary(tmp_path / "b/model", share=1.0, shadow=False)
    assert ask(served)[0] == 3
    deployment.rollback(1)
    assert ask(served)[0] == 3
    deployment.deploy(tmp_path / "b/model")
    assert ask(served)[0] == 3
    assert repository.options(served.name).canary is None
    assert client.versions(f"{served.name}.challenger") == ()
    deployment.rollback()
    assert ask(served)[0] == 1
