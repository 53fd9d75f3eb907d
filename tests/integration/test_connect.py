"""The Python client for DataFrames, against a real Triton server."""

from __future__ import annotations

import doctest
import inspect
import math
import os
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException
from tritonclient.utils.shared_memory import mapped_shared_memory_regions

from dmls_core.data.encoder import Encoder
from dmls_core.devstack.supervisor import wait_until
from dmls_core.errors import DataError, NotFoundError, PlatformError, ServingError
from dmls_core.serving import Deployment, Predictor, connect
from dmls_core.serving.triton.shared_memory import SharedInputs
from tests.services.seaweed import free_ports
from tests.support.table_endpoint import Served, change_encoder
from tests.support.trained_run import trained_run, user_rows


@pytest.fixture(scope="module")
def parts(triton, tmp_path_factory):
    with triton.client(timeout=60.0) as client:
        yield Served(triton.repository, client, tmp_path_factory.mktemp("parts") / "run")


@pytest.fixture
def model(parts):
    with connect(parts.name, grpc=parts.client.addresses["grpc"]) as model:
        yield model


def wanted(parts, rows):
    return Predictor(parts.repository, parts.client, parts.name).predict(rows)


def test_the_example_in_the_docstring_does_what_it_shows(parts):
    """As tests/unit/test_docstring_examples.py does for what needs no Triton."""
    failures = []
    text = inspect.getdoc(connect).replace("triton.example:8001", parts.client.addresses["grpc"])
    test = doctest.DocTestParser().get_doctest(
        text.replace("lab.parts", parts.name), {}, "connect", None, None
    )
    results = doctest.DocTestRunner().run(test, out=failures.append)
    assert failures == []
    assert results.attempted == 4


@pytest.mark.parametrize("n_rows", [1, 200, 20_000])
def test_a_pandas_frame_comes_back_with_its_index(parts, model, n_rows):
    frame = pd.DataFrame(user_rows(n_rows, seed=2), index=[f"row {i}" for i in range(n_rows)])
    frame["note"] = "not for the model"
    out = model.predict(frame)
    answers = wanted(parts, frame)
    assert list(out.columns) == ["prediction", *(f"probability_{label}" for label in model.labels)]
    assert out.index.equals(frame.index)
    assert out["prediction"].tolist() == answers.values
    assert np.array_equal(out.iloc[:, 1:].to_numpy(), answers.probabilities)


def test_a_polars_frame_comes_back_as_one(parts, model):
    rows = user_rows(300, seed=2)
    out = model.predict(pl.DataFrame(rows))
    answers = wanted(parts, rows)
    assert out.schema["prediction"] == pl.String
    assert out["prediction"].to_list() == answers.values
    assert np.array_equal(out.drop("prediction").to_numpy(), answers.probabilities)


@pytest.mark.parametrize(
    "convert",
    [
        lambda f: f.convert_dtypes(),
        lambda f: f.astype({"colour": "category"}),
        lambda f: f.astype({"size": "float32", "count": "uint8"}),
        lambda f: f.astype({"size": object, "count": str}),
        lambda f: {name: f[name].tolist() for name in f},
        lambda f: pl.DataFrame(f.astype({"colour": object}).to_dict("list"), strict=False).cast(
            {"colour": pl.Categorical}
        ),
    ],
)
def test_types_of_columns_do_not_matter(parts, model, convert):
    frame = pd.DataFrame(user_rows(100, seed=6))
    out = model.predict(convert(frame))
    assert list(out["prediction"]) == wanted(parts, frame).values


def test_numbers_and_truths_can_be_categories(triton, tmp_path):
    folder = tmp_path / "run"
    trained_run(folder)
    change_encoder(folder / "model", lambda e: e["features"][2].update(categories=["0.1", "2", "true"]))
    with triton.client() as client:
        served = Served(triton.repository, client, folder)
        with connect(served.name, grpc=client.addresses["grpc"]) as model:
            for values in (
                pd.Series([0.1, 2.0, 3.0], dtype="float32"),
                pd.Series([True, False, True]),
                pd.Series([2, 2, 7]),
                pd.Series(["2.0", " true ", None]),
            ):
                frame = pd.DataFrame({"size": [0.5, 1.5, -1.0], "count": [1, 2, 3], "colour": values})
                expected = served.expected(frame)
                assert np.array_equal(model.predict(frame).iloc[:, 1:].to_numpy(), expected)


def test_a_regression_gives_one_column(triton, tmp_path):
    with triton.client() as client:
        served = Served(triton.repository, client, tmp_path / "run", regression=True)
        frame = pd.DataFrame(user_rows(50))
        with connect(served.name, grpc=client.addresses["grpc"]) as model:
            out = model.predict(frame)
            assert list(out.columns) == ["prediction"]
            assert out["prediction"].dtype == np.float32
            assert np.abs(out["prediction"].to_numpy() - served.expected(frame)).max() <= 1e-5
            assert list(model.predict(frame.head(0)).columns) == ["prediction"]
            assert model.labels == ()


def test_wide_tables_go_in_small_requests(parts, model, monkeypatch):
    monkeypatch.setattr("dmls_core.serving.predict.connect.REQUEST_BYTES", 3 * 8 * 7)
    rows = user_rows(30)
    assert model.predict(rows)["prediction"].tolist() == wanted(parts, rows).values


@pytest.fixture
def regions(parts):
    """What Triton has open of shared memory, name -> bytes: nothing of it may be left after a test."""
    seen = set()

    def listed():
        found = client.get_system_shared_memory_status(as_json=True).get("regions", {})
        seen.update(found)
        return {name: int(about["byte_size"]) for name, about in found.items()}

    with InferenceServerClient(parts.client.addresses["grpc"]) as client:
        yield listed
        assert listed() == {}
    assert mapped_shared_memory_regions() == []
    assert not [name for name in seen if Path("/dev/shm", name).exists()]


def test_shared_memory_gives_the_same_answers_from_one_region_that_grows(parts, model, regions):
    sizes = []
    with connect(parts.name, grpc=parts.client.addresses["grpc"], shared_memory=True) as shared:
        for n_rows in (1, 20_000, 3):
            frame = pd.DataFrame(user_rows(n_rows, seed=n_rows))
            pd.testing.assert_frame_equal(shared.predict(frame), model.predict(frame), check_exact=True)
            sizes += regions().values()
        assert len(shared.predict(frame.head(0))) == 0
    assert len(sizes) == 3
    assert sizes[0] < sizes[1] == sizes[2]


def unregistered(client: InferenceServerClient) -> bool:
    try:
        client.unregister_system_shared_memory()
    except InferenceServerException as error:
        if "Failed to unregister" not in str(error):
            raise
        return False
    return True


def test_shared_memory_survives_what_the_server_forgets_and_refuses(parts, regions):
    rows = user_rows(5)
    client = InferenceServerClient(parts.client.addresses["grpc"])
    with client, connect(parts.name, grpc=parts.client.addresses["grpc"], shared_memory=True) as model:
        answers = model.predict(rows)["prediction"].tolist()
        # As after a restart. Triton may still hold the region for a moment after its answer.
        wait_until(lambda: unregistered(client), 30)
        assert model.predict(rows)["prediction"].tolist() == answers
        shared = SharedInputs(client, "here", timeout=60)
        assert len(regions()) == 2

        def interrupted():
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            shared.ask({}, interrupted)
        assert len(regions()) == 1  # what was not answered is never written to again


def test_shared_memory_that_cannot_be_is_said(parts, regions, monkeypatch):
    address = parts.client.addresses["grpc"]
    register = InferenceServerClient.register_system_shared_memory
    with monkeypatch.context() as patched:
        # A server elsewhere finds no region of this name.
        patched.setattr(
            InferenceServerClient,
            "register_system_shared_memory",
            lambda client, name, key, *rest, **options: register(client, name, f"{key}-", *rest, **options),
        )
        with pytest.raises(ServingError, match=rf"{address} cannot use this machine's shared memory"):
            connect(parts.name, grpc=address, shared_memory=True)
    room = os.statvfs("/dev/shm")
    monkeypatch.setattr(
        "dmls_core.serving.triton.shared_memory.START_BYTES", (room.f_blocks + 1) * room.f_frsize
    )
    with pytest.raises(ServingError, match="/dev/shm has no room"):
        connect(parts.name, grpc=address, shared_memory=True)


def test_rows_unlike_those_of_the_training_are_noted(triton, tmp_path, monkeypatch):
    name, ranges = "lab.noted", {"size": (-9.0, 9.0)}
    trained_run(tmp_path / "run")
    change_encoder(
        tmp_path / "run/model",
        lambda encoder: encoder.update(Encoder.from_json(encoder).with_ranges(ranges).as_json()),
    )
    monkeypatch.setattr("dmls_core.serving.predict.connect.MAX_BATCH_SIZE", 3)
    frame = {
        "size": [0.1, 0.2, 0.3, 77, None],
        "count": [1, 2, 3, 4, None],
        "colour": ["red", "Red", "", "blue", None],
    }
    with triton.client(timeout=60.0) as client:
        Deployment(triton.repository, client, name).deploy(tmp_path / "run/model")
        address = client.addresses["grpc"]
    with connect(name, grpc=address) as model:
        with pytest.warns(UserWarning, match="rows unlike those of the training: 3; row 2: column 'colour'"):
            predicted = model.predict(frame)
        assert model.notes == {
            1: ["column 'colour': 'Red' does not occur in the training data; the nearest category is 'red'"],
            3: ["column 'size': 77 is above the range of the training data, -9 to 9"],
            4: ["all columns of the model are missing"],
        }
        with pytest.raises(DataError, match="training: 3; row 2"):
            model.predict(frame, strict=True)
        usual = {column: values[:1] for column, values in frame.items()}
        assert model.predict(usual, strict=True)["prediction"][0] == predicted["prediction"][0]
        assert model.notes == {}
        with pytest.warns(UserWarning, match="the model has no column 'id', '7'$"):
            model.predict({"id": [1], 7: ["x"]} | usual)
        with pytest.raises(DataError, match="the model has no column 'id'$"):
            model.predict({"id": [1]} | usual, strict=True)
        with pytest.raises(DataError, match="column 'size', row 1: inf is beyond the range"):
            model.predict(usual | {"size": [math.inf]})
    metrics = f"http://{triton.context.address('triton_metrics')}/metrics"
    counted = f'dmls_notes_total{{kind="unknown-category",model="{name}"}} 2'

    def are_counted() -> bool:
        with connect(name, grpc=address) as model:
            model.predict(usual)
        with urlopen(metrics) as answer:
            return counted in answer.read().decode()

    wait_until(are_counted, 30)


def test_an_empty_frame_gives_an_empty_one(model):
    out = model.predict(pd.DataFrame({"size": [], "count": [], "colour": []}))
    assert (len(out), out.columns[0]) == (0, "prediction")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.rename(columns={"colour": "color"}), r"column 'colour' is missing \(is it 'color'\?\)"),
        (lambda f: f[["count"]], r"(?s)'size' is missing.*'colour' is missing"),
        (lambda f: f.assign(size=["1", "x", "2"]), r"column 'size', row 2: 'x' is not a number"),
        (lambda f: pd.concat([f, f[["size"]]], axis=1), "'size' occurs more than once"),
        (lambda f: {**f.to_dict("list"), "count": [1]}, "differ in length"),
        (
            lambda f: {**f.to_dict("list"), "colour": ["red", "\udcff", "red"]},
            "'colour' holds a text that is not Unicode",
        ),
    ],
)
def test_what_does_not_fit_is_named(model, change, message):
    with pytest.raises(DataError, match=message):
        model.predict(change(pd.DataFrame(user_rows(3))))


def test_another_version_with_other_columns_and_labels_is_noticed(triton, tmp_path):
    with triton.client() as client:
        served = Served(triton.repository, client, tmp_path / "a")
        frame = pd.DataFrame(user_rows(30))
        with connect(served.name, grpc=client.addresses["grpc"]) as model:
            assert model.labels == ("bad", "good", "so-so")
            folder = tmp_path / "b"
            trained_run(folder, seed=1)

            def change(encoder):
                encoder["features"][0]["name"] = "length"
                encoder["target"]["labels"] = ["x", "y", "z"]

            change_encoder(folder / "model", change)
            Served(triton.repository, client, folder, served.name)
            renamed = frame.rename(columns={"size": "length"})
            assert set(model.predict(renamed)["prediction"]) <= {"x", "y", "z"}
            with pytest.raises(DataError, match="missing: 'length'|'length' is missing"):
                model.predict(frame)
            # Whichever is live: its columns and labels are right.
            Deployment(triton.repository, client, served.name).rollback(1)
            assert set(model.predict(frame)["prediction"]) <= {"bad", "good", "so-so"}


def test_what_is_not_there_is_said(parts):
    address = parts.client.addresses["grpc"]
    with pytest.raises(NotFoundError, match=r"does not serve lab\.none\.table: deploy lab\.none first"):
        connect("lab.none", grpc=address)
    with pytest.raises(ServingError, match="not a model name"):
        connect("lab.none.table", grpc=address)
    (port,) = free_ports(1)
    with pytest.raises(ServingError, match=f"127.0.0.1:{port} does not answer"):
        connect(parts.name, grpc=f"127.0.0.1:{port}", timeout=2)


def test_the_address_may_come_from_the_environment(parts, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DMLS_HOME", raising=False)
    monkeypatch.setenv("DMLS_TRITON_GRPC", parts.client.addresses["grpc"])
    with connect(parts.name) as model:
        assert model.columns == ("size", "count", "colour")
    monkeypatch.delenv("DMLS_TRITON_GRPC")
    with pytest.raises(PlatformError, match="DMLS_TRITON_GRPC"):
        connect(parts.name)
