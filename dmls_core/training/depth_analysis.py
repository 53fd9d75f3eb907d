"""The size of the model, and the smaller depth of a large forest that has no measurably lower score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dmls_core.evaluate.bootstrap import paired_bootstrap
from dmls_core.models.metrics import compute
from dmls_core.search import SearchTask
from dmls_core.serving import checkpoint
from dmls_core.serving.depth_predictions import TREES, predictions_by_depth
from dmls_core.serving.forest_size import SIZE_FILE
from dmls_core.serving.model_config import CHECKPOINT_FILE
from dmls_core.training.prepare import Prepared

LARGE = 16_000_000
"""Bytes of a checkpoint from which a smaller depth is searched for: below, it would save little."""

ROWS = 2_000
"""Maximum held-out rows that depths are compared on."""

SAVES = 0.9
"""Maximum share of nodes that a forest keeps for a smaller depth to be reported."""

_ERRORS = 2 * 1.96
"""Standard errors in a 95 % interval."""


def describe_size(
    data: Prepared, task: SearchTask, metric: str, folder: Path, *, large: int = LARGE
) -> dict[str, Any]:
    """Return the ``size`` of ``result.json``, and write the sufficient depth to ``size.json``.

    It has ``bytes``, ``trees``, ``nodes``, ``depth`` and ``enough``. From ``large`` bytes on, ``enough`` may
    be the smaller ``max_depth`` with its ``nodes``, ``bytes`` and ``score``, and ``whole_score`` of as many
    ``trees`` on the same ``rows``; else None.
    """
    path, size = folder / SIZE_FILE, (folder / CHECKPOINT_FILE).stat().st_size
    known = json.loads(path.read_bytes())
    nodes = known["nodes_to_depth"]
    about = {"bytes": size, "trees": known["trees"], "nodes": nodes[-1], "depth": len(nodes) - 1}
    enough = None
    if size >= large and "max_depth" in task.model.hyperparameters:
        enough = _enough(data, task, metric, folder, known["trees"])
    if enough is not None and nodes[enough["max_depth"]] > SAVES * nodes[-1]:
        enough = None
    if enough is not None:
        kept = nodes[enough["max_depth"]]
        enough |= {"nodes": kept, "bytes": round(size * kept / nodes[-1])}
        path.write_text(json.dumps(known | {"enough": enough["max_depth"]}))
    return about | {"enough": enough}


def _enough(data: Prepared, task: SearchTask, metric: str, folder: Path, trees: int) -> dict[str, Any] | None:
    """Return the smallest depth whose score is within one standard error of the whole forest's.

    The standard error is that of the paired difference on the held-out rows, by the bootstrap (the rule of
    one standard error: Breiman and others, "Classification and regression trees", 1984). The search is a
    bisection, which assumes that the score rises with the depth.
    """
    found = predictions_by_depth(checkpoint.load(folder / CHECKPOINT_FILE), data.test[:ROWS])
    if found is None:
        return None
    answers = [depth if data.labels else depth[:, 0] for depth in found]
    truth = data.test_target[: len(answers[-1])]
    sign = 1.0 if task.direction == "maximize" else -1.0
    scores = [compute(metric, truth, depth) for depth in answers]

    def loses_nothing(depth: int) -> bool:
        paired = paired_bootstrap(
            metric, truth, answers[-1], answers[depth], sign=sign, margin=0.0, seed=task.seed
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
