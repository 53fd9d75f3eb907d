"""Combine the best trials of a search into one model that is served as one checkpoint.

``average_boosters`` takes those of several models, which the search has chosen.

``build_ensemble`` takes trials of one model. The candidates are the best trial and the next ones. They are
scored on rows that they have not seen: a bootstrapped forest on its out-of-bag rows, other models on the
folds of the search. The holdout decides nothing. An ensemble must be better with 95 % confidence, as a
challenger that is deployed automatically. The chosen trials are fitted on all training rows: forests with as
many trees as their weights ask for, so that their mean has about as many trees as the single model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dmls_core.errors import DataError
from dmls_core.evaluate.comparison import CONFIDENCE, paired_bootstrap
from dmls_core.models.engines import Fitted, FittedBooster, FittedEnsemble, FittedTrees, ForestEngine
from dmls_core.models.engines.forests import FittedForest
from dmls_core.search.task import SearchOutcome, SearchTask
from dmls_core.search.trial import Trial
from dmls_core.serving.formats.treelite.forest_size import visited_nodes
from dmls_core.spec.definitions import Scalar
from dmls_core.training.compact import grown_trees
from dmls_core.training.ensemble_selection import OutOfSample, cross_fit, select_weights
from dmls_core.training.prepare import draw_rows

_CANDIDATES = 6
"""Maximum number of trials that an ensemble is chosen from. Each costs about as much as a trial."""

_VISITS = 2.1
"""Maximum nodes that a prediction visits, as a multiple of the single model's: two models of the same size
fit. Since part of a prediction's time is fixed, its latency at most doubles."""

_SCORED_TREES = 100
"""Maximum trees of a forest that is scored as a candidate."""

_ROWS = 20_000
"""Maximum rows that candidates are scored on."""

_PROBED_ROWS = 200
"""Rows on which visited nodes are counted."""

_TREES = "n_estimators"


Chosen = Sequence[tuple[SearchTask, SearchOutcome]]
"""The models that a search has chosen, the best one first: several if their mean is to be served."""


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A trial in an ensemble, with its model's name and all its hyperparameters."""

    model: str
    trial: Trial
    params: Mapping[str, Scalar]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Ensemble:
    """A chosen ensemble; the scores are those of the best trial and of the ensemble on ``rows`` unseen rows.

    The mean of several models is not scored: it has no ``scores``.
    """

    fitted: FittedEnsemble
    members: tuple[EnsembleMember, ...]
    scores: tuple[float, float] | None = None
    rows: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return ``ensemble`` of ``result.json``, but for the sizes of the models."""
        members = [
            {
                "model": member.model,
                "trial": member.trial.number,
                "weight": round(member.weight, 4),
                "trees": fitted.parameters().get(_TREES),
                "params": {name: member.params[name] for name in sorted(member.trial.params)},
            }
            for member, fitted in zip(self.members, self.fitted.members, strict=True)
        ]
        scores = dict(zip(("single", "ensemble"), self.scores, strict=True)) if self.scores else None
        return {"members": members, "scores": scores, "rows": self.rows}


def average_boosters(single: Fitted, chosen: Chosen) -> Ensemble | None:
    """Fit the best trials of several boosted models, and return their mean before the link function.

    ``single`` is the model of the first one. The result is ``None`` if an engine's models cannot be averaged.
    """
    fitted = [single, *(task.fit(outcome.params) for task, outcome in chosen[1:])]
    if not all(isinstance(one, FittedBooster) for one in fitted):
        return None
    weights = [1 / len(chosen)] * len(chosen)
    members = (
        EnsembleMember(task.model.name, outcome.best, outcome.params, weights[0]) for task, outcome in chosen
    )
    return Ensemble(FittedEnsemble(cast("list[FittedBooster]", fitted), weights), tuple(members))


def build_ensemble(task: SearchTask, outcome: SearchOutcome, single: Fitted, metric: str) -> Ensemble | None:
    """Return the best ensemble of a search's trials.

    ``single`` is the model of the best trial. The result is ``None`` if no ensemble is measurably better by
    the search's ``metric``, or the engine's models cannot be averaged.
    """
    members = candidates(task, outcome)
    if not isinstance(single, FittedTrees) or len(members) < 2:
        return None
    settings = task.engine.effective(task.model, members[0].params)
    trees = int(settings[_TREES]) if isinstance(task.engine, ForestEngine) else 0
    members, scored = _score(task, members, min(trees, _SCORED_TREES))
    if len(members) < 2:
        return None
    # A forest's share of the trees follows from its weight: no choice costs too much.
    limit = np.inf if trees else _VISITS * scored.costs[0]
    try:
        weights, scores = _choose(task, scored, single, limit, metric)
    except DataError:  # half of the rows lacks a class
        return None
    if weights is None:
        return None
    picked = [(member, weight) for member, weight in zip(members, weights, strict=True) if weight]
    if trees:
        each = scored.costs / min(trees, _SCORED_TREES)
        trees = round(trees * min(1.0, _VISITS * each[0] / float(weights @ each)))
    fitted = [
        cast(
            "FittedTrees",
            task.fit({**member.params, **({_TREES: max(1, round(weight * trees))} if trees else {})}),
        )
        for member, weight in picked
    ]
    final = tuple(replace(member, weight=float(weight)) for member, weight in picked)
    joined = FittedEnsemble(fitted, [member.weight for member in final])
    return Ensemble(joined, final, scores, len(scored.truth))


def _choose(
    task: SearchTask, candidates: OutOfSample, single: FittedTrees, limit: float, metric: str
) -> tuple[NDArray[np.float64] | None, tuple[float, float]]:
    """Return the weights, ``None`` for no gain, and the scores of the first model and of the ensemble."""

    def choose(some: OutOfSample) -> NDArray[np.float64]:
        return select_weights(some, single.from_margins, task.score, sign=task.sign, limit=limit)

    first = single.from_margins(candidates.margins[0])
    joined = single.from_margins(cross_fit(candidates, choose, task.seed))
    scores = tuple(task.score(candidates.truth, one, candidates.weights) for one in (first, joined))
    compared = paired_bootstrap(
        metric,
        candidates.truth,
        first,
        joined,
        sign=task.sign,
        margin=0.0,
        seed=task.seed,
        weights=candidates.weights,
    )
    weights = choose(candidates)
    certain = compared is not None and compared.probability >= CONFIDENCE
    return weights if certain and np.count_nonzero(weights) > 1 else None, (scores[0], scores[1])


def candidates(task: SearchTask, outcome: SearchOutcome) -> list[EnsembleMember]:
    """Return the best trial, then those with the next best scores, ``_CANDIDATES`` at most.

    Nested search completes one forest only; the others are compared by their last rung, and get as many trees
    as the best one.
    """
    forests = isinstance(task.engine, ForestEngine)
    states = ("complete", "pruned") if forests else ("complete",)
    others = [
        trial
        for trial in outcome.trials
        if trial.state in states and trial.intermediate_values and trial.model == outcome.best.model
    ]
    others.sort(key=lambda trial: -task.sign * trial.intermediate_values[-1])
    members: dict[str, EnsembleMember] = {}
    for trial in (outcome.best, *others):
        params = {**outcome.params, **trial.params}
        if forests and _TREES in outcome.params:
            params[_TREES] = outcome.params[_TREES]
        elif _TREES in trial.params:  # as many times its rounds as the best one, at the same learning rate
            rounds, model = int(outcome.best.params[_TREES]), int(outcome.params[_TREES])
            params[_TREES] = int(trial.params[_TREES]) * model // rounds
        identity = json.dumps(task.engine.effective(task.model, params), sort_keys=True)
        members.setdefault(identity, EnsembleMember(task.model.name, trial, params))
    return list(members.values())[:_CANDIDATES]


def _score(
    task: SearchTask, members: Sequence[EnsembleMember], trees: int
) -> tuple[list[EnsembleMember], OutOfSample]:
    """Return the candidates that can be fitted and their margins for unseen rows; the first one must.

    ``trees`` is the number of trees of a forest; 0 for other models.
    """
    fast_enough: list[EnsembleMember] = []
    margins, costs = [], []
    rows: NDArray[np.integer] = np.empty(0, np.int64)
    for member in members:
        params = {**member.params, **({_TREES: trees} if trees else {})}
        try:
            rows, margin, cost = _unseen(task, params)
        except DataError:
            if not fast_enough:
                raise
            continue
        fast_enough.append(member)
        margins.append(margin)
        costs.append(cost)
    stacked = np.array(margins)
    usable = np.isfinite(stacked.reshape(len(stacked), len(rows), -1)).all(axis=(0, 2))
    rows, stacked = rows[usable], stacked[:, usable]
    weights = None if task.weights is None else task.weights[rows]
    return fast_enough, OutOfSample(stacked, np.array(costs), task.truth[rows], weights)


def _unseen(
    task: SearchTask, params: Mapping[str, Scalar]
) -> tuple[NDArray[np.integer], NDArray[np.float32], float]:
    """Return rows, a model's margins for them without having seen them, and the nodes that it visits.

    Margins of a row that all trees of a forest have drawn are NaN.
    """
    if isinstance(task.engine, ForestEngine) and task.out_of_bag:
        full_fit = task.fit(params) if task.engine.device == "cpu" else None
        if isinstance(full_fit, FittedForest) and full_fit.forest.bootstrap:
            rows = draw_rows(np.arange(len(task.truth)), _ROWS, task.seed)
            return rows, _out_of_bag(task, full_fit, rows), _cost(task, full_fit)
    margins, scored, cost = [], [], 0.0
    for fold in task.folds:
        rows = draw_rows(fold.test, _ROWS // len(task.folds), task.seed)
        fitted = cast("FittedTrees", task.fit(params, fold.train))
        margins.append(fitted.margins(task.features[task.engine.place(rows)]).astype(np.float32))
        scored.append(rows)
        cost = cost or _cost(task, fitted)
    return np.concatenate(scored), np.concatenate(margins), cost


def _cost(task: SearchTask, fitted: Fitted) -> float:
    rows = np.arange(min(_PROBED_ROWS, len(task.truth)))
    return visited_nodes(fitted.to_treelite(), task.engine.fetch(task.features[task.engine.place(rows)]))


def _out_of_bag(task: SearchTask, fitted: FittedForest, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the mean prediction of the trees that have not drawn each row, as ``Fitted.predict`` does."""
    forest = fitted.forest
    features = np.ascontiguousarray(task.features[rows])
    shape = (len(rows), task.n_classes) if task.n_classes else (len(rows),)
    columns = forest.classes_.astype(int) if task.n_classes else None
    sums, votes = np.zeros(shape), np.zeros(len(rows))
    for tree, drawn in grown_trees(forest, out_of_bag=True):
        unseen = np.flatnonzero(~np.isin(rows, cast("Any", drawn)))
        values = tree.value[tree.apply(features[unseen]), 0]
        if columns is None:
            sums[unseen] += values[:, 0]
        else:
            sums[np.ix_(unseen, columns)] += values
        votes[unseen] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        means: NDArray[np.float32] = (sums.T / votes).T.astype(np.float32)
    return means
