"""One spec has one JSON text, in every process, and comes back from it as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_core.errors import PlatformError, SpecError
from dmls_core.models import load_spec
from dmls_core.settings import SpecLimits
from dmls_core.spec import SCHEMA, Choice, Spec

ROOT = Path(__file__).parents[3]
IRIS = ROOT / "examples" / "iris" / "spec.toml"

SHA256 = "5140b51e629b3f92c5f9cd6436c766a8cb469614f75a44150e7ccdeaaf39bfee"
"""Hash of the iris spec. If it changes, every run key changes: the schema's number must grow with it."""


def run(code: str, seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        timeout=60,
    ).stdout


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_every_process_and_hash_seed_gives_the_same_hash(seed: str) -> None:
    code = (
        f"from dmls_core.models import load_spec\nprint(load_spec(open({str(IRIS)!r}, 'rb').read()).sha256)"
    )
    assert run(code, seed).strip() == SHA256


def test_the_json_is_sorted_and_versioned() -> None:
    spec = load_spec(IRIS.read_bytes())
    text = spec.canonical().decode()
    data = json.loads(text)
    assert data == spec.as_json()
    assert data["schema"] == SCHEMA == 1
    assert list(data) == sorted(data)
    assert text == json.dumps(data, sort_keys=True, separators=(",", ":"))
    assert data["models"][0]["hyperparameters"]["n_estimators"] == {
        "min": 50, "max": 500, "step": None, "log": False,
    }  # fmt: skip


def test_equivalent_specs_have_the_same_hash() -> None:
    other = b"""
    columns = { target = 'species', features = [
        "sepal_length", "sepal_width", "petal_length",
        "petal_width", # the last one
    ] }
    criterion.values = ["gini", "entropy", "log_loss"]
    n_estimators.max = 0x1f4
    n_estimators.min = 5_0
    n_trials = 5
    search.metric = "accuracy"
    model = "random-forest-classifier"
    """
    assert load_spec(other).sha256 == SHA256


@pytest.mark.parametrize(("table", "key"), [("deploy", "compact"), ("search", "ensemble")])
def test_a_key_that_was_added_later_changes_only_the_hash_of_specs_that_use_it(table: str, key: str) -> None:
    text = IRIS.read_text()
    off, on = (load_spec(f"{text}\n[{table}]\n{key} = {value}\n".encode()) for value in ("false", "true"))
    assert load_spec(IRIS.read_bytes()).sha256 == off.sha256 == SHA256 != on.sha256
    assert key not in off.as_json()[table]
    assert Spec.from_json(on.as_json()) == on
    assert Spec.from_json(off.as_json()) == off


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("0.5", "0.25"), ('"sqrt"', '"log2"')])
def test_values_of_different_types_have_different_hashes(one: str, other: str) -> None:
    text = 'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n[max_features]\nvalue = '
    first, second = load_spec((text + one).encode()), load_spec((text + other).encode())
    assert first.sha256 != second.sha256
    assert Spec.from_json(json.loads(first.canonical())).sha256 == first.sha256


def test_early_stop_as_a_number_is_the_rule_trials() -> None:
    text = IRIS.read_bytes()
    short = load_spec(text + b"[search]\nearly_stop = 7\n")
    long = load_spec(text + b"[search.early_stop]\ntrials = 7\n")

    assert short.sha256 == long.sha256
    assert Spec.from_json(json.loads(short.canonical())) == short


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"schema": 2}, "schema"),
        ({"schema": True}, "schema"),
        ({"n_trials": "5"}, "n_trials"),
        ({"n_trials": 0}, "n_trials"),
        ({"models": []}, "models"),
        ({"colour": "red"}, "colour"),
        ({"columns": {"target": "y", "features": [3]}}, "columns.features[0]"),
        ({"deploy": {"min_metric": float("nan")}}, "deploy.min_metric"),
    ],
)
def test_other_json_is_rejected(change: dict[str, object], key: str) -> None:
    data = load_spec(IRIS.read_bytes()).as_json() | change
    with pytest.raises(SpecError) as raised:
        Spec.from_json(data, "registry/spec.json")
    assert [issue.key for issue in raised.value.issues] == [key]
    assert raised.value.issues[0].file == "registry/spec.json"


def test_a_spec_is_immutable() -> None:
    spec = load_spec(IRIS.read_bytes())
    with pytest.raises(ValueError, match="frozen"):
        spec.n_trials = 6  # type: ignore[misc]


def test_values_that_are_equal_in_python_stay_distinct() -> None:
    assert Choice(values=(1, 1.0, True)).model_dump_json() == '{"values":[1,1.0,true]}'


def test_limits_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_SPEC_TRIALS", "4")
    assert SpecLimits.from_environment() == SpecLimits(trials=4)
    with pytest.raises(SpecError, match="n_trials"):
        load_spec(IRIS.read_bytes())
    monkeypatch.setenv("DMLS_SPEC_TRIALS", "5")
    load_spec(IRIS.read_bytes())


@pytest.mark.parametrize("value", ["0", "-1", "many", "1e3", "²", "9" * 5000])
def test_a_limit_must_be_a_positive_integer(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DMLS_SPEC_BYTES", value)
    with pytest.raises(PlatformError, match="DMLS_SPEC_BYTES must be a positive integer"):
        SpecLimits.from_environment()


def test_the_spec_and_the_catalogue_import_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "sklearn", "xgboost", "lightgbm", "polars", "treelite", "optuna", "mlflow"}
    heavy |= {"boto3", "airflow", "pyarrow", "great_expectations"}
    code = f"import sys, dmls_core.models, dmls_core.spec\nprint({heavy} & set(sys.modules))"
    assert run(code, "0").strip() == "set()"
