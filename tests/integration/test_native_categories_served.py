"""Native categorical splits from the data to Triton, with unknown and missing categories."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.serving import Deployment, connect
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.training import TrainRequest, train

LEVELS = [f"level {number:03}" for number in range(300)]
SPEC = """model = {models}
n_trials = {trials}
[columns]
target = "y"
categorical = ["level", "kind"]
[n_estimators]
value = 60
"""


def table(n_rows: int, seed: int, *, unknown: bool) -> dict[str, list[Any]]:
    """Return raw rows with all categories and missing ones, and on request unknown ones."""
    draw = np.random.default_rng(seed)
    texts, kinds = ([*names, None, *["unheard of"] * unknown] for names in (LEVELS, "abc"))
    size = draw.normal(size=n_rows)
    return {
        "level": [texts[at] for at in draw.integers(0, len(texts), n_rows)],
        "kind": [kinds[at] for at in draw.integers(0, len(kinds), n_rows)],
        "size": [None if value > 1.5 else round(float(value), 3) for value in size],
    }


def trained(folder: Path, models: list[str], classes: int, trials: int = 1) -> dict[str, Any]:
    """Train on 3,000 rows whose target is an effect of each category; return ``result.json``."""
    columns = table(3000, 0, unknown=False)
    draw = np.random.default_rng(1)
    effects = [dict(zip([*names, None], draw.normal(size=301), strict=False)) for names in (LEVELS, "abc")]
    pairs = zip(columns["level"], columns["kind"], strict=True)
    value = np.array([effects[0][level] + effects[1][kind] for level, kind in pairs])
    if classes:
        value = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes))
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*columns, "y"])
        writer.writerows(zip(*columns.values(), value, strict=True))
    (folder / "spec.toml").write_text(SPEC.format(models=json.dumps(models), trials=trials))
    return train(TrainRequest(str(folder / "spec.toml"), (str(folder / "data.csv"),), str(folder / "out")))


def categories(folder: Path) -> dict[str, Any]:
    features = json.loads((folder / "out/model/encoder.json").read_text())["features"]
    return {feature["name"]: feature for feature in features if feature["kind"] == "category"}


@pytest.mark.parametrize(
    ("family", "classes"),
    [
        ("xgboost", 0),
        ("lightgbm", 3),
        *(
            pytest.param(
                *case,
                marks=pytest.mark.nightly("`make test` has a regression and three classes"),
            )
            for case in [("xgboost", 2), ("xgboost", 3), ("lightgbm", 0), ("lightgbm", 2)]
        ),
    ],
)
def test_native_categorical_splits_are_served_exactly(triton, tmp_path, family, classes):
    model, name = f"{family}-{'classifier' if classes else 'regressor'}", f"lab.{family}{classes}"
    trained(tmp_path, [model], classes)
    folder = tmp_path / "out/model"
    served = checkpoint.load(folder / "checkpoint.tl")
    encoder = Encoder.from_json(json.loads((folder / "encoder.json").read_text()))
    assert categories(tmp_path)["kind"]["unknown"] == 3
    assert categories(tmp_path)["kind"]["missing"] == 4
    columns = table(3000, 2, unknown=True)
    rows = encoder.transform(columns)
    expected = checkpoint.predict(served, rows).reshape(len(rows), -1)
    trees = [served.get_tree_accessor(number) for number in range(served.num_tree)]
    assert any(tree.get_field("has_categorical_split")[0] for tree in trees)

    with triton.client(timeout=20.0) as client:
        deployment = Deployment(triton.repository, client, name)
        deployment.deploy(folder)
        assert deployment.verify(1).rows == 104
        for protocol in ("http", "grpc"):
            answers = client.infer(name, rows, protocol=protocol)
            assert np.array_equal(answers.reshape(expected.shape), expected)
        with connect(name, grpc=client.addresses["grpc"]) as endpoint:
            found = endpoint.predict(pd.DataFrame(columns))
            named = [f"probability_{label}" for label in endpoint.labels] or ["prediction"]
    assert np.array_equal(found[named].to_numpy(np.float32), expected)


def test_models_with_and_without_native_categories_in_one_spec(tmp_path):
    """Each has codes of its own; the winner's are those of the run's files."""
    result = trained(tmp_path, ["extra-trees-classifier", "lightgbm-classifier"], 2, trials=2)

    native = result["model"] == "lightgbm-classifier"
    assert (categories(tmp_path)["kind"]["unknown"], categories(tmp_path)["kind"]["missing"]) == (
        (3, 4) if native else (-1, -1)
    )
    golden = json.loads((tmp_path / "out/model/golden.json").read_text())
    assert golden["columns"]["kind"][-2:] == ["unknown", None]
