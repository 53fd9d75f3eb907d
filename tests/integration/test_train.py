"""Whole training runs: on a folder and on S3, killed and resumed, refused and stopped early."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_core.data.encoder import CategoryFeature, Encoder
from dmls_core.errors import DataError, SpecError, UserError
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.store import open_store
from dmls_core.training import TrainRequest, train
from tests.services.seaweed import S3Server

FOREST = """model = "random-forest-classifier"
n_trials = {n_trials}
[columns]
target = "species"
[n_estimators]
min = {low}
max = {high}
[criterion]
values = ["gini", "entropy"]
"""

BOOSTED = """model = "{model}"
n_trials = 3
[columns]
target = "price"
[n_estimators]
min = 20
max = 80
[max_depth]
min = 2
max = 6
"""


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    """A folder with ``spec.toml`` and ``iris.csv``."""
    from sklearn.datasets import load_iris

    data = load_iris()
    lines = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    lines += [
        ",".join(map(str, [*row, data.target_names[code]]))
        for row, code in zip(data.data.tolist(), data.target, strict=True)
    ]
    (tmp_path / "iris.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(FOREST.format(n_trials=4, low=20, high=60))
    return tmp_path


def flats(path: Path, rows: int = 400) -> Path:
    """Flats with a category, missing values and prices that depend on both."""
    rng = np.random.default_rng(0)
    district = rng.choice(["Döbling", "Favoriten", "Innere, Stadt"], rows)
    area, floor = rng.uniform(20, 150, rows), rng.integers(0, 12, rows)
    price = 4000 * area * (1 + (district == "Innere, Stadt")) + 1000 * floor + rng.normal(0, 9000, rows)
    lines = ["district,area,floor,price"]
    for row in range(rows):
        name = "" if row % 11 == 0 else f'"{district[row]}"'
        size = "" if row % 7 == 0 else f"{area[row]:.2f}"
        lines.append(f"{name},{size},{floor[row]},{price[row]:.2f}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def request(folder: Path, **changes: Any) -> TrainRequest:
    return TrainRequest(
        **{
            "spec": str(folder / "spec.toml"),
            "data": (str(folder / "iris.csv"),),
            "out": str(folder / "out"),
            "team": "lab",
            "name": "iris",
        }
        | changes
    )


def check_answers(out: Path) -> None:
    """The model's files say the same of the golden rows, and every artifact is what ``result.json`` says."""
    result = json.loads((out / "result.json").read_text())
    golden = json.loads((out / "model/golden.json").read_text())
    encoder = Encoder.from_json(json.loads((out / "model/encoder.json").read_text()))
    assert all(isinstance(feature, CategoryFeature) or feature.range for feature in encoder.features)
    about = json.loads((out / "model/model.json").read_text())
    encoded = np.array(golden["encoded"], dtype=np.float32)
    assert np.array_equal(encoder.transform(golden["columns"]), encoded, equal_nan=True)
    served = checkpoint.predict(checkpoint.load(out / "model/checkpoint.tl"), encoded)
    expected = np.array(golden["expected"], dtype=np.float32)
    assert (served.reshape(expected.shape) == expected).all()
    assert about["n_outputs"] == expected.shape[1]
    assert about["score"] == result["score"]
    assert {a["name"] for a in result["artifacts"]} >= {
        "model/card.html",
        "model/checkpoint.tl",
        "model/encoder.json",
        "model/golden.json",
        "model/model.json",
        "insight.json",
        "report.html",
        "validation/validation.json",
    }
    for artifact in result["artifacts"]:
        content = (out / artifact["name"]).read_bytes()
        assert len(content) == artifact["bytes"]
        assert hashlib.sha256(content).hexdigest() == artifact["sha256"]


def test_iris_in_a_folder(iris: Path, monkeypatch: pytest.MonkeyPatch):
    scratch = iris / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    lines: list[str] = []

    result = train(request(iris), progress=lines.append)

    assert result == json.loads((iris / "out/result.json").read_text())
    assert result["status"] == "finished"
    assert (result["team"], result["job"], len(result["run_key"])) == ("lab", "iris", 16)
    assert (result["metric"], result["direction"], result["engine"]) == ("accuracy", "maximize", "cpu")
    assert result["score"] >= 0.9
    assert result["labels"] == ["setosa", "versicolor", "virginica"]
    assert result["features"] == ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    assert result["n_trials"] == 4
    assert result["best_params"]["max_features"] == "sqrt"
    assert 20 <= result["best_params"]["n_estimators"] <= 60
    assert (result["data"]["rows"], result["data"]["holdout_rows"]) == (150, 30)
    assert result["data"]["hash"] == hashlib.sha256((iris / "iris.csv").read_bytes()).hexdigest()
    phases = {"load", "validate", "search", "refit", "export", "score", "report", "total"}
    assert set(result["seconds"]) == phases
    low, high = result["holdout"]["interval"]
    assert low <= result["score"] <= high
    assert set(result["permutation"]) <= set(result["features"])
    assert result["warnings"] == []
    assert "The model on the holdout" in (iris / "out/report.html").read_text()
    assert set(result["versions"]) >= {"python", "dmls", "scikit-learn", "treelite", "optuna"}
    assert result["holdout"]["metrics"]["accuracy"] == result["score"]
    check_answers(iris / "out")
    assert [line for line in lines if line.startswith("trial 3  accuracy 0.") and "  4 of 4" in line]
    assert json.loads((iris / "out/progress.json").read_text())["state"] == "finished"
    assert not list(scratch.iterdir())

    again = train(request(iris), progress=lines.append)

    assert again == result
    assert lines[-1] == f"the run {result['run_key']} is finished already"


@pytest.mark.parametrize(
    "model", ["catboost-regressor", "xgboost-regressor", "lightgbm-regressor", "extra-trees-regressor"]
)
def test_a_regressor_with_a_category_and_missing_values(model: str, tmp_path: Path):
    flats(tmp_path / "flats.csv")
    (tmp_path / "spec.toml").write_text(
        BOOSTED.format(model=model).replace("max_depth", "depth" if "catboost" in model else "max_depth")
    )

    result = train(request(tmp_path, data=(str(tmp_path / "flats.csv"),)))

    assert result["metric"] == "r2"
    assert result["score"] > 0.7
    assert result["labels"] is None
    assert result["importances"]["area"] > result["importances"]["floor"]
    golden = json.loads((tmp_path / "out/model/golden.json").read_text())
    assert None in golden["columns"]["area"]
    assert None in golden["columns"]["district"]
    assert any(None in row for row in golden["encoded"]) is not model.startswith("extra")
    check_answers(tmp_path / "out")


def test_the_same_seed_gives_the_same_run(iris: Path):
    one, same = (train(request(iris, out=str(iris / name))) for name in ("a", "b"))

    for key in ("score", "cv_score", "best_params", "importances"):
        assert one[key] == same[key]
    checkpoints = [(iris / name / "model/checkpoint.tl").read_bytes() for name in ("a", "b")]
    assert checkpoints[0] == checkpoints[1]


def command(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dmls_core.cli", "train", *arguments],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_trials(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while len(list((out / "trials").glob("*.json"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_killed_and_started_again_it_pays_no_trial_twice(iris: Path):
    (iris / "spec.toml").write_text(FOREST.format(n_trials=6, low=200, high=400))
    arguments = [str(iris / "spec.toml"), str(iris / "iris.csv"), "--out", str(iris / "out"), "--json"]
    reference = train(request(iris, out=str(iris / "reference")))

    for kept in (1, 3):
        process = command(arguments)
        wait_for_trials(iris / "out", kept, process)
        process.kill()
        process.wait()
        assert not (iris / "out/result.json").exists()
    paid = {path.name: path.read_bytes() for path in (iris / "out/trials").glob("*.json")}
    assert len(paid) >= 3
    process = command(arguments)
    stdout, stderr = process.communicate(timeout=180)

    assert process.returncode == 0, stderr
    result = json.loads(stdout)
    assert f"continuing after {len(paid)} trial" in stderr
    went_on = 0
    for name, content in paid.items():
        before, now = json.loads(content), json.loads((iris / "out/trials" / name).read_bytes())
        # What went on to more trees kept what it had; nothing else was touched.
        went_on += before != now
        assert before == now or before["steps"] < now["steps"]
        assert (
            now["intermediate_values"][: len(before["intermediate_values"])] == before["intermediate_values"]
        )
        assert now["seconds"] >= before["seconds"]
    assert went_on < len(paid)
    assert result["n_trials"] == 6
    # A kill in the middle of a write leaves a hidden file, which no listing shows.
    assert len(list((iris / "out/trials").glob("*.json"))) == 6
    for key in ("score", "cv_score", "best_params", "best_trial"):
        assert result[key] == reference[key]
    earlier = sum(json.loads(content)["seconds"] for content in paid.values())
    assert result["seconds"]["search"] >= earlier
    check_answers(iris / "out")


def test_sigterm_leaves_no_process_and_no_scratch(iris: Path):
    (iris / "spec.toml").write_text(FOREST.format(n_trials=50, low=200, high=400))
    (iris / "scratch").mkdir()
    process = command(
        [str(iris / "spec.toml"), str(iris / "iris.csv"), "--out", str(iris / "out")],
        TMPDIR=str(iris / "scratch"),
    )
    wait_for_trials(iris / "out", 1, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()

    process.send_signal(signal.SIGTERM)

    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert not list((iris / "scratch").iterdir())
    assert not [child for child in children if Path(f"/proc/{child}").exists()]


def test_expectations_that_fail_stop_the_search_early(iris: Path):
    # More trials than a machine has time for before the data is validated.
    spec = FOREST.format(n_trials=5000, low=300, high=400) + "[max_features]\nmin = 0.1\nmax = 1.0\n"
    (iris / "spec.toml").write_text(spec + "[expectations.columns.sepal_width]\nmax = 3.0\n")

    with pytest.raises(DataError, match="sepal_width"):
        train(request(iris))

    error = json.loads((iris / "out/error.json").read_text())
    assert (error["kind"], error["exit_code"]) == ("DataError", 1)
    assert error["issues"][0]["key"] == "sepal_width"
    assert "sepal_width" in (iris / "out/validation/data_docs/index.html").read_text()
    assert len(list((iris / "out/trials").iterdir())) < 5000
    assert json.loads((iris / "out/progress.json").read_text())["state"] == "failed"
    assert not (iris / "out/result.json").exists()


@pytest.mark.parametrize(
    ("spec", "data", "error", "message"),
    [
        ("model = 3", "a,species\n1,x\n", SpecError, "model"),
        (FOREST.format(n_trials=1, low=5, high=9), "a,b\n1,2\n", DataError, "species"),
        (FOREST.format(n_trials=1, low=5, high=9), "", DataError, "empty"),
        (FOREST.format(n_trials=1, low=5, high=9), "a,species\n" + "1,x\n" * 50, DataError, "class"),
    ],
)
def test_a_users_mistake_is_an_answer_and_exit_code_1(
    spec: str, data: str, error: type[UserError], message: str, tmp_path: Path
):
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "data.csv").write_text(data)
    wrong = request(tmp_path, data=(str(tmp_path / "data.csv"),))

    with pytest.raises(error, match=message) as raised:
        train(wrong)

    written = json.loads((tmp_path / "out/error.json").read_text())
    assert written["kind"] == error.__name__
    assert written["message"] == str(raised.value)
    assert (tmp_path / "out/run.json").exists() is (error is DataError)


def test_a_mistake_mended_is_a_run_and_another_runs_folder_is_left_alone(iris: Path):
    data = (iris / "iris.csv").read_text()
    (iris / "iris.csv").write_text("")
    with pytest.raises(DataError):
        train(request(iris, run_key="0123456789abcdef"))
    (iris / "iris.csv").write_text(data)

    result = train(request(iris, run_key="0123456789abcdef"))

    assert result["run_key"] == "0123456789abcdef"
    assert not (iris / "out/error.json").exists()
    before = {path: path.read_bytes() for path in (iris / "out").rglob("*") if path.is_file()}
    (iris / "spec.toml").write_text(FOREST.format(n_trials=1, low=5, high=9))
    with pytest.raises(UserError, match="holds another run"):
        train(request(iris))
    assert {path: path.read_bytes() for path in (iris / "out").rglob("*") if path.is_file()} == before


def test_on_s3_with_etags(iris: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch):
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    root = f"s3://{s3_server.bucket()}/prefix"
    store = open_store(root)
    spec_text = (iris / "spec.toml").read_bytes()
    store.put("registry/specs/abc.json", _accepted(spec_text))
    data = store.put("incoming/lab/iris/iris.csv", (iris / "iris.csv").read_bytes())
    remote = request(
        iris,
        spec=f"{root}/registry/specs/abc.json",
        data=(f"{root}/{data.key}",),
        out=f"{root}/runs/lab/iris/0123456789abcdef",
        run_key="0123456789abcdef",
        etags=(data.etag,),
    )

    result = train(remote)

    local = iris / "copy"
    run = open_store(remote.out)
    for info in run.list(""):
        (local / info.key).parent.mkdir(parents=True, exist_ok=True)
        run.download(info.key, local / info.key)
    check_answers(local)
    assert result["data"]["objects"][0]["etag"] == data.etag
    assert result["n_trials"] == len(list((local / "trials").iterdir())) == 4

    store.put(data.key, b"sepal_length,species\n1,a\n")
    assert train(remote) == result
    with pytest.raises(DataError, match="has changed since"):
        train(request(iris, spec=remote.spec, data=remote.data, out=f"{root}/other", etags=remote.etags))
    assert json.loads(open_store(f"{root}/other").get("error.json"))["exit_code"] == 1


def _accepted(spec: bytes) -> bytes:
    from dmls_core.models import load_spec

    return load_spec(spec).canonical()


def test_rows_of_a_later_time_are_never_read(iris: Path) -> None:
    """What comes after the interval would break every step that read it."""
    heads, *rows = (iris / "iris.csv").read_text().splitlines()
    days = [f"2026-01-{1 + row % 28:02d}" for row in range(len(rows))]
    dated = [f"{heads},when", *(f"{row},{day}" for row, day in zip(rows, days, strict=True))]
    clean, poisoned = iris / "clean.csv", iris / "iris.csv"
    clean.write_text(
        "\n".join(line for line in dated if not line.endswith(("2026-01-27", "2026-01-28"))) + "\n"
    )
    poisoned.write_text("\n".join([*dated, "x,y,z,poison,unheard-of,2026-02-01"]) + "\n")
    spec = iris / "spec.toml"
    spec.write_text(FOREST.format(n_trials=2, low=20, high=40).replace("[n_", 'time = "when"\n[n_'))
    end = datetime(2026, 1, 27, tzinfo=UTC)

    result = train(request(iris, until=end))
    alone = train(request(iris, data=(str(clean),), out=str(iris / "alone")))

    assert result["data"]["rows"] == sum(day < "2026-01-27" for day in days)
    assert result["labels"] == ["setosa", "versicolor", "virginica"]
    assert (result["score"], result["best_params"]) == (alone["score"], alone["best_params"])
    assert result["data"]["hash"] == alone["data"]["hash"]
    assert (result["data"]["since"], result["data"]["until"]) == (None, "2026-01-27T00:00:00+00:00")
    with pytest.raises(DataError, match="no row has a time from"):
        train(
            request(iris, out=str(iris / "none"), since=end.replace(year=2027), until=end.replace(year=2028))
        )
