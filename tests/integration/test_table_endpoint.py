"""The table endpoint on a real Triton server: the user's columns in, labels and probabilities out."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import threading
import time
from urllib.request import urlopen

import numpy as np
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmls_core.data.encoder import MISSING
from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import ServingError
from dmls_core.monitoring.request_counts import RequestCounter
from dmls_core.serving import Deployment, Predictor, connect
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.serving.triton.model_config import matrices, table_name
from dmls_core.serving.triton.tensors import table_tensors
from tests.support.table_endpoint import Served, change_encoder, request_body
from tests.support.trained_run import trained_run, user_rows


@pytest.fixture
def client(triton):
    with triton.client(timeout=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def parts(triton, tmp_path_factory):
    with triton.client(timeout=60.0) as client:
        yield Served(triton.repository, client, tmp_path_factory.mktemp("parts") / "run")


def texts(values):
    return [v.decode() if isinstance(v, bytes) else v for v in values.ravel().tolist()]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("n_rows", [1, 90, 8192])
def test_answers_are_those_of_the_predictor(parts, protocol, n_rows):
    rows = user_rows(n_rows, seed=3)
    rows["colour"][-1] = "mauve"
    got = parts.ask(rows, protocol)
    answers = Predictor(parts.repository, parts.client, parts.name).predict(rows)
    assert texts(got["label"]) == answers.values
    assert np.array_equal(got["probabilities"].astype(np.float32), answers.probabilities)
    assert got["version"].ravel().tolist() == [parts.version] * n_rows


def test_requests_of_users_are_counted(parts):
    counter = RequestCounter()
    counter.look([parts.client])
    started = time.monotonic()
    for _ in range(20):
        parts.ask(user_rows(5), "http")
    seconds = time.monotonic() - started
    found = counter.look([parts.client])
    assert found.count == 20
    assert 0 < found.busy_seconds < seconds
    assert counter.look([parts.client]).count == 0


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_golden_rows_come_back_as_the_trainer_saw_them(parts, protocol):
    golden = json.loads((parts.folder / "model/golden.json").read_text())
    got = parts.ask(golden["columns"], protocol)
    expected = np.asarray(golden["expected"], np.float32)
    assert np.abs(got["probabilities"] - expected).max() <= 1e-6
    assert texts(got["label"]) == [golden["labels"][i] for i in expected.argmax(axis=1)]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_few_rows_are_answered_without_the_forest_and_bit_for_bit_as_by_it(parts, protocol):
    for n_rows, asked in ((1, 0), (32, 0), (33, 1)):
        rows = user_rows(n_rows, seed=n_rows)
        before = requests_of(parts.client, parts.name)
        expected = parts.client.infer(parts.name, parts.encoder.transform(rows), protocol=protocol)
        got = parts.ask(rows, protocol)
        # Triton counts a request after its answer.
        wait_until(lambda n=before + 1 + asked: requests_of(parts.client, parts.name) == n, 60)
        assert np.array_equal(got["probabilities"].astype(np.float32), expected)


def requests_of(client, name):
    """Return the number of requests that a model has answered."""
    with urlopen(f"http://{client.addresses['http']}/v2/models/{name}/stats", timeout=60) as answer:
        (stats,) = json.load(answer)["model_stats"]
    return stats["inference_stats"]["success"]["count"]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_regression_answers_with_a_value(triton, client, tmp_path, protocol):
    served = Served(triton.repository, client, tmp_path / "run", regression=True)
    rows = user_rows(50, seed=4)
    got = served.ask(rows, protocol)
    assert sorted(got) == ["value", "version"]
    assert np.abs(got["value"].ravel() - served.expected(rows)).max() <= 1e-5


def test_two_classes_have_two_probabilities(triton, client, tmp_path):
    served = Served(triton.repository, client, tmp_path / "run", binary=True)
    rows = user_rows(50, seed=4)
    got = served.ask(rows)
    assert got["probabilities"].shape == (50, 2)
    assert np.abs(got["probabilities"] - served.expected(rows)).max() <= 1e-6


cells = st.one_of(
    st.sampled_from([*sorted(MISSING), " red ", "red", "green", "Red", "1", "1.0", "01", "True", "-0.0"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)
floats = st.floats(allow_nan=True, allow_infinity=False, width=32)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=st.lists(st.tuples(floats, floats, cells), min_size=1, max_size=40))
def test_every_table_is_encoded_as_the_training_encodes_it(parts, table):
    size, count, colour = map(list, zip(*table, strict=True))
    rows = {"size": size, "count": count, "colour": colour}
    got = parts.ask(rows, "grpc")
    assert np.array_equal(got["probabilities"], parts.expected(rows))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_columns_may_come_in_matrices(parts, protocol):
    rows = user_rows(40, seed=3)
    rows["size"][0], rows["colour"][:3] = None, ["mauve", "", "é"]
    columns = table_tensors(parts.encoder, rows)
    joined = {
        matrix: np.hstack([columns[name] for name in names])
        for matrix, names in matrices(parts.encoder).items()
    }
    numbers, texts = joined
    for tensors in (joined, {numbers: joined[numbers], "colour": columns["colour"]}):
        answer = parts.client.infer_tensors(table_name(parts.name), tensors, protocol=protocol)
        assert np.array_equal(answer.as_numpy("probabilities"), parts.expected(rows))
    other = {"numbers-0": joined[numbers], texts: joined[texts]}
    with pytest.raises(ServingError, match="unexpected inference input 'numbers-0'"):
        parts.client.infer_tensors(table_name(parts.name), other, protocol=protocol)


def body_of(parts, **changed):
    rows = {"size": [0.5], "count": [3], "colour": ["red"]}
    body = request_body(parts.encoder, rows)
    for tensor in body["inputs"]:
        tensor |= changed.get(tensor["name"], {})
    return body


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"size": {"datatype": "BYTES", "data": ["x"]}}, "'size' data-type is 'BYTES'.* expects 'FP64'"),
        ({"size": {"data": ["x"]}}, "Unable to parse 'data'"),
        ({"size": {"shape": [2, 1], "data": [1.0, 2.0]}}, "'size' batch size does not match"),
        ({"colour": {"name": "color"}}, "unexpected inference input 'color'"),
    ],
)
def test_wrong_requests_are_told_what_is_wrong(parts, changed, message):
    status, answer = parts.post(body_of(parts, **changed))
    assert 400 <= status <= 500
    assert re.search(message, answer["error"]), answer


def test_columns_left_out_are_named_and_nothing_is_guessed(parts):
    body = body_of(parts)
    body["inputs"] = [tensor for tensor in body["inputs"] if tensor["name"] == "count"]
    assert parts.post(body) == (400, {"error": "columns are missing: 'size', 'colour'"})


def test_a_text_that_is_not_utf8_is_told(parts):
    columns = {"size": np.zeros((2, 1)), "count": np.zeros((2, 1))}
    columns["colour"] = np.array([[b"red"], [b"r\xffd"]], dtype=object)
    with pytest.raises(ServingError, match="column 'colour' holds a text that is not UTF-8"):
        parts.client.infer_tensors(table_name(parts.name), columns)


def test_unknown_and_missing_values_follow_the_encoder(parts):
    rows = {"size": [None] * 4, "count": [3] * 4, "colour": ["mauve", "", None, "NA"]}
    got = parts.ask(rows)
    assert np.array_equal(got["probabilities"].astype(np.float32), parts.expected(rows))


def test_a_bad_request_does_not_harm_those_it_is_batched_with(parts):
    """Requests that Triton batches are answered one by one."""
    good, bad = body_of(parts), body_of(parts)
    bad["inputs"] = bad["inputs"][:1]
    answers = []

    def ask(body, times):
        answers.extend((body is good, parts.post(body)[0]) for _ in range(times))

    threads = [threading.Thread(target=ask, args=[body, 30]) for body in (good, bad, good, bad)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) == {(True, 200), (False, 400)}
    assert len(answers) == 120


def test_any_name_of_a_column_or_label_can_be_served(triton, client, tmp_path):
    odd = ['größe "in" cm', "a\\b/c {x: 1}", "色\n'#"]

    def change(encoder):
        for feature, name in zip(encoder["features"], odd, strict=True):
            feature["name"] = name
        encoder["target"]["labels"] = ['"bad"', "gut, größer", "so\\so\n"]

    trained_run(tmp_path / "run")
    change_encoder(tmp_path / "run/model", change)
    served = Served(triton.repository, client, tmp_path / "run")
    rows = dict(zip(odd, user_rows(20).values(), strict=True))
    for protocol in ("http", "grpc"):
        got = served.ask(rows, protocol)
        assert texts(got["label"]) == served.encoder.decode(served.expected(rows).argmax(axis=1))


def variant(folder, seed, *, fill, categories, labels):
    """Train a forest whose encoder differs, so that a mix of two versions gives wrong answers."""

    def change(encoder):
        encoder["features"][0]["fill"] = fill
        encoder["features"][2]["categories"] = categories
        encoder["target"]["labels"] = labels

    trained_run(folder, seed=seed)
    change_encoder(folder / "model", change)
    return folder


@pytest.mark.parametrize(
    "labels_change",
    [True, pytest.param(False, marks=pytest.mark.nightly("`make test` changes the labels, too"))],
    ids=["other labels", "same labels"],
)
def test_both_endpoints_change_versions_together(triton, client, tmp_path, labels_change):
    """Not one request fails or mixes two versions, and a table never lags behind the forest.

    With the same columns and labels, the table's process stays the same.
    """
    first = Served(
        triton.repository,
        client,
        variant(tmp_path / "a", 0, fill=-9.0, categories=["red", "green", "blue"], labels=["a", "b", "c"]),
    )
    labels = ["x", "y", "z"] if labels_change else ["a", "b", "c"]
    folder = variant(tmp_path / "b", 1, fill=9.0, categories=["blue", "green", "red"], labels=labels)
    name, repository = first.name, triton.repository
    processes = table_processes(triton, name)
    second = Served(triton.repository, client, folder, name)
    rows = user_rows(16, seed=5)
    known = {1: first.expected(rows), 2: second.expected(rows)}
    assert np.abs(known[1] - known[2]).max() > 0.1
    wrong, seen, stop = [], [], threading.Event()

    def ask(protocol):
        while not stop.is_set():
            try:
                got = second.ask(rows, protocol)
            except Exception as error:  # noqa: BLE001  whatever fails is reported below
                wrong.append(f"{protocol}: {error}")
                continue
            (version,) = set(got["version"].ravel().tolist())
            served = {1: first, 2: second}[version]
            labels = served.encoder.decode(known[version].argmax(axis=1))
            if np.abs(got["probabilities"] - known[version]).max() > 1e-6 or texts(got["label"]) != labels:
                wrong.append(f"{protocol}: an answer that is not of version {version}")
            seen.append(version)

    threads = [threading.Thread(target=ask, args=[protocol]) for protocol in ("http", "grpc")]
    for thread in threads:
        thread.start()
    try:
        for version in (1, 2, 1, 2):
            Deployment(repository, client, name).rollback(version)
            # From now on the forest is this version, and so is the table.
            assert client.versions(name) == (version,)
            assert client.versions(table_name(name)) == ((version,) if labels_change else (1,))
            assert second.ask(rows)["version"].ravel().tolist() == [version] * 16
            count = len(seen)
            deadline = time.monotonic() + 60
            while len(seen) < count + 10 and time.monotonic() < deadline:
                time.sleep(0.01)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert set(seen) == {1, 2}
    assert (table_processes(triton, name) == processes) is not labels_change


def table_processes(triton, name):
    """Return the process ids of a table endpoint."""
    found = set()
    for child in psutil.Process(triton.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # another model's, unloaded meanwhile
            if any(f"/{name}.table/" in word for word in child.cmdline()):
                found.add(child.pid)
    assert found
    return found


def test_only_a_known_candidate_answers_through_the_served_table(triton, client, tmp_path):
    first = Served(triton.repository, client, tmp_path / "a")
    trained_run(tmp_path / "b", seed=1)
    staged = Deployment(triton.repository, client, first.name).stage(tmp_path / "b/model")
    table = table_tensors(first.encoder, user_rows(3))
    for request_id, version in (("dmls.candidate.2", 2), ("dmls.own", 1), ("", 1)):
        answer = client.infer_tensors(table_name(first.name), table, request_id=request_id)
        assert set(answer.as_numpy("version").ravel()) == {version}
    assert staged.version == 2
    for request_id in ("dmls.candidate.1", "dmls.candidate.3", "dmls.candidate.", "dmls.candidate.x"):
        with pytest.raises(ServingError, match=r"candidate"):
            client.infer_tensors(table_name(first.name), table, request_id=request_id)
    rows = user_rows(5)
    with connect(first.name, grpc=client.addresses["grpc"]) as model:
        assert len(model.predict(rows)["prediction"]) == 5
        Deployment(triton.repository, client, first.name).promote(2)
        expected = checkpoint.predict(
            checkpoint.load(tmp_path / "b/model/checkpoint.tl"), first.encoder.transform(rows)
        )
        assert np.array_equal(model.predict(rows)["probability_good"], expected[:, 1])


def test_an_old_version_that_was_removed_does_not_keep_the_table_from_loading(triton, client, tmp_path):
    first = Served(triton.repository, client, tmp_path / "a")
    folder = variant(tmp_path / "b", 1, fill=0.0, categories=["red"], labels=["a", "b", "c"])
    second = Served(triton.repository, client, folder, first.name)
    shutil.rmtree(triton.repository.root / table_name(first.name) / "1")
    client.unload(table_name(first.name))
    client.load(table_name(first.name))
    assert second.ask(user_rows(3))["version"].ravel().tolist() == [2] * 3


def test_without_the_forest_the_table_says_so(triton, client, tmp_path):
    served = Served(triton.repository, client, tmp_path / "run")
    client.unload(served.name)
    status, answer = served.post(body_of(served))
    assert status >= 400
    assert served.name in answer["error"]
