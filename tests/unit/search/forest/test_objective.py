"""The nested search: what is a trial, what is paid, what is resumed, and the model that it ends with."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dmls_core.errors import DataError
from dmls_core.models.metrics import metrics_of
from dmls_core.search.callbacks import SearchProgress
from dmls_core.search.forest import scoring
from dmls_core.search.forest.halving import Promotion
from dmls_core.search.forest.objective import Configuration, ForestObjective
from dmls_core.search.forest.space import partition_space
from dmls_core.search.task import Space
from dmls_core.search.trial import Trial
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.spec import Choice, Range
from tests.unit.search.forest.conftest import CLASSIFIER, REGRESSOR, SPACE, make_task, search

EXTRA = "extra-trees-classifier"
EXTRA_REGRESSOR = "extra-trees-regressor"
MODELS = [CLASSIFIER, REGRESSOR, EXTRA, EXTRA_REGRESSOR]


def comparable(trials):
    return [replace(trial, seconds=0.0) for trial in trials]


def restart(trials):
    return [Trial.from_json(json.loads(json.dumps(trial.as_json()))) for trial in trials]


@pytest.mark.parametrize("model", MODELS)
def test_every_trial_is_scored_and_the_best_one_has_grown_to_the_end(model):
    task = make_task(model)
    # A space of six configurations is tried in whole, what is left of the trials repeats it.
    outcome, _ = search(task)

    assert [trial.number for trial in outcome.trials] == list(range(8))
    assert [trial.same_as for trial in outcome.trials[6:]] == [0, 1]
    assert len({(t.params["max_features"], t.params["min_samples_leaf"]) for t in outcome.trials}) == 6
    best = outcome.best
    assert best.state == "complete"
    assert 4 < best.steps <= 24
    surface = np.reshape(best.surface.values, [len(values) for values in best.surface.axes.values()])
    place = tuple(best.surface.axes[name].index(best.params[name]) for name in best.surface.axes)
    assert best.value == pytest.approx(surface[place])
    assert best.params["n_estimators"] == best.steps
    # The first rung, and a third of it, may be no sizes of the space.
    sizes = partition_space(task, Space.of(SPACE)).sizes
    reached = surface[[size in sizes for size in best.surface.axes["n_estimators"]]]
    means = reached[len(reached) // 2 :].mean(axis=0)
    assert best.params["max_depth"] == best.surface.axes["max_depth"][means.argmax()]
    assert outcome.params == best.params
    for trial in outcome.trials:
        assert set(trial.params) == set(SPACE)
        assert SPACE["n_estimators"].min <= trial.params["n_estimators"] <= SPACE["n_estimators"].max


def test_progress_estimates_the_remaining_seconds():
    steps: list[SearchProgress] = []
    outcome, _ = search(make_task(CLASSIFIER), on_progress=steps.append)

    first = [step for step in steps if step.best is None]
    assert [step.forests for step in first] == [7, 6, 5, 4, 3, 2, 2, 2]
    compared = [step for step in steps if step.best is not None]
    assert [step.trees for step in compared] == sorted(step.trees for step in compared)
    assert compared[-1] == SearchProgress(0.0, 1, outcome.best.steps, outcome.best.value)
    assert steps[-1].remaining_seconds == 0 < steps[0].remaining_seconds


def test_the_model_is_the_grown_forest_pruned_to_the_best_setting():
    task = make_task(rows=300)
    outcome, _ = search(task)
    model, params = outcome.fitted, outcome.params

    settings = model.parameters()
    assert {name: settings[name] for name in params} == params
    trees = model.forest.estimators_
    assert len(trees) == params["n_estimators"]
    assert max(tree.get_depth() for tree in trees) <= params["max_depth"]
    # Out of bag it answers as the trial was scored: bins decide alike on the rows that they were made of.
    sums, counts = np.zeros((300, 3)), np.zeros(300)
    for tree, drawn in zip(trees, model.forest.estimators_samples_, strict=True):
        unseen = np.setdiff1d(np.arange(300), drawn)
        sums[unseen] += tree.tree_.predict(task.features[unseen])
        counts[unseen] += 1
    rows = np.flatnonzero(counts)
    score = task.score(task.truth[rows], sums[rows] / counts[rows, None])
    assert score == pytest.approx(outcome.best.value)
    assert model.importances().sum() == pytest.approx(1)


@pytest.mark.parametrize("model", [CLASSIFIER, REGRESSOR])
def test_the_exported_model_predicts_alike(model, tmp_path):
    task = make_task(model)
    fitted = search(task)[0].fitted
    own = fitted.predict(task.features)

    loaded = checkpoint.export(fitted.to_treelite(), tmp_path / "checkpoint.tl")
    served = checkpoint.predict(loaded, task.features)

    check_parity(own, served)


@pytest.mark.parametrize(
    ("model", "n_trials"), [(CLASSIFIER, 9), (CLASSIFIER, 5), (REGRESSOR, 5), (EXTRA, 5)]
)
def test_a_resumed_search_ends_as_an_uninterrupted_one(model, n_trials, monkeypatch):
    task = make_task(model)
    whole, seen = search(task, n_trials=n_trials)
    for cut in (3, n_trials, len(seen) - 1, len(seen)):
        kept = list({trial.number: trial for trial in seen[:cut]}.values())
        grown = []

        class Watched(Configuration):
            def grow(self, trees, grown=grown):
                grown.append(self.number)
                super().grow(trees)

        monkeypatch.setattr("dmls_core.search.forest.objective.Configuration", Watched)
        resumed, again = search(task, n_trials=n_trials, earlier_trials=restart(kept)[::-1])

        assert comparable(resumed.trials) == comparable(whole.trials)
        assert resumed.params == whole.params
        dropped = {trial.number for trial in kept} - {t.number for t in seen[n_trials:]}
        assert not dropped & set(grown)
        assert [trial.number for trial in again] == [trial.number for trial in seen[cut:]]
        if whole.fitted:
            x = task.features
            assert (resumed.fitted.predict(x) == whole.fitted.predict(x)).all()


@pytest.mark.parametrize("model", [CLASSIFIER, EXTRA_REGRESSOR])
def test_forests_beyond_the_memory_limit_grow_again(model, monkeypatch):
    task = make_task(model)
    whole, seen = search(task)
    freed = []

    class Watched(Configuration):
        def free(self):
            freed.append(self.trees)
            super().free()
            assert not self.nbytes

    monkeypatch.setattr("dmls_core.search.forest.objective.Configuration", Watched)
    monkeypatch.setattr("dmls_core.search.forest.objective.FIRST_RUNG_BYTES", 0)
    monkeypatch.setattr("dmls_core.search.forest.objective.GROWN_BYTES", 0)
    tight, again = search(task)

    assert freed
    assert comparable(again) == comparable(seen)
    assert tight.params == whole.params
    if whole.fitted:
        x = task.features
        assert (tight.fitted.predict(x) == whole.fitted.predict(x)).all()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_every_metric_of_the_catalogue(task):
    model = CLASSIFIER if task == "classification" else REGRESSOR
    space = {
        "n_estimators": Choice(values=(12, 30)),
        "max_depth": Choice(values=(2, 5)),
        "criterion": Choice(values=make_task(model).model.hyperparameters["criterion"].choices[:2]),
    }
    for metric in metrics_of(task):
        task = make_task(model, metric=metric)
        outcome, _ = search(task, space, n_trials=2)

        larger = outcome.best.surface.values[-2:]
        best = max(larger) if task.direction == "maximize" else min(larger)
        assert outcome.best.value == pytest.approx(best)


def test_balanced_class_weights_win_on_recall_of_rare_classes():
    rng = np.random.default_rng(0)
    task = make_task(rows=600, metric="recall_macro")
    rare = ((task.features[:, 0] > 0.5) & (rng.random(600) < 0.35)).astype(np.int32)
    task = replace(task, target=rare, truth=rare, n_classes=2)
    space = {"class_weight": Choice(values=("none", "balanced", "balanced_subsample"))}

    outcome, _ = search(task, space | {"max_depth": Range(min=2, max=8)}, n_trials=3)

    assert outcome.params["class_weight"] != "none"


@pytest.mark.parametrize(
    "space",
    [
        {"bootstrap": Choice(values=(False,))},
        {"bootstrap": Choice(values=(True, False))},
    ],
)
def test_without_out_of_bag_rows_the_folds_are_scored(space):
    task = make_task()
    outcome, _ = search(task, {**SPACE, **space})

    assert outcome.fitted is None
    assert len(outcome.best.values) == len(task.folds)
    assert outcome.best.value == pytest.approx(np.mean(outcome.best.values))


@pytest.mark.parametrize(
    ("space", "rare", "out_of_bag"),
    [
        ({"class_weight": Choice(values=("none", "balanced"))}, 10, False),
        ({"class_weight": Choice(values=("balanced",))}, 10, False),
        ({"class_weight": Choice(values=("none", "balanced_subsample"))}, 10, True),
        ({"class_weight": Choice(values=("balanced",))}, 90, True),
        ({"max_samples": Range(min=50, max=200)}, 10, True),
        ({"max_samples": Choice(values=(50, 1000))}, 10, False),
    ],
)
def test_folds_are_scored_if_trees_draw_rows_too_often(space, rare, out_of_bag):
    target = (np.arange(200) < rare).astype(np.int32)
    task = replace(make_task(classes=2), target=target, truth=target)

    assert scoring.prepare_scoring(task, Space.of(space), 1).out_of_bag is out_of_bag


@pytest.mark.parametrize(
    ("model", "metric", "rows"),
    [(EXTRA, "accuracy", 14), (EXTRA_REGRESSOR, "r2", 9), (CLASSIFIER, "roc_auc", 40)],
)
def test_the_jackknife_works_on_few_rows(model, metric, rows):
    task = make_task(model, metric=metric, rows=rows, classes=2)
    if metric == "roc_auc":
        target = (np.arange(rows) == 3).astype(np.int32)
        task = replace(task, target=target, truth=target)

    outcome, _ = search(task)

    assert outcome.scored == 8
    assert np.isfinite(outcome.best.value)


def test_a_class_that_a_fold_lacks_has_no_probability_there():
    task = make_task(EXTRA, classes=3, metric="log_loss")
    target = np.where(task.truth == 2, 0, task.truth).astype(np.int32)
    target[task.folds[0].test[0]] = 2
    task = replace(task, target=target, truth=target)

    outcome, _ = search(task, n_trials=3)

    assert outcome.best.values[0] > outcome.best.values[1]


def test_a_sample_of_many_rows_is_scored(monkeypatch):
    monkeypatch.setattr(scoring, "SUMS_BYTES", 0)
    monkeypatch.setattr(scoring, "MIN_SCORED", 70)
    outcome, _ = search(make_task(rows=900))

    assert outcome.best.value * 70 == pytest.approx(round(outcome.best.value * 70))


def test_one_size_and_nothing_to_search_is_one_trial():
    outcome, seen = search(make_task(), {"n_estimators": Choice(values=(30,))})

    assert [trial.number for trial in seen] == [0, 0]
    assert outcome.params == {"n_estimators": 30}
    assert len(outcome.fitted.forest.estimators_) == 30


def test_synonymous_configurations_grow_one_forest(monkeypatch):
    grown = []

    class Watched(Configuration):
        def __init__(self, *options):
            super().__init__(*options)
            grown.append(self.params)

    monkeypatch.setattr("dmls_core.search.forest.objective.Configuration", Watched)
    space = {
        "criterion": Choice(values=("gini", "entropy", "log_loss")),
        # Of five columns: two, two, two, five and five.
        "max_features": Choice(values=("sqrt", "log2", 0.5, 1.0, "none")),
        "max_depth": Range(min=1, max=3),
    }
    outcome, _ = search(make_task(), space, 15)

    assert len(outcome.trials) == 15
    assert len(grown) == 4
    for trial in outcome.trials:
        if trial.same_as is not None:
            assert trial.value == outcome.trials[trial.same_as].value


def test_stop_ends_the_search_and_a_timeout_lets_one_forest_grow():
    with pytest.raises(DataError, match="stopped before the first one ended"):
        search(make_task(), stop=lambda: True)

    outcome, _ = search(make_task(), timeout=1e-9)
    assert len(outcome.trials) == 1
    assert outcome.best.steps < 24 or outcome.best.state == "complete"


def test_without_early_scores_nothing_is_extrapolated():
    task = make_task()

    def every_row(truth, prediction, weights):
        # A third of the first trees leaves a few rows without an answer; the jackknife leaves out more.
        if 190 <= len(truth) < 198:
            raise DataError("not defined")
        return task.score(truth, prediction, weights)

    space = {"n_estimators": Choice(values=(24, 40)), "max_features": Choice(values=("sqrt", 0.7, 1.0))}
    outcome, seen = search(replace(task, score=every_row), space, n_trials=3)

    assert [trial.intermediate_values for trial in seen[:3]] == [(trial.value,) for trial in seen[:3]]
    assert outcome.scored == 3


def test_a_configuration_that_cannot_be_scored_fails():
    def refuses(_truth, _prediction, _weights):
        raise DataError("not defined")

    with pytest.raises(DataError, match="no trial is complete: not defined"):
        search(replace(make_task(), score=refuses), n_trials=40)


def test_a_held_forest_is_scored_in_the_rungs_that_another_worker_grew():
    space = Space.of({"n_estimators": Range(min=40, max=200), "max_features": Range(min=0.1, max=1.0)})
    workers = [ForestObjective(make_task(), space, 30) for _ in range(2)]
    first = [
        worker.evaluate(0, {"max_features": 0.5}, should_prune=lambda *_: False, stop=lambda: False)
        for worker in workers
    ]
    assert first[0] is not None
    earlier = Promotion(first[0], (24,), 30, frozenset({0}))
    later = Promotion(first[0], (24, 30), 93, frozenset({0}))

    workers[0].promote(earlier)
    whole, part = (worker.promote(later) for worker in workers)

    assert part.jackknife == whole.jackknife
    assert comparable([part.trial]) == comparable([whole.trial])
