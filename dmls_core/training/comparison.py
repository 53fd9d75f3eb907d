"""Compare the challenger with the champion on the held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate import Comparison, compare
from dmls_core.models import METRICS
from dmls_core.spec import Spec
from dmls_core.training.champion import ChampionPredictions
from dmls_core.training.prepared import Prepared


def compare_with_champion(
    spec: Spec, data: Prepared, served: NDArray[Any], predicted: ChampionPredictions | None
) -> dict[str, Any] | None:
    """Return ``comparison`` of ``result.json``; ``None`` if there is no champion.

    ``served`` holds the predictions of the challenger's written files for the held-out rows. A class that
    only one of the models knows has probability 0 in the predictions of the other.
    """
    if predicted is None:
        return None
    metric, roles = spec.search.metric, data.test_roles
    direction = METRICS[metric].direction
    if predicted.values is None or predicted.rows is None:
        reason = f"not comparable: {predicted.problem}"
        return Comparison(
            metric, direction, predicted.version, predicted.run_key, comparable=False, reason=reason
        ).as_json()
    champion, challenger = predicted.values, served[predicted.rows]
    if data.labels is not None:
        labels = [*data.labels, *(label for label in predicted.labels or () if label not in data.labels)]
        champion = _widened(champion, predicted.labels or (), labels)
        challenger = _widened(challenger, data.labels, labels)
    return compare(
        metric,
        direction,
        data.test_target[predicted.rows],
        champion,
        challenger,
        version=predicted.version,
        run_key=predicted.run_key,
        min_improvement=spec.deploy.min_improvement,
        fresh=predicted.fresh,
        seed=spec.search.seed,
        weights=None if roles.weights is None else roles.weights[predicted.rows],
        units=None if (units := roles.units()) is None else units[predicted.rows],
    ).as_json()


def _widened(probabilities: NDArray[Any], classes: Sequence[str], labels: Sequence[str]) -> NDArray[Any]:
    """Add columns of zeros for the classes of ``labels`` that are not in ``classes``."""
    if tuple(classes) == tuple(labels):
        return probabilities
    wide = np.zeros((len(probabilities), len(labels)), dtype=probabilities.dtype)
    wide[:, [labels.index(label) for label in classes]] = probabilities
    return wide
