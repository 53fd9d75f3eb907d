"""Codes decide as values do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import RandomForestClassifier

from dmls_core.search.forest import scoring
from dmls_core.search.forest.scoring import Bins
from dmls_core.search.forest.trees import prune_tree

FLOATS = st.floats(-(2.0**126), 2.0**126, width=32) | st.sampled_from(
    [float(np.float32(value)) for value in (0.0, 1.0, 1.0000001, -1e-40, 3.0)]
)


@given(values=arrays(np.float32, st.tuples(st.integers(1, 60), st.just(1)), elements=FLOATS))
@settings(max_examples=150, deadline=None)
def test_a_code_is_at_most_k_where_the_value_is_at_most_its_edge(values):
    found = Bins.of(values, seed=0)
    codes = found.encode(values)[:, 0]

    assert len(np.unique(codes)) == len(np.unique(values))
    assert (np.argsort(codes, kind="stable") == np.argsort(values[:, 0], kind="stable")).all()
    for code, edge in enumerate(found.edges[0]):
        assert ((codes <= code) == (values[:, 0] <= edge)).all()
        threshold = found.decode(np.array([0, -2]), np.array([code + 0.5, -2.0]))
        assert threshold.tolist() == [edge, -2.0]


def test_many_values_share_bins_of_about_equal_size():
    values = np.random.default_rng(0).exponential(size=(20_000, 1)).astype(np.float32)
    counts = np.unique(Bins.of(values, seed=0).encode(values), return_counts=True)[1]

    assert len(counts) == scoring.BINS
    assert counts.max() < 1.3 * len(values) / scoring.BINS


def test_one_frequent_value_takes_no_bin_from_the_others():
    values = np.zeros((10_000, 1), np.float32)
    values[:500, 0] = np.random.default_rng(0).normal(size=500)
    found = Bins.of(values, seed=0)

    assert 5 < len(found.edges[0]) < scoring.BINS
    assert (found.encode(values)[500:] == found.encode(values)[-1]).all()


def test_a_forest_of_codes_decides_alike_on_the_values_it_was_grown_on():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 6)).astype(np.float32)
    x[:, 0] = rng.integers(0, 4, len(x))
    x[:, 1] = 7.0
    y = (x[:, 2] + x[:, 0] * x[:, 3] > 0).astype(np.int32)
    found = Bins.of(x, seed=0)
    codes = found.encode(x)
    forest = RandomForestClassifier(10, random_state=0).fit(codes, y)

    for estimator in forest.estimators_:
        decoded = prune_tree(estimator.tree_, {}, len(x), found)
        assert (decoded.apply(x) == estimator.tree_.apply(codes)).all()
        inner = decoded.feature >= 0
        thresholds = decoded.threshold[inner]
        assert (thresholds.astype(np.float32) == thresholds).all()
