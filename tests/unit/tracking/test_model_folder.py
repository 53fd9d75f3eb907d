from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.tracking.model_folder import built_model, example, requirements, signature
from tests.support.trained_run import trained_run, user_rows

MIXED = {
    "schema": 1,
    "features": [
        {"name": "size", "kind": "number", "fill": None},
        {"name": "colour", "kind": "category", "categories": ["1", "red"], "missing": None, "unknown": -1.0},
    ],
    "target": {"name": "kind", "kind": "label", "labels": ["no", "yes"]},
}


def test_the_signature_has_the_users_columns_and_labels():
    made = signature(Encoder.from_json(MIXED))
    assert made.inputs.input_names() == ["size", "colour"]
    assert made.inputs.required_input_names() == ["size", "colour"]
    assert made.outputs.input_names() == ["prediction", "probability_no", "probability_yes"]
    assert [str(kind) for kind in made.outputs.input_types()] == [
        "DataType.string",
        "DataType.float",
        "DataType.float",
    ]
    value = signature(Encoder.from_json(MIXED | {"target": {"name": "y", "kind": "number"}}))
    assert [str(kind) for kind in value.outputs.input_types()] == ["DataType.float"]


def test_the_example_holds_numbers_as_numbers():
    columns = {"size": ["1.5", None, "2", "9"], "colour": ["red", None, "1", "red"]}
    rows = example(Encoder.from_json(MIXED), columns)
    assert list(rows.columns) == ["size", "colour"]
    assert rows["size"].dtype == np.float64
    assert rows["size"][0] == 1.5
    assert math.isnan(rows["size"][1])
    assert len(rows) == 3


def test_requirements_are_pinned_to_the_trainings_versions():
    pinned = dict(
        line.split("==") for line in requirements({"treelite": "4.6.1", "scikit-learn": "1.7"}, ("treelite",))
    )
    assert set(pinned) == {"mlflow", "numpy", "pandas", "treelite"}
    assert pinned["treelite"] == "4.6.1"
    assert pinned["numpy"] == np.__version__


@pytest.mark.parametrize("options", [{}, {"binary": True}, {"regression": True}])
def test_the_built_folder_predicts_what_is_served(tmp_path, options):
    import mlflow.pyfunc
    from mlflow.models import Model

    trained_run(tmp_path / "run", **options)
    golden = json.loads((tmp_path / "run/model/golden.json").read_text())
    with built_model(tmp_path / "run/model", Model(), {}) as folder:
        model = mlflow.pyfunc.load_model(str(folder))
        answers = model.predict(pd.DataFrame(golden["columns"]))
        assert len(model.predict(pd.DataFrame(user_rows(1)))) == 1
        assert list(model.predict(pd.DataFrame(golden["columns"])[:0]).columns) == list(answers.columns)
        unlike = pd.DataFrame({"size": [0.1, None], "count": [1, None], "colour": ["Red", None]})
        with pytest.warns(UserWarning, match="training: 2; row 1: column 'colour': 'Red' does not occur"):
            assert len(model.predict(unlike)) == 2
        with pytest.raises(ValueError, match="'Red' does not occur in the training data; the nearest"):
            model.predict(unlike, params={"strict": True})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(model.predict(pd.DataFrame(user_rows(1)), params={"strict": True})) == 1
    assert not folder.exists()
    expected = np.asarray(golden["expected"], np.float32)
    if golden["labels"] is None:
        assert np.array_equal(answers["prediction"].to_numpy(), expected[:, 0])
        return
    assert np.array_equal(answers.iloc[:, 1:].to_numpy(np.float32), expected)
    assert list(answers["prediction"]) == [golden["labels"][i] for i in expected.argmax(axis=1)]
