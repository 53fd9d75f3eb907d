"""What FIL accepts and refuses on a CPU: one table for release 26.06, release 24.10 and the stand-in.

``tests/integration/test_fil_backend.py`` runs it against the server that is there. A backend does one of

* ``"probabilities"``, ``"positive"`` (the second class's alone), ``"labels"``, ``"values"``: it answers them,
* ``"refused"``: the model does not load, and the message contains ``message``,
* ``"wrong"``: the model loads, and then answers wrongly or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import treelite
from numpy.typing import NDArray

from dmls_core.serving.formats.treelite.checkpoint import snap_thresholds
from dmls_core.serving.formats.treelite.gtil import predict_float32

ROWS = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
CLASSIFIER = {
    "predict_proba": "true",
    "output_class": "true",
    "is_classifier": "true",
    "threshold": "0.5",
}
VALUES = {"output_class": "false", "is_classifier": "false"}


@dataclass(frozen=True)
class Case:
    """A configuration and what the backends make of it.

    Attributes:
        model: ``"three"`` and ``"two"`` are forests of as many classes, ``"boosted"`` is XGBoost's of two
            classes, ``"values"`` a regression forest.
        outputs: columns of ``output__0``.
        does: what release 26.06 does.
        change: parameters; ``None`` removes one that DMLS writes.
        message: part of the message of a refusal.
        before: what release 24.10 does, if it is not the same.
        stand_in: what the stand-in does, if it is not what release 26.06 does.
        unsafe: the case would write beyond the genuine backend's memory, and is not tried there.
    """

    name: str
    model: str
    outputs: int
    does: str
    change: Mapping[str, str | None] = field(default_factory=dict)
    message: str = ""
    inputs: int = 4
    data_type: str = "TYPE_FP32"
    more_outputs: str = ""
    before: str = ""
    stand_in: str = ""
    unsafe: bool = False

    def config(self, name: str) -> str:
        """Return the text of ``config.pbtxt``."""
        parameters = {**(VALUES if self.model == "values" else CLASSIFIER), **self.change}
        parameters.setdefault("model_type", "treelite_checkpoint")
        written = ",\n".join(
            f'  {{ key: "{key}" value: {{ string_value: "{value}" }} }}'
            for key, value in parameters.items()
            if value is not None
        )
        output = f'{{ name: "output__0" data_type: TYPE_FP32 dims: [ {self.outputs} ] }}'
        return (
            f'name: "{name}"\nbackend: "fil"\nmax_batch_size: 8192\n'
            f'input [ {{ name: "input__0" data_type: {self.data_type} dims: [ {self.inputs} ] }} ]\n'
            f"output [ {output}{self.more_outputs} ]\n"
            f"instance_group [ {{ count: 1 kind: KIND_CPU }} ]\nparameters [\n{written}\n]\n"
        )

    def right(self, kind: str) -> NDArray[np.float32]:
        """Return the right answers to ``ROWS``, (200, n)."""
        scores = predict_float32(made_model(self.model), ROWS)
        if kind == "labels":
            threshold = float(self.change.get("threshold") or 0.5)
            labels = scores.argmax(axis=1) if scores.shape[1] > 1 else scores[:, 0] > threshold
            return labels.astype(np.float32).reshape(-1, 1)
        if kind == "probabilities" and scores.shape[1] == 1:
            return np.hstack([1 - scores, scores])
        return scores


@cache
def made_model(kind: str) -> treelite.Model:
    """Return a small model of a kind; its file is the same for every case."""
    score = ROWS[:, 0] * 2 + ROWS[:, 1]
    if kind == "boosted":
        import xgboost

        fitted = xgboost.XGBClassifier(n_estimators=12, max_depth=3).fit(ROWS, score > 0)
        return treelite.frontend.from_xgboost(fitted.get_booster())
    if kind == "oblivious":
        from dmls_core.models import CATALOGUE
        from dmls_core.models.catalogue import load_engine

        model, params = CATALOGUE["catboost-classifier"], {"n_estimators": 12, "learning_rate": 0.3}
        classes = np.digitize(score, [-1.0, 1.0]).astype(np.int32)
        options = {"n_classes": 3, "seed": 0, "threads": 1}
        fitted = load_engine("cpu", model.name).fit(model, params, ROWS, classes, **options)
        return snap_thresholds(fitted.to_treelite())
    if kind == "categories":
        import lightgbm

        codes = np.trunc(9 * ROWS) % 12
        options = {"n_estimators": 12, "min_child_samples": 2, "min_data_per_group": 2, "verbose": -1}
        fitted = lightgbm.LGBMClassifier(**options).fit(
            codes, np.digitize(score, [-1.0, 1.0]), categorical_feature=[0, 1]
        )
        return snap_thresholds(treelite.frontend.from_lightgbm(fitted.booster_))
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from treelite.sklearn import import_model

    options = {"n_estimators": 12, "max_depth": 5, "random_state": 0}
    if kind == "values":
        return snap_thresholds(import_model(RandomForestRegressor(**options).fit(ROWS, score)))
    classes = np.digitize(score, [0.0] if kind == "two" else [-1.0, 1.0])
    return snap_thresholds(import_model(RandomForestClassifier(**options).fit(ROWS, classes)))


SHAP = ', { name: "treeshap_output" data_type: TYPE_FP32 dims: [ 3, 5 ] }'

CASES = (
    # What DMLS writes.
    Case("three classes", "three", 3, "probabilities"),
    Case("two classes", "two", 2, "probabilities"),
    Case("two boosted classes", "boosted", 2, "probabilities"),
    Case("values", "values", 1, "values"),
    # Other answers.
    Case("the second class alone", "boosted", 1, "positive", before="wrong"),
    Case("labels of a forest", "three", 1, "labels", {"predict_proba": "false"}, before="wrong"),
    Case("labels by default", "boosted", 1, "labels", {"predict_proba": None}),
    Case("labels by a threshold", "boosted", 1, "labels", {"predict_proba": "false", "threshold": "0.9"}),
    # Required parameters.
    Case("no threshold", "three", 3, "refused", {"threshold": None}, "threshold"),
    Case("a threshold in words", "three", 3, "refused", {"threshold": "high"}, "threshold"),
    Case("values need no threshold", "values", 1, "values", {"threshold": None}),
    Case(
        "neither flag",
        "three",
        3,
        "refused",
        {"output_class": None, "is_classifier": None},
        "Required parameter",
    ),
    Case("is_classifier alone", "three", 3, "probabilities", {"output_class": None}, before="refused"),
    Case("output_class alone", "three", 3, "probabilities", {"is_classifier": None}),
    Case("output_class wins", "three", 3, "probabilities", {"output_class": "false", "threshold": None}),
    Case("output_class in words", "three", 3, "probabilities", {"output_class": "yes"}, before="refused"),
    Case(
        "is_classifier in words",
        "three",
        3,
        "refused",
        {"output_class": None, "is_classifier": "yes"},
    ),
    Case("predict_proba in words", "three", 3, "refused", {"predict_proba": "maybe"}, "predict_proba"),
    Case(
        "optimizations in words",
        "three",
        3,
        "refused",
        {"use_experimental_optimizations": "maybe"},
        "use_experimental_optimizations",
    ),
    Case("a format that does not exist", "three", 3, "refused", {"model_type": "pickle"}, "pickle"),
    Case("a file that does not exist", "three", 3, "refused", {"model_type": "lightgbm"}),
    # Parameters without effect on a CPU, and optional numbers, whose default takes the place of other text.
    Case("cpu_nthread in words", "three", 3, "probabilities", {"cpu_nthread": "many"}),
    Case("chunk_size in words", "three", 3, "probabilities", {"chunk_size": "many"}),
    Case("storage_type", "three", 3, "probabilities", {"storage_type": "NOWHERE"}),
    Case("algo", "three", 3, "probabilities", {"algo": "FASTEST"}),
    Case("blocks_per_sm", "three", 3, "probabilities", {"blocks_per_sm": "7"}),
    Case("layout", "three", 3, "probabilities", {"layout": "sideways"}),
    # The genuine backend's faults, and what it has and the stand-in has not.
    Case("input dims too wide", "three", 3, "wrong", inputs=5, message="input__0", stand_in="refused"),
    Case(
        "output dims too narrow",
        "three",
        2,
        "wrong",
        message="output__0",
        stand_in="refused",
        unsafe=True,
    ),
    Case(
        "input of float64",
        "three",
        3,
        "wrong",
        data_type="TYPE_FP64",
        message="FP32",
        stand_in="refused",
    ),
    Case(
        "optimizations of a boosted model",
        "boosted",
        2,
        "wrong",
        {"use_experimental_optimizations": "true"},
        before="probabilities",
        stand_in="probabilities",
    ),
    Case(
        "optimizations of a forest", "three", 3, "probabilities", {"use_experimental_optimizations": "true"}
    ),
    Case(
        "treeshap_output",
        "three",
        3,
        "probabilities",
        message="treeshap_output",
        more_outputs=SHAP,
        stand_in="refused",
    ),
)
