"""Champion against challenger, once both have answered the held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.evaluate import Comparison, compare
from dmls_core.models import METRICS
from dmls_core.spec import Spec
from dmls_core.training.prepare import Prepared
from dmls_core.training.rival import Answers


def contest(spec: Spec, data: Prepared, served: NDArray[Any], rival: Answers | None) -> dict[str, Any] | None:
    """Return ``comparison`` of ``result.json``; ``None`` where there is no champion.

    Classes that only one of the two knows count for both: the other one gives them no chance.

    Args:
        spec: the challenger's.
        data: what was held out.
        served: the challenger's answers to the held-out rows, as they will be served.
        rival: the champion's.
    """
    if rival is None:
        return None
    metric = spec.search.metric
    direction = METRICS[metric].direction
    if rival.values is None or rival.rows is None:
        reason = f"not comparable: {rival.problem}"
        return Comparison(
            metric, direction, rival.version, rival.run_key, comparable=False, reason=reason
        ).as_json()
    champion, challenger = rival.values, served[rival.rows]
    if data.labels is not None:
        labels = [*data.labels, *(label for label in rival.labels or () if label not in data.labels)]
        champion = _widened(champion, rival.labels or (), labels)
        challenger = _widened(challenger, data.labels, labels)
    return compare(
        metric,
        direction,
        data.test_target[rival.rows],
        champion,
        challenger,
        version=rival.version,
        run_key=rival.run_key,
        min_improvement=spec.deploy.min_improvement,
        fresh=rival.fresh,
        seed=spec.search.seed,
    ).as_json()


def _widened(probabilities: NDArray[Any], own: Sequence[str], labels: Sequence[str]) -> NDArray[Any]:
    """Put probabilities of some classes into the columns of more."""
    if tuple(own) == tuple(labels):
        return probabilities
    wide = np.zeros((len(probabilities), len(labels)), dtype=probabilities.dtype)
    wide[:, [labels.index(label) for label in own]] = probabilities
    return wide
