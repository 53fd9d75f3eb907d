"""Write the folder ``model/`` of a run, and describe the size of the model in it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import CategoryFeature
from dmls_core.errors import ServingError
from dmls_core.evaluate.comparison import paired_bootstrap
from dmls_core.models.engines import Engine, Fitted
from dmls_core.models.metrics import compute
from dmls_core.monitoring.profile import with_predictions
from dmls_core.search.task import SearchTask
from dmls_core.serving.formats.base import export_format
from dmls_core.serving.formats.tolerance import base_tolerance, check_parity
from dmls_core.serving.formats.treelite.depth_predictions import TREES, predictions_by_depth
from dmls_core.serving.formats.treelite.forest_size import SIZE_FILE
from dmls_core.serving.repository.files import sha256
from dmls_core.stored_matrix import Matrix, predict_rows, row_blocks
from dmls_core.training.prepare import GOLDEN_ROWS
from dmls_core.training.prepared import Prepared

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Exported:
    """What the written files of a model predict.

    Attributes:
        predictions: of the held-out rows: (n_rows, n_classes), or (n_rows,) for values.
        edges: of the rows with unknown and missing categories, in the same form.
        tolerance: within which a server must agree with the golden rows.
    """

    predictions: NDArray[np.float32]
    edges: NDArray[np.float32]
    tolerance: float


def export_model(
    engine: Engine,
    fitted: Fitted,
    features: Matrix,
    predicted: NDArray[Any],
    edges: NDArray[np.float32],
    folder: Path,
    *,
    threads: int,
) -> Exported:
    """Write the model's files, and predict ``features`` and ``edges`` with them.

    ``features``: (n_rows, n_features), the golden rows first; ``edges``: rows with unknown and missing
    categories. The engine's serving format decides which files are written. Raise ``ServingError`` if they
    do not predict ``predicted``, the fitted model's predictions of ``features``, or what it predicts for
    ``edges``.
    """
    folder.mkdir(parents=True)
    written = export_format(engine.export_format).export(fitted, folder, threads=threads)
    tolerance = base_tolerance(classification=predicted.ndim > 1)
    if written.tolerance:
        tolerance = written.tolerance(np.asarray(features[:GOLDEN_ROWS]))
    served = np.asarray(predict_rows(written.predict, features), dtype=np.float32)
    check_parity(predicted, served, tolerance)
    if not len(edges):
        return Exported(served, served[:0], tolerance)
    at_edges = np.asarray(written.predict(edges), dtype=np.float32)
    check_parity(fitted.predict(engine.place(edges)), at_edges, tolerance)
    return Exported(served, at_edges, tolerance)


def write_companions(
    data: Prepared, exported: Exported, task: SearchTask, metric: str, score: float, folder: Path
) -> None:
    """Write ``encoder.json``, ``golden.json``, ``model.json`` and ``baseline.json`` next to the model.

    ``score`` is the search's ``metric`` on the held-out rows. Raise ``ServingError`` if the encoder encodes
    the raw golden rows differently from the training data.
    """
    count = len(next(iter(data.golden.values())))
    columns = {name: [*values, *data.edges[name]] for name, values in data.golden.items()}
    encoded = data.encoder.transform(columns)
    if not np.array_equal(encoded[:count], data.test[:count], equal_nan=True):
        raise ServingError("the encoder does not encode raw rows as they were encoded for training")
    expected = np.concatenate([exported.predictions[:count], exported.edges])
    serving = export_format(task.engine.export_format)
    outputs, positions = golden_predictions(serving.reference(folder, encoded), expected)
    rows = encoded[positions].tolist()
    golden = {
        "schema": _SCHEMA,
        "columns": {name: [values[row] for row in positions] for name, values in columns.items()},
        "encoded": [[None if math.isnan(value) else value for value in row] for row in rows],
        "expected": outputs.tolist(),
        "tolerance": exported.tolerance,
        "labels": data.labels,
    }
    ranges = _ranges(data)
    description = {
        "schema": _SCHEMA,
        "task": task.model.task,
        "model": task.model.name,
        "format": serving.name,
        "sha256": {file: sha256(folder / file) for file in serving.files},
        "n_features": data.test.shape[1],
        "n_outputs": outputs.shape[1],
        "labels": data.labels,
        "features": data.encoder.column_names,
        "ranges": ranges,
        "metric": metric,
        "score": score,
    }
    for name, content in {
        "encoder.json": data.encoder.with_ranges(ranges).as_json(),
        "golden.json": golden,
        "model.json": description,
        "baseline.json": with_predictions(data.profile, exported.predictions, data.labels).as_json(),
    }.items():
        (folder / name).write_text(json.dumps(content, allow_nan=False))


def golden_predictions(
    reference: NDArray[np.float32] | None, exported: NDArray[np.float32]
) -> tuple[NDArray[np.float32], list[int]]:
    """Return the predictions that a server must give for golden rows, and the indices of the rows to keep.

    These are the ``reference`` of the serving format, if it has one, otherwise the ``exported`` model's. A
    row whose two best classes tie may get either class in single precision, and is left out. The predictions
    have the shape (n_kept, n_outputs). Raise ``ServingError`` if both predict different classes for every
    row.
    """
    exported = exported.reshape(len(exported), -1)
    if reference is None:
        return exported, list(range(len(exported)))
    reference = reference.reshape(exported.shape)
    agreeing = np.flatnonzero(reference.argmax(axis=1) == exported.argmax(axis=1)).tolist()
    if not agreeing:
        raise ServingError(
            "the backend's library and the exported model predict different classes for every golden row"
        )
    return reference[agreeing], agreeing


def _ranges(data: Prepared) -> dict[str, tuple[float, float]]:
    """Return the range of each number and date in the training rows, if it has any; dates are in days."""
    bounds = [(np.fmin.reduce(block), np.fmax.reduce(block)) for block in row_blocks(data.train)]
    low = np.fmin.reduce([low for low, _ in bounds]).tolist()
    high = np.fmax.reduce([high for _, high in bounds]).tolist()
    ranges: dict[str, tuple[float, float]] = {}
    for position, feature in enumerate(data.encoder.column_features):
        if not isinstance(feature, CategoryFeature) and not math.isnan(low[position]):
            ranges.setdefault(feature.name, (low[position], high[position]))  # days are a date's first part
    return ranges


_LARGE = 16_000_000
"""Bytes of a checkpoint from which a smaller depth is searched for: below, it would save little."""

_ROWS = 2_000
"""Maximum held-out rows that depths are compared on."""

_SAVES = 0.9
"""Maximum share of nodes that a forest keeps for a smaller depth to be reported."""

_ERRORS = 2 * 1.96
"""Standard errors in a 95 % interval."""


def describe_size(
    data: Prepared,
    task: SearchTask,
    metric: str,
    folder: Path,
    *,
    large: int = _LARGE,
    smaller_depths: bool = True,
) -> dict[str, Any] | None:
    """Return the ``size`` of ``result.json``, and write the sufficient depth to ``size.json``.

    It is ``None`` for a model that does not consist of trees. It has ``bytes``, ``trees``, ``nodes``,
    ``depth`` and ``enough``. From ``large`` bytes on, ``enough`` may be the smaller ``max_depth`` with its
    ``nodes``, ``bytes`` and ``score``, and ``whole_score`` of as many ``trees`` on the same ``rows``; else
    None. Without ``smaller_depths``, none is searched for.
    """
    path = folder / SIZE_FILE
    if not path.is_file():
        return None
    size = export_format(task.engine.export_format).size(folder)
    sizes = json.loads(path.read_bytes())
    nodes = sizes["nodes_to_depth"]
    size_record = {"bytes": size, "trees": sizes["trees"], "nodes": nodes[-1], "depth": len(nodes) - 1}
    enough = None
    if smaller_depths and size >= large and "max_depth" in task.model.hyperparameters:
        enough = _enough(data, task, metric, folder, sizes["trees"])
    if enough is not None and nodes[enough["max_depth"]] > _SAVES * nodes[-1]:
        enough = None
    if enough is not None:
        remaining = nodes[enough["max_depth"]]
        enough |= {"nodes": remaining, "bytes": round(size * remaining / nodes[-1])}
        path.write_text(json.dumps(sizes | {"enough": enough["max_depth"]}))
    return size_record | {"enough": enough}


def _enough(data: Prepared, task: SearchTask, metric: str, folder: Path, trees: int) -> dict[str, Any] | None:
    """Return the smallest depth whose score is within one standard error of the whole forest's.

    The standard error is that of the paired difference on the held-out rows, by the bootstrap (the rule of
    one standard error: Breiman and others, "Classification and regression trees", 1984). The search is a
    bisection, which assumes that the score rises with the depth.
    """
    model = export_format(task.engine.export_format).trees(folder)
    by_depth = None if model is None else predictions_by_depth(model, data.test[:_ROWS])
    if by_depth is None:
        return None
    answers = [depth if data.labels else depth[:, 0] for depth in by_depth]
    truth = data.test_target[: len(answers[-1])]
    sign = 1.0 if task.direction == "maximize" else -1.0
    roles = data.test_roles.take(np.arange(len(truth)))
    scores = [compute(metric, truth, depth, roles.weights) for depth in answers]

    def loses_nothing(depth: int) -> bool:
        paired = paired_bootstrap(
            metric,
            truth,
            answers[-1],
            answers[depth],
            sign=sign,
            margin=0.0,
            seed=task.seed,
            weights=roles.weights,
            units=roles.units(),
        )
        if paired is None or not np.isfinite(scores[depth]):
            return False
        low, high = paired.interval
        return bool(sign * (scores[depth] - scores[-1]) >= -(high - low) / _ERRORS)

    low, high = 1, len(answers) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if loses_nothing(middle) else (middle + 1, high)
    return {
        "max_depth": high,
        "score": scores[high],
        "whole_score": scores[-1],
        "rows": len(truth),
        "trees": min(TREES, trees),
    }
