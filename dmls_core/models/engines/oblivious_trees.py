"""CatBoost's oblivious trees as Treelite's: the same tests in single precision, the same leaves in double."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_core.models.engines.base import spread_columns

if TYPE_CHECKING:
    import catboost
    import treelite

    from dmls_core.models.engines.base import FloatArray

ABSENT = -30.0
"""Margin of a class that the training rows lack: its probability is about 1e-13."""


def as_treelite(booster: catboost.CatBoost, n_classes: int) -> treelite.Model:
    """Return a model of CatBoost's as a Treelite model in double precision; ``n_classes``: 0 for values.

    Of more than two classes, a tree becomes one for each class, as LightGBM's are: of trees whose leaves hold
    a number for each class, FIL takes the sums for probabilities.
    """
    import numpy as np
    import treelite.model_builder as tl

    described = _described(booster)
    trees, (scale, bias) = described["oblivious_trees"], described["scale_and_bias"]
    columns = [one["flat_feature_index"] for one in described["features_info"]["float_features"]]
    values: FloatArray = scale * booster.get_leaf_values().reshape(-1, len(bias))
    base: FloatArray = np.asarray(bias, np.float64)[None]
    outputs = n_classes if n_classes > 2 else 1
    if outputs > 1:
        values = spread_columns(values, booster.classes_, outputs)
        base = spread_columns(base, booster.classes_, outputs, ABSENT)
    link = "identity" if not n_classes else "sigmoid" if outputs == 1 else "softmax"
    task = {"identity": "kRegressor", "sigmoid": "kBinaryClf", "softmax": "kMultiClf"}[link]
    classes = list(range(outputs)) * len(trees)
    builder: Any = tl.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=tl.Metadata(len(columns), task, False, 1, [outputs], (1, 1)),
        tree_annotation=tl.TreeAnnotation(len(classes), [0] * len(classes), classes),
        postprocessor=tl.PostProcessorFunc(link),
        base_scores=base[0].tolist(),
    )
    first = 0
    for tree in trees:
        splits = [(columns[one["float_feature_index"]], one["border"]) for one in tree["splits"] or ()]
        leaves = values[first : first + 2 ** len(splits)]
        first += len(leaves)
        for number in range(outputs):
            builder.start_tree()
            _add_nodes(builder, splits, leaves[:, number])
            builder.end_tree()
    model: treelite.Model = builder.commit()
    return model


def _described(booster: catboost.CatBoost) -> dict[str, Any]:
    """Return CatBoost's own description of a model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        booster.save_model(str(file), format="json")
        description: dict[str, Any] = json.loads(file.read_text())
    return description


def _add_nodes(builder: Any, splits: list[tuple[int, float]], leaves: FloatArray) -> None:  # noqa: ANN401
    """Add a tree's nodes; a branch whose leaves are equal becomes a leaf.

    Bit i of a leaf's number says whether a row is above the border of split i, so the first half of the
    leaves is left of the last split. A missing value is above no border.
    """
    waiting = [(0, len(splits), leaves)]
    next_number = 1
    while waiting:
        number, level, values = waiting.pop()
        builder.start_node(number)
        if (values == values[0]).all():
            builder.leaf(float(values[0]))
        else:
            column, border = splits[level - 1]
            builder.numerical_test(
                column,
                border,
                default_left=True,
                opname="<=",
                left_child_key=next_number,
                right_child_key=next_number + 1,
            )
            half = len(values) // 2
            waiting += [(next_number, level - 1, values[:half]), (next_number + 1, level - 1, values[half:])]
            next_number += 2
        builder.end_node()
