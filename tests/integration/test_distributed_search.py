"""Whole training runs with several models and several trainers, and a trainer killed again and again."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dmls_core.store import layout
from tests.services.postgres_server import PostgresServer

MODELS = """model = ["random-forest-classifier", "xgboost-classifier"]
n_trials = {n_trials}
[columns]
target = "species"
[n_estimators]
min = 10
max = 40
[random-forest-classifier.max_features]
min = 0.2
max = 1.0
[xgboost-classifier.max_depth]
min = 2
max = 6
[search]
folds = 2
workers = {workers}
"""

BOOSTED = """model = "xgboost-classifier"
n_trials = 40
[columns]
target = "species"
[n_estimators]
min = 100
max = 300
[learning_rate]
min = 0.001
max = 0.01
[max_depth]
min = 2
max = 8
[subsample]
min = 0.5
max = 1.0
"""


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    """A folder with ``iris.csv``, one feature of which is missing here and there."""
    from sklearn.datasets import load_iris

    data = load_iris()
    lines = ["sepal_length,sepal_width,petal_length,petal_width,species"]
    for number, (row, code) in enumerate(zip(data.data.tolist(), data.target, strict=True)):
        width = "" if number % 9 == 0 else row[1]
        lines.append(f"{row[0]},{width},{row[2]},{row[3]},{data.target_names[code]}")
    (tmp_path / "iris.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def train(folder: Path, *more: str, **variables: str) -> subprocess.Popen[str]:
    arguments = [str(folder / "spec.toml"), str(folder / "iris.csv"), "--out", str(folder / "out"), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "dmls_core.cli", "train", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "2"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output, errors


def trials(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "out/trials").glob("*.json"))]


def check_model(folder: Path) -> dict[str, Any]:
    """The winner's golden rows are encoded as the winner needs them, and the result names it."""
    result = json.loads((folder / "out/result.json").read_text())
    about = json.loads((folder / "out/model/model.json").read_text())
    golden = json.loads((folder / "out/model/golden.json").read_text())
    best = trials(folder)[result["best_trial"]]
    assert result["model"] == about["model"] == best["model"]
    assert (
        result["cv_score"]
        == best["value"]
        == max(trial["value"] for trial in trials(folder) if trial["state"] == "complete")
    )
    assert any(None in row for row in golden["encoded"]) is (result["model"] == "xgboost-classifier")
    return result


def test_two_models_compete_and_one_is_refitted(iris: Path):
    (iris / "spec.toml").write_text(MODELS.format(n_trials=8, workers=1))

    output, errors = ended(train(iris))

    result = check_model(iris)
    assert result["n_trials"] == 8
    assert [trial["number"] for trial in trials(iris)] == list(range(8))
    loser, winner = Counter(trial["model"] for trial in trials(iris)).most_common()[::-1]
    # A share for each, then the rest for the better one.
    assert (loser[1], winner) == (2, (result["model"], 6))
    assert result["model"] in output
    assert "8 of 8" in errors

    # Broken off and started again, they compete the same way.
    whole = trials(iris)
    for number in (3, 6, 7):
        (iris / f"out/trials/{number:05d}.json").unlink()
    (iris / "out/result.json").unlink()

    ended(train(iris))

    def gist(trial: dict[str, Any]) -> tuple[Any, ...]:
        return trial["number"], trial["model"], trial["params"], trial["value"]

    assert [gist(trial) for trial in trials(iris)] == [gist(trial) for trial in whole]


@pytest.mark.nightly(
    "`test_shared_search.py` shares searches, `e2e/test_workers.py` with trainers of Airflow"
)
def test_two_trainers_share_a_search_of_two_models(iris: Path, postgres: PostgresServer):
    postgres.empty()
    (iris / "spec.toml").write_text(MODELS.format(n_trials=14, workers=2))
    shared = {"DMLS_STUDY_URL": postgres.study_url}

    # The platform has asked the helper to leave, since another run waits.
    request = iris / "out" / layout.leave(1)
    request.parent.mkdir()
    request.touch()
    _, left_errors = ended(train(iris, "--worker", "1", **shared))
    assert [trial["number"] for trial in trials(iris)] == [0]
    assert "leaving the search: another run needs this slot" in left_errors

    request.unlink()
    leader, helper = (train(iris, "--worker", str(worker), **shared) for worker in range(2))
    output, errors = ended(leader)
    helped, helper_errors = ended(helper)

    result = check_model(iris)
    assert result["n_trials"] == 14
    assert [trial["number"] for trial in trials(iris)] == list(range(14))
    texts = (left_errors, errors, helper_errors)
    lines = [line for text in texts for line in text.splitlines() if "accuracy 0" in line]
    # Forests that reach a further rung have a second line: "trial 3 went on".
    assert len([line for line in lines if re.match(r"trial \d+  accuracy", line)]) == 14
    assert "another run needs" not in errors + helper_errors
    assert "worker 1 is done" in helped or result["model"] in helped
    assert postgres.rows("SELECT count(*) FROM studies") == [(0,)]
    written = "".join(path.read_text(errors="replace") for path in (iris / "out").rglob("*.*"))
    password = postgres.context.secret("optuna_db_password")
    assert all(password not in text for text in (output, errors, helped, helper_errors, written))


def test_a_helper_without_a_study_is_told_so(iris: Path):
    (iris / "spec.toml").write_text(MODELS.format(n_trials=4, workers=2))
    helper = train(iris, "--worker", "1", DMLS_STUDY_URL="")

    _, errors = helper.communicate(timeout=120)

    assert helper.returncode == 1
    assert "DMLS_STUDY_URL is not set" in errors
    assert not (iris / "out/error.json").exists()


def test_a_study_that_does_not_answer_is_told_without_its_password(iris: Path):
    (iris / "spec.toml").write_text(MODELS.format(n_trials=4, workers=2))
    url = "postgresql+psycopg://optuna:hunter2@127.0.0.1:9/optuna"

    leader = train(iris, DMLS_STUDY_URL=url)
    output, errors = leader.communicate(timeout=120)

    assert leader.returncode == 3
    assert "the study database failed" in errors
    assert "hunter2" not in output + errors + (iris / "out/error.json").read_text()


@pytest.mark.nightly("`test_train.py` kills a trainer once")
def test_killed_at_ten_random_moments_no_finished_trial_is_paid_twice(iris: Path):
    (iris / "spec.toml").write_text(BOOSTED)
    moments = random.Random(7)
    kept: dict[str, tuple[int, bytes]] = {}

    def look() -> None:
        """What was there must be there still, and never written again: a trial that is paid is written."""
        found = {
            path.name: (path.stat().st_mtime_ns, path.read_bytes())
            for path in (iris / "out/trials").glob("*.json")
        }
        assert {name: found[name] for name in kept} == kept
        kept.update(found)

    killed = 0
    for _ in range(10):
        process = train(iris)
        count, wait = len(kept) + moments.randrange(3), moments.uniform(0, 0.15)
        end = time.monotonic() + 120
        while len(list((iris / "out/trials").glob("*.json"))) < count and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(wait)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.communicate()
        look()

    ended(train(iris))

    look()
    result = json.loads((iris / "out/result.json").read_text())
    assert killed >= 5
    assert len(kept) == 40
    assert result["n_trials"] == 40
