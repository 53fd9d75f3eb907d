"""Deploy, verify, roll back and predict through a real Triton server."""

from __future__ import annotations

import csv
import io
import itertools
import json
import threading
import time
from urllib.request import urlopen

import numpy as np
import pytest
import treelite

from dmls_core.errors import DataError, NotFoundError, ServingError
from dmls_core.serving import Deployment, Predictor, TritonClient, choose_scaling, predict_file
from dmls_core.serving.formats.treelite.gtil import predict_float32
from dmls_core.serving.repository.options import ScalingChoice, read_scaling_choice, write_scaling_choice
from dmls_core.serving.triton.model_config import SIMPLEST, Scaling, table_name
from tests.services.seaweed import free_ports
from tests.support.trained_run import record_checkpoint, trained_run, user_rows

names = (f"lab.parts{number}" for number in itertools.count())


@pytest.fixture
def name() -> str:
    return next(names)


@pytest.fixture
def client(triton):
    with triton.client(timeout=20.0) as client:
        yield client


@pytest.fixture
def repository(triton):
    return triton.repository


@pytest.fixture
def candidate(tmp_path):
    """Trains a forest and returns its model folder; another seed is another forest."""

    def make(seed=0, **options):
        folder = tmp_path / f"{seed}-{len(options)}"
        if not folder.exists():
            trained_run(folder, seed=seed, **options)
        return folder / "model"

    return make


def golden(folder):
    return json.loads((folder / "golden.json").read_text())


def boosted(folder, kind):
    """Put a boosted model into a model folder, and what it answers into its golden rows."""
    from dmls_core.serving.formats.treelite import checkpoint

    rows = golden(folder)
    x = np.asarray(rows["encoded"], np.float32)
    rng = np.random.default_rng(0)
    if kind == "xgboost":
        import xgboost

        fitted = xgboost.XGBClassifier(n_estimators=5, max_depth=3).fit(x, rng.integers(0, 2, len(x)))
        model = treelite.frontend.from_xgboost(fitted.get_booster())
    elif kind == "catboost":
        from dmls_core.models import CATALOGUE
        from dmls_core.models.catalogue import load_engine

        of, classes = CATALOGUE["catboost-classifier"], rng.integers(0, 3, len(x)).astype(np.int32)
        options = {"n_classes": 3, "seed": 0, "threads": 1}
        model = load_engine("cpu", of.name).fit(of, {"n_estimators": 5}, x, classes, **options).to_treelite()
    else:
        import lightgbm

        fitted = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(x, 1e6 * rng.normal(size=len(x)))
        model = treelite.frontend.from_lightgbm(fitted.booster_)
    served = checkpoint.export(model, folder / "checkpoint.tl")
    rows["expected"] = checkpoint.predict(served, x).reshape(len(x), -1).tolist()
    (folder / "golden.json").write_text(json.dumps(rows))
    record_checkpoint(folder)


@pytest.mark.parametrize("kind", ["classes", "binary", "regression", "catboost", "xgboost", "lightgbm"])
def test_every_kind_of_model_is_deployed_and_verified(triton, repository, client, candidate, name, kind):
    folder = candidate(binary=kind in ("binary", "xgboost"), regression=kind in ("regression", "lightgbm"))
    if kind in ("catboost", "xgboost", "lightgbm"):
        boosted(folder, kind)
    deployment = Deployment(repository, client, name).deploy(folder)
    assert (deployment.version, deployment.previous) == (1, None)
    assert Deployment(repository, client, name).verify(1).rows == 90
    assert client.versions(name) == (1,)
    assert repository.verified(name) == (1,)


def test_a_second_version_replaces_the_first_and_back(repository, client, candidate, name):
    deployment = Deployment(repository, client, name)
    deployment.deploy(candidate(0))
    deployment.verify(1)
    second = deployment.deploy(candidate(1))
    assert (second.version, second.previous) == (2, 1)
    deployment.verify(2)
    assert deployment.deploy(candidate(0)).version == 1, "the same content is the same version"
    deployment.verify(1)
    deployment.rollback(2)
    deployment.verify(2)
    assert repository.versions(name) == (1, 2)
    rows = np.asarray(golden(candidate(1))["encoded"], np.float32)
    expected = np.asarray(golden(candidate(1))["expected"], np.float32)
    for protocol in ("http", "grpc"):
        assert np.abs(client.infer(name, rows, protocol=protocol) - expected).max() <= 1e-6


def test_a_checkpoint_that_cannot_be_loaded_leaves_the_old_version_answering(
    repository, client, candidate, name
):
    deployment = Deployment(repository, client, name)
    deployment.deploy(candidate(0))
    deployment.verify(1)
    bad = candidate(1)
    (bad / "checkpoint.tl").write_bytes((bad / "checkpoint.tl").read_bytes()[:1000])
    with pytest.raises(ServingError, match=r"damaged: its SHA-256 is .*Version 1 is still served"):
        deployment.deploy(bad)
    record_checkpoint(bad)
    with pytest.raises(ServingError, match=r"(?s)Triton did not load it: .*Version 1 is still served"):
        deployment.deploy(bad)
    assert client.versions(name) == (1,)
    assert deployment.verify(1).rows == 90
    assert client.live(), "a failed load does not make the server look dead"


def test_a_model_of_the_wrong_shape_is_not_loaded(repository, client, candidate, name):
    deployment = Deployment(repository, client, name)
    folder = candidate(0)
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(about | {"n_features": 2}))
    with pytest.raises(ServingError, match="features: found 3, expected 2. No other version was served"):
        deployment.deploy(folder)
    assert client.versions(name) == ()
    (folder / "model.json").write_text(json.dumps(about))
    assert deployment.deploy(folder).version == 1
    assert deployment.verify(1).rows == 90


def test_a_model_that_answers_otherwise_is_found_out_and_rolled_back(repository, client, candidate, name):
    deployment = Deployment(repository, client, name)
    deployment.deploy(candidate(0))
    deployment.verify(1)
    other = candidate(1)
    (other / "checkpoint.tl").write_bytes((candidate(0) / "checkpoint.tl").read_bytes())
    record_checkpoint(other)
    message = rf"{name} version 2 over http: golden row \d+ expected '.*got '.*Version 1 is still served"
    with pytest.raises(ServingError, match=message):
        deployment.deploy(other)
    assert client.versions(name) == (1,)
    assert client.versions(f"{name}.candidate") == ()
    assert deployment.verify(1).rows == 90


def test_a_first_version_that_fails_is_taken_down(repository, client, candidate, name):
    folder = candidate(0)
    rows = golden(folder)
    rows["expected"][7] = [1.0, 0.0, 0.0] if rows["expected"][7][0] < 0.5 else [0.0, 1.0, 0.0]
    (folder / "golden.json").write_text(json.dumps(rows))
    with pytest.raises(ServingError, match="golden row 7 expected"):
        Deployment(repository, client, name).deploy(folder)
    assert client.versions(name) == ()
    with pytest.raises(NotFoundError):
        Predictor(repository, client, name)


@pytest.mark.parametrize(
    "kind",
    ["forest", pytest.param("booster", marks=pytest.mark.nightly("`make test` does it with a forest"))],
)
def test_thousands_of_trees_are_verified_with_a_tolerance_of_their_own(
    triton, repository, client, candidate, name, kind
):
    """The library's own answers, in float64, take the place of the golden rows'."""
    from dmls_core.serving.formats.treelite import checkpoint

    folder = candidate()
    rows = golden(folder)
    x = np.asarray(rows["encoded"], np.float32)
    y = np.random.default_rng(0).integers(0, 3, len(x))
    if kind == "forest":
        from sklearn.ensemble import RandomForestClassifier
        from treelite.sklearn import import_model

        fitted = RandomForestClassifier(50, max_depth=4, random_state=0).fit(x, y)
        model = treelite.Model.concatenate([import_model(fitted)] * 100)
    else:
        import lightgbm

        fitted = lightgbm.LGBMClassifier(
            n_estimators=1_500, num_leaves=4, learning_rate=0.01, min_child_samples=5, verbose=-1, n_jobs=1
        ).fit(x, y)
        model = treelite.frontend.from_lightgbm(fitted.booster_)
    served = checkpoint.export(model, folder / "checkpoint.tl")
    rows["expected"] = fitted.predict_proba(x).tolist()
    rows["tolerance"] = checkpoint.tolerance(served, x)
    (folder / "golden.json").write_text(json.dumps(rows))
    record_checkpoint(folder)
    Deployment(repository, client, name).deploy(folder)
    assert np.array_equal(client.infer(name, x), checkpoint.predict(served, x))


def test_requests_go_on_while_versions_change(triton, repository, client, candidate, name):
    """Each answer, over both protocols, is one of the versions', and none fails."""
    deployment = Deployment(repository, client, name)
    known = [np.asarray(golden(candidate(seed))["expected"], np.float32)[:8] for seed in (0, 1)]
    rows = np.asarray(golden(candidate(0))["encoded"], np.float32)[:8]
    known[1] = predict_float32(treelite.Model.deserialize(candidate(1) / "checkpoint.tl"), rows)
    deployment.deploy(candidate(0))
    stop, wrong, asked = threading.Event(), [], []

    def ask(protocol):
        with triton.client(timeout=20.0) as own:
            while not stop.is_set():
                try:
                    answer = own.infer(name, rows, protocol=protocol)
                except ServingError as error:
                    wrong.append(str(error))
                    continue
                asked.append(protocol)
                if not any(np.abs(answer - expected).max() <= 1e-6 for expected in known):
                    wrong.append(f"an answer of no version: {answer}")

    threads = [threading.Thread(target=ask, args=[protocol]) for protocol in ("http", "grpc")]
    for thread in threads:
        thread.start()
    for seed in (1, 0, 1, 0):
        deployment.deploy(candidate(seed))
        time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert {"http", "grpc"} <= set(asked)


def test_what_is_measured_is_served_with_what_was_chosen(triton, repository, client, candidate, name):
    deployment = Deployment(repository, client, name)
    deployment.deploy(candidate(0))
    staged = deployment.stage(candidate(1))
    choice = choose_scaling(deployment, staged.version)
    assert choice == read_scaling_choice(repository.store, name, staged.version)
    assert [found.scaling for found in choice.measured][:1] in ([SIMPLEST], []), "or time was up"
    assert all(sum(found.rates) > 0 for found in choice.measured)
    assert client.versions(name) == (1,)
    # Whatever this machine preferred: two instances are served as well.
    two = ScalingChoice(Scaling(2, batching=False), "chosen by the test")
    write_scaling_choice(repository.store, name, staged.version, two, repository.versions(name))
    deployment.promote(staged.version)
    for endpoint in (name, table_name(name)):
        with urlopen(f"http://{client.addresses['http']}/v2/models/{endpoint}/config", timeout=60) as answer:
            config = json.load(answer)
        assert config["instance_group"][0]["count"] == 2
        assert "dynamic_batching" not in config
    assert deployment.verify(2).rows == 90
    deployment.rollback(1)
    assert deployment.verify(1).rows == 90


def test_two_publishers_at_once_end_in_one_served_version(triton, repository, candidate, name):
    folders = [candidate(seed) for seed in (0, 1)]
    done, failed = [], []

    def publish(folder):
        try:
            with triton.client() as own:
                done.append(Deployment(repository, own, name).deploy(folder).version)
        except ServingError as error:
            failed.append(error)

    threads = [threading.Thread(target=publish, args=[folder]) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(done) == [1, 2]
    with triton.client() as own:
        assert own.versions(name) == (repository.serving(name),)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_csv_comes_back_with_labels(repository, client, candidate, name, protocol, tmp_path):
    Deployment(repository, client, name).deploy(candidate(0))
    rows = user_rows(5000, seed=9)
    rows["colour"][3] = "mauve"
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    with source.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "colour", "count", " size "])
        writer.writerows(
            [i, *("" if v is None else v for v in values)]
            for i, values in enumerate(zip(rows["colour"], rows["count"], rows["size"], strict=True))
        )
    predictor = Predictor(repository, client, name, protocol=protocol)
    assert predict_file(predictor, source, target) == 5000
    with target.open(newline="") as file:
        out = list(csv.DictReader(file))
    model = treelite.Model.deserialize(candidate(0) / "checkpoint.tl")
    expected = predict_float32(model, predictor.encoder.transform(rows))
    labels = predictor.encoder.target.labels
    assert [row["id"] for row in out] == [str(i) for i in range(5000)]
    assert [row["prediction"] for row in out] == [labels[i] for i in expected.argmax(axis=1)]
    got = np.array([[float(row[f"probability_{label}"]) for label in labels] for row in out])
    assert np.abs(got - expected).max() <= 1e-6
    source.write_text("size,count\n1,2\n")
    with pytest.raises(DataError, match="no column 'colour'"):
        predict_file(predictor, source, io.StringIO())


def test_a_wrong_address_is_named():
    (port,) = free_ports(1)
    with TritonClient(f"127.0.0.1:{port}", f"127.0.0.1:{port}", timeout=2) as client:
        assert not client.live()
        for protocol in ("http", "grpc"):
            with pytest.raises(ServingError, match=f"does not answer at {protocol}://127.0.0.1:{port}"):
                client.infer("lab.iris", np.zeros((1, 2), np.float32), protocol=protocol)
        with pytest.raises(ServingError, match="does not answer"):
            client.load("lab.iris")


def test_what_triton_refuses_is_not_taken_for_its_absence(client):
    with pytest.raises(ServingError, match=r"could not infer with lab.none version 1: .*unknown model"):
        client.infer("lab.none", np.zeros((1, 2), np.float32), version=1, protocol="grpc")
    with pytest.raises(ServingError, match=r"could not infer with lab.none version latest: .*unknown model"):
        client.infer("lab.none", np.zeros((1, 2), np.float32), protocol="http")
    with pytest.raises(ServingError, match=r"could not load lab\.none"):
        client.load("lab.none")
    assert client.versions("lab.none") == ()
