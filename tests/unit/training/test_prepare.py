"""Targets that the libraries' arithmetic is too coarse for; rows with unknown and missing categories."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
from dmls_core.training.prepare import describe_search, scale_warning
from dmls_core.training.prepared import EDGE_ROWS, edge_rows

FOREST, BOOSTED = ["random-forest-regressor"], ["lightgbm-regressor", "xgboost-regressor"]
TARGET = np.random.default_rng(0).normal(size=200)


@pytest.mark.parametrize(
    ("scale", "shift", "models", "message"),
    [
        (1, 0, BOOSTED, ""),
        (1e-5, 0, FOREST, ""),
        (1e-5, 0, BOOSTED, "learns reliably"),
        (1e-9, 0, FOREST, "learns reliably"),
        (1e20, 0, FOREST, ""),
        (1e20, 0, BOOSTED, "learns reliably"),
        (1, 1e4, FOREST, ""),
        (1, 1e8, FOREST, "Subtract a constant"),
    ],
)
def test_warns_of_a_target_in_an_unsuitable_unit(scale, shift, models, message):
    found = scale_warning(TARGET * scale + shift, models)

    assert bool(found) is bool(message)
    assert message in found


@pytest.mark.parametrize("columns", [0, 1, 3, 16, 40])
@pytest.mark.parametrize("given", [1, 100])
def test_every_categorical_column_has_an_unknown_and_a_missing_edge(columns, given):
    features = tuple(
        CategoryFeature(f"c{at}", ("a", "unknown"), missing=3.0, unknown=2.0) for at in range(columns)
    )
    encoder = Encoder((NumberFeature("n"), *features), Target("y"))
    rows = {"n": [0.5] * given, **{feature.name: ["a"] * given for feature in features}}

    edges = encoder.transform(edge_rows(encoder, rows))

    assert len(edges) == min(2 * columns, EDGE_ROWS)
    assert all({2, 3} <= set(codes) for codes in edges.T[1:])
    assert (edges[:, 0] == 0.5).all()


def test_a_search_is_described_by_what_it_varies():
    def prepared(name: str, *searched: str, warm: bool = False) -> SimpleNamespace:
        candidate = SimpleNamespace(space=SimpleNamespace(searched=dict.fromkeys(searched)), warm_start=warm)
        return SimpleNamespace(candidate=candidate, task=SimpleNamespace(model=SimpleNamespace(name=name)))

    models = [prepared("a", "max_depth", warm=True), prepared("b")]
    job = SimpleNamespace(models=[*(one.task for one in models), prepared("c").task])
    assert describe_search(job, models).split("; ") == [
        "searching max_depth of a, the champion's values first",
        "no search, but the spec's values, for b",
        "skipping c: not worth its time on this data",
    ]
