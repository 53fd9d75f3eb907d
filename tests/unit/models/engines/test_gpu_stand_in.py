"""The gpu engine's own code on stand-ins for CuPy and cuML.

The stand-ins take exactly the arguments that cuML 26.10 documents and compute with NumPy and scikit-learn.
They prove our calls, shapes and names; that cuML answers well is proven in tests/gpu.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import treelite.sklearn
from sklearn import ensemble

from dmls_core.errors import DataError, EngineUnavailableError
from dmls_core.models import CATALOGUE
from dmls_core.models.engines.cuda import to_device
from dmls_core.models.engines.cuml import CumlForestEngine
from dmls_core.models.engines.xgboost import CudaXGBoostEngine
from dmls_core.models.metrics import scorer
from dmls_core.search.candidate import make_candidate
from dmls_core.search.forest import growing
from dmls_core.search.forest.scoring import prepare_scoring
from dmls_core.search.forest.space import partition_space
from dmls_core.search.forest.trees import prune_tree
from dmls_core.search.optimize import search
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.serving.formats.treelite import checkpoint
from dmls_core.spec import Choice
from dmls_core.testing.engines import make_data


class DeviceArray(np.ndarray):
    """An array "on the device": NumPy may not be handed one by accident."""

    def __array_function__(self, func, types, args, kwargs):
        raise TypeError(f"numpy.{func.__name__} was given an array of the device")


class CUDARuntimeError(RuntimeError):
    pass


def fake_cupy() -> ModuleType:
    cupy = ModuleType("cupy")
    cupy.asarray = lambda array: np.array(array).view(DeviceArray)
    cupy.asnumpy = lambda array: np.array(array.view(np.ndarray) if isinstance(array, np.ndarray) else array)
    cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError))
    return cupy


class FakeForest:
    """The documented keywords of cuML's forests."""

    def __init__(
        self,
        *,
        split_criterion,
        n_estimators=100,
        bootstrap=True,
        max_samples=1.0,
        max_depth=None,
        max_leaves=-1,
        max_features,
        n_bins=128,
        min_samples_leaf=1,
        min_samples_split=2,
        min_impurity_decrease=0.0,
        max_batch_size=4096,
        random_state=None,
        n_streams=4,
        oob_score=False,
        verbose=False,
        output_type=None,
        **own,
    ):
        self.params = {k: v for k, v in locals().items() if k not in ("self", "own", "__class__")} | own
        assert type(max_samples) is float
        assert max_depth is None or max_depth > 0
        assert isinstance(n_bins, int)

    def get_params(self):
        return self.params

    def fit(self, features, target):
        assert isinstance(features, DeviceArray)
        assert isinstance(target, DeviceArray)
        assert features.dtype == np.float32
        if self.params["min_samples_split"] == 99:
            raise RuntimeError("std::bad_alloc: out_of_memory: CUDA error")
        criterion = {"mse": "squared_error"}.get(
            self.params["split_criterion"], self.params["split_criterion"]
        )
        self.forest = self.kind(
            self.params["n_estimators"], criterion=criterion, max_features=self.params["max_features"],
            random_state=self.params["random_state"],
        )  # fmt: skip
        self.forest.fit(features.view(np.ndarray), target.view(np.ndarray))
        self.feature_importances_ = self.forest.feature_importances_.astype(np.float32)
        if self.params["oob_score"]:
            masks = np.zeros((len(self.forest.estimators_), len(features)), np.bool_)
            for mask, drawn in zip(masks, self.forest.estimators_samples_, strict=True):
                mask[drawn] = True
            self._compute_oob_score(features, target, masks.view(DeviceArray))
        return self

    def _compute_oob_score(self, X, y, bootstrap_masks_cp):  # noqa: ARG002, N803 - as in cuML
        raise AssertionError("cuML computed a score that is not needed")

    def as_treelite(self):
        return treelite.sklearn.import_model(self.forest)


class FakeClassifier(FakeForest):
    kind = ensemble.RandomForestClassifier

    def __init__(self, *, split_criterion="gini", max_features="sqrt", class_weight=None, **kwargs):
        assert split_criterion in ("gini", "entropy")
        super().__init__(
            split_criterion=split_criterion, max_features=max_features, class_weight=class_weight, **kwargs
        )

    def fit(self, features, target):
        assert target.dtype == np.int32
        super().fit(features, target)
        self.classes_ = self.forest.classes_

    def predict_proba(self, features):
        return self.forest.predict_proba(features.view(np.ndarray)).astype(np.float32).view(DeviceArray)


class FakeRegressor(FakeForest):
    kind = ensemble.RandomForestRegressor

    def __init__(self, *, split_criterion="mse", max_features=1.0, **kwargs):
        assert split_criterion in ("mse", "poisson", "gamma", "inverse_gaussian")
        assert "class_weight" not in kwargs
        super().__init__(split_criterion=split_criterion, max_features=max_features, **kwargs)

    def fit(self, features, target):
        assert target.dtype == np.float32
        super().fit(features, target)

    def predict(self, features):
        return self.forest.predict(features.view(np.ndarray)).astype(np.float32).view(DeviceArray)


@pytest.fixture
def stand_ins(monkeypatch):
    """Put the stand-ins in the libraries' places."""
    cuml = ModuleType("cuml")
    cuml.ensemble = ModuleType("cuml.ensemble")
    cuml.ensemble.RandomForestClassifier = FakeClassifier
    cuml.ensemble.RandomForestRegressor = FakeRegressor
    modules = {"cupy": fake_cupy(), "cuml": cuml, "cuml.ensemble": cuml.ensemble}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def fit(name: str, params: dict | None = None, kind: str = "multiclass", rows: slice = slice(None)):
    engine = CumlForestEngine()
    data = make_data(kind)
    fitted = engine.fit(
        CATALOGUE[name],
        {"n_estimators": 10} | (params or {}),
        engine.place(data.x)[rows],
        engine.place(data.y)[rows],
        n_classes=data.n_classes,
        seed=4,
        threads=2,
    )
    return engine, data, fitted


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("random-forest-classifier", "binary"),
        ("random-forest-classifier", "multiclass"),
        ("random-forest-regressor", "regression"),
    ],
)
def test_a_forest_goes_all_the_way(name: str, kind: str, tmp_path):
    engine, data, fitted = fit(name, kind=kind)

    own = fitted.predict(engine.place(data.x))
    loaded = checkpoint.export(fitted.to_treelite(), tmp_path / "checkpoint.tl")

    assert type(own) is np.ndarray
    check_parity(own, checkpoint.predict(loaded, data.x))
    assert fitted.importances().sum() == pytest.approx(1)


@pytest.mark.usefixtures("stand_ins")
def test_names_and_words_are_cumls_and_the_record_is_the_users():
    _, _, fitted = fit(
        "random-forest-classifier",
        {"criterion": "log_loss", "max_leaf_nodes": "none", "max_samples": "none", "max_features": "none"},
    )

    given, said = fitted._forest.params, fitted.parameters()
    assert given["split_criterion"] == "entropy"
    assert given["max_leaves"] == -1
    assert given["max_samples"] == 1.0
    assert given["max_features"] == 1.0
    assert given["max_depth"] is None
    assert given["n_streams"] == 8
    assert given["random_state"] == 4
    assert said["criterion"] == "entropy"
    assert said["max_leaf_nodes"] is None
    assert said["n_bins"] == 128
    assert "split_criterion" not in said
    assert "n_streams" not in said


@pytest.mark.usefixtures("stand_ins")
def test_a_class_that_a_fold_lacks_keeps_its_column():
    rows = make_data("multiclass").y != 1
    engine, data, fitted = fit("random-forest-classifier", rows=rows)

    found = fitted.predict(engine.place(data.x))

    assert found.shape == (len(data.x), 4)
    assert (found[:, 1] == 0).all()


@pytest.mark.usefixtures("stand_ins")
def test_a_lack_of_memory_is_no_refusal():
    with pytest.raises(MemoryError, match="bad_alloc"):
        fit("random-forest-classifier", {"min_samples_split": 99})


@pytest.mark.usefixtures("stand_ins")
def test_a_refusal_is_the_users_to_mend():
    with pytest.raises(DataError, match="random-forest-classifier cannot be fitted"):
        fit("random-forest-classifier", {"n_estimators": -3})


def make_task(kind: str = "multiclass", **options) -> SearchTask:
    """Return a task whose data is on the device."""
    data = make_data(kind)
    model = CATALOGUE[f"random-forest-{'classifier' if data.n_classes else 'regressor'}"]
    engine = CumlForestEngine()
    return SearchTask(
        model=model,
        engine=engine,
        features=engine.place(data.x),
        target=engine.place(data.y),
        truth=data.y,
        n_classes=data.n_classes,
        folds=make_folds(data.y, 3, n_classes=data.n_classes, seed=0),
        score=scorer(model.default_metric),
        direction="maximize",
        seed=0,
        threads=1,
        **options,
    )


SPACE = Space({"n_estimators": Choice(values=(4, 30)), "max_depth": Choice(values=(2, 40))}, {})


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("kind", ["binary", "multiclass", "regression"])
def test_blocks_are_scored_on_the_rows_that_their_trees_have_not_drawn(kind: str, monkeypatch):
    # Several groups of trees are read from one block.
    monkeypatch.setattr(growing, "MAX_PREDICTIONS", 8_000)
    task = make_task(kind)
    parts = partition_space(task, SPACE)
    (split,) = prepare_scoring(task, SPACE, len(parts.limits)).splits
    forest = growing.BlockForest(task, parts, split, {}, threads=1)
    x, outputs = np.asarray(task.features), max(1, task.n_classes)
    sums, votes = np.zeros((len(parts.limits), len(x), outputs)), np.zeros(len(x))

    assert split.out_of_bag
    for before, size in ((0, 4), (4, 30)):
        forest.grow(size)
        trees = ensemble.RandomForestClassifier if task.n_classes else ensemble.RandomForestRegressor
        own = trees(
            size - before,
            max_features="sqrt" if task.n_classes else 1.0,
            random_state=growing.seed_of_block(0, before),
        )
        own.fit(x, np.asarray(task.target, np.int32 if task.n_classes else np.float32))
        for tree, drawn in zip(own.estimators_, own.estimators_samples_, strict=True):
            unseen = np.setdiff1d(np.arange(len(x)), drawn)
            votes[unseen] += 1
            for total, limit in zip(sums, parts.limits, strict=True):
                total[unseen] += prune_tree(tree.tree_, limit, len(x), None).predict(x[unseen])

    rows = np.flatnonzero(forest.has_votes())
    assert np.array_equal(rows, np.flatnonzero(votes))
    assert forest.voting_share() == pytest.approx(votes.mean() / 30)
    for limit, total in enumerate(sums):
        expected = (total[rows] / votes[rows, None]).reshape(len(rows), outputs)
        found = forest.prediction(limit, rows).reshape(len(rows), outputs)
        assert found == pytest.approx(expected, abs=1e-6 * np.abs(expected).max())


@pytest.mark.usefixtures("stand_ins")
def test_a_search_needs_one_forest_for_each_configuration_and_the_model_is_fitted_after_it():
    task = make_task()
    fits: list[int] = []
    FakeForest.fit, fit = lambda self, *data: fits.append(len(data[0])) or fit(self, *data), FakeForest.fit
    try:
        _, outcome = search([make_candidate("auto", task, SPACE, 1)], 1)
    finally:
        FakeForest.fit = fit

    assert outcome.fitted is None
    assert set(fits) == {len(task.truth)}, "no fold was fitted"
    assert outcome.best.value in outcome.best.surface.values


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("why", ["cuml", "task", "bootstrap"])
def test_without_draws_forests_are_scored_on_folds(why: str, monkeypatch):
    task, space = make_task(out_of_bag=why != "task"), SPACE
    if why == "cuml":
        monkeypatch.delattr(FakeForest, "_compute_oob_score")
    if why == "bootstrap":
        space = Space(SPACE.searched, {"bootstrap": False})
    splits = prepare_scoring(task, space, 2).splits
    assert len(splits) == 3
    assert not splits[0].out_of_bag


@pytest.mark.usefixtures("stand_ins")
def test_an_engine_that_reports_no_draws_after_all_is_named(monkeypatch):
    task = make_task()
    parts = partition_space(task, SPACE)
    (split,) = prepare_scoring(task, SPACE, len(parts.limits)).splits
    monkeypatch.delattr(FakeForest, "_compute_oob_score")
    with pytest.raises(EngineUnavailableError, match="cuml-forests did not report"):
        growing.BlockForest(task, parts, split, {}, threads=1).grow(4)


def test_a_driver_that_fails_is_named(stand_ins):
    def fail(_: object) -> None:
        raise CUDARuntimeError("cudaErrorInsufficientDriver")

    stand_ins["cupy"].asarray = fail

    with pytest.raises(EngineUnavailableError, match="cudaErrorInsufficientDriver"):
        to_device(np.zeros(3))


def test_data_that_the_gpu_has_no_memory_for_is_named(stand_ins):
    def fail(_: object) -> None:
        raise MemoryError("std::bad_alloc: out_of_memory: CUDA error")

    stand_ins["cupy"].asarray = fail

    with pytest.raises(MemoryError, match="the GPU has too little memory for 8 MiB of data"):
        to_device(np.zeros(2**20))


@pytest.mark.usefixtures("stand_ins")
def test_xgboost_asks_for_cuda_and_fetches_what_it_predicts():
    engine = CudaXGBoostEngine()

    assert engine.xgboost_device == "cuda"
    assert engine.device == "gpu"
    assert type(engine.place(np.zeros(3))) is DeviceArray
    assert type(engine.fetch(engine.place(np.zeros(3)))) is np.ndarray
