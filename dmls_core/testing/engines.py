"""Tests that every engine must pass."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from dmls_core.errors import DataError, SpecError
from dmls_core.models import CATALOGUE, engine_class, for_engine, load_spec
from dmls_core.models.engines import BoostingEngine, Engine, Fitted, ForestEngine
from dmls_core.models.trees import read_trees
from dmls_core.serving.formats.base import export_format
from dmls_core.serving.formats.tolerance import check_parity
from dmls_core.spec import Choice, HyperparameterDefinition, ModelDefinition, Scalar

COLUMNS = 6

_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of files that ``pickle`` writes, protocols 2 to 5."""


@dataclass(frozen=True)
class SuiteData:
    """A small data set.

    Attributes:
        x: (n_rows, 6) float32.
        y: (n_rows,): int32 class codes, or float64 values.
        n_classes: 0 for a regression.
    """

    x: NDArray[np.float32]
    y: NDArray[Any]
    n_classes: int

    @property
    def half(self) -> int:
        return len(self.x) * 3 // 4


def make_data(kind: str, rows: int = 240, seed: int = 0) -> SuiteData:
    """Return a data set of the kind ``binary``, ``multiclass`` or ``regression``, ``-nan``: with gaps.

    Column 0 holds the codes of a categorical feature with unknown values (-1), column 1 values that differ in
    the last bit of a float32. Columns 1 and 5 do not affect the target.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, COLUMNS)).astype(np.float32)
    x[:, 0] = rng.integers(-1, 5, rows)
    x[:, 1] = np.nextafter(np.float32(1), np.float32(2), dtype=np.float32) * rng.integers(1, 4, rows)
    signal = x[:, 2] + (x[:, 0] == 2) - x[:, 3] * x[:, 4] + rng.normal(scale=0.3, size=rows)
    task = kind.removesuffix("-nan")
    y: NDArray[Any]
    if task == "regression":
        y, n_classes = 1000 * signal.astype(np.float64), 0
    else:
        n_classes = 2 if task == "binary" else 4
        y = np.digitize(signal, np.quantile(signal, np.linspace(0, 1, n_classes + 1)[1:-1])).astype(np.int32)
    if kind.endswith("-nan"):
        x[rng.random(x.shape) < 0.15] = np.nan
    return SuiteData(x, y, n_classes)


def kinds_of(model: ModelDefinition) -> list[str]:
    """Return the kinds of data that a model can be fitted to."""
    kinds = ["regression"] if model.task == "regression" else ["binary", "multiclass"]
    return kinds + [f"{kind}-nan" for kind in kinds] * model.missing_values


class EngineDefinitionSuite:
    """Tests of an engine's definitions, which need none of its packages; a subclass sets ``engine_class``.

    Attributes:
        fast: hyperparameters that make fits fast.
        strong: hyperparameters that make the model learn the test data.
        samples: those with which two seeds give different models; ``None``: the engine ignores the seed.
        values: hyperparameter -> a legal value that is not its default, if the suite's own does not suit.
        refused: hyperparameters that the library rejects with an error; may be empty.
    """

    engine_class: ClassVar[type[Engine]]
    fast: ClassVar[Mapping[str, Scalar]] = {"n_estimators": 5}
    strong: ClassVar[Mapping[str, Scalar]] = {"n_estimators": 40}
    samples: ClassVar[Mapping[str, Scalar] | None] = {}
    values: ClassVar[Mapping[str, Scalar]] = {}
    refused: ClassVar[Mapping[str, Scalar]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        models = [CATALOGUE.get(model.name, model) for model in self.engine_class.models]
        if {"model", "kind"} <= set(metafunc.fixturenames):
            cases = [(model, kind) for model in models for kind in kinds_of(model)]
            metafunc.parametrize(("model", "kind"), cases, ids=[f"{m.name}-{k}" for m, k in cases])
        elif {"model", "parameter"} <= set(metafunc.fixturenames):
            pairs = [(model, name) for model in models for name in self.engine_class.effective(model, {})]
            metafunc.parametrize(("model", "parameter"), pairs, ids=[f"{m.name}-{p}" for m, p in pairs])
        elif "model" in metafunc.fixturenames:
            metafunc.parametrize("model", models, ids=[model.name for model in models])

    def test_the_catalogue_finds_the_engine(self, model: ModelDefinition) -> None:
        assert engine_class(self.engine_class.device, model.name) is self.engine_class
        assert self.engine_class.device in CATALOGUE[model.name].engines

    def test_definitions_are_complete(self, model: ModelDefinition) -> None:
        """Hyperparameters have their own name and a description; rules and spaces refer to them."""
        names = set(model.hyperparameters)
        assert set(model.search) <= names
        assert set(self.engine_class.arguments) <= {
            name for one in self.engine_class.models for name in one.hyperparameters
        }
        for rule in model.requirements:
            assert {rule.name, rule.needs} <= names
        for name, definition in model.hyperparameters.items():
            assert definition.name == name
            assert definition.description.endswith(".")

    def test_a_spec_without_hyperparameters_searches_the_default_space(self, model: ModelDefinition) -> None:
        source = f"model = '{model.name}'\n[columns]\ntarget = 'y'".encode()
        (search,) = load_spec(source, deploys=False).models
        defaults = {name: Choice(values=(one.default,)) for name, one in model.hyperparameters.items()}
        changed = {name for name, space in search.hyperparameters.items() if space != defaults[name]}
        assert changed == set(model.search)

    def test_unsupported_hyperparameters_are_errors_of_the_spec(self, model: ModelDefinition) -> None:
        """A spec may fix them at their defaults, and nothing else."""
        for name, argument in self.engine_class.arguments.items():
            if name in model.hyperparameters and argument.unsupported:
                definition = model.hyperparameters[name]
                device = self.engine_class.device
                assert for_engine(model, {name: Choice(values=(definition.default,))}, device) == {}
                with pytest.raises(SpecError, match="cannot be varied"):
                    for_engine(model, {name: Choice(values=(self._other_value(definition),))}, device)

    def test_reading_the_definitions_imports_no_library(self) -> None:
        """The engine's packages may not be installed."""
        code = (
            f"import sys, {self.engine_class.__module__}\n"
            f"print(*sorted({set(self.engine_class.packages)} & set(sys.modules)))"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == ""

    def _other_value(self, definition: HyperparameterDefinition) -> Scalar:
        if definition.name in self.values:
            return self.values[definition.name]
        if definition.kind == "bool":
            return not definition.default
        if definition.kind == "choice":
            return next(choice for choice in definition.choices if choice != definition.default)
        if definition.kind in ("int", "count"):
            value = (definition.default if type(definition.default) is int else 5) + 3
            return value if definition.high is None or value <= definition.high else int(definition.high) - 1
        return 0.25 if definition.default != 0.25 else 0.5


class EngineSuite(EngineDefinitionSuite):
    """All tests of an engine class; a subclass sets ``engine_class`` and attributes that its models need.

    Examples:
        pytest runs every test for every model of the engine; here, one is called by hand:

        >>> from dmls_core.models.engines.lightgbm import LightGBMEngine
        >>> from dmls_core.testing import EngineSuite
        >>> class TestLightGBM(EngineSuite):
        ...     engine_class = LightGBMEngine
        ...     samples = {"subsample": 0.5, "subsample_freq": 1}  # without them, the seed changes nothing
        >>> TestLightGBM().test_definitions_are_complete(LightGBMEngine.models[0])
    """

    @pytest.fixture
    def engine(self) -> Engine:
        """Return the engine; skip the test if its packages are not installed."""
        if missing := self.engine_class.missing_packages():
            pytest.skip(f"packages are not installed: {', '.join(missing)}")
        return self.engine_class()

    @pytest.fixture
    def fit(self, engine: Engine) -> Callable[..., Fitted]:
        def fit(model: ModelDefinition, data: SuiteData, seed: int = 1, **params: Scalar) -> Fitted:
            return engine.fit(
                model,
                {**self.fast, **params},
                engine.place(data.x[: data.half]),
                engine.place(data.y[: data.half]),
                n_classes=data.n_classes,
                seed=seed,
                threads=1,
            )

        return fit

    def test_predictions_have_the_shape_of_the_task(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition, kind: str
    ) -> None:
        """Probabilities for each class, or values, as a NumPy array."""
        data = make_data(kind)
        predictions = fit(model, data).predict(engine.place(data.x))
        assert type(predictions) is np.ndarray
        assert np.isfinite(predictions).all()
        if data.n_classes:
            assert predictions.shape == (len(data.x), data.n_classes)
            assert predictions.sum(axis=1) == pytest.approx(1, abs=1e-5)
        else:
            assert predictions.shape == (len(data.x),)

    def test_the_model_learns(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition, kind: str
    ) -> None:
        """The model predicts unseen rows better than a constant."""
        data = make_data(kind, rows=600)
        predictions = fit(model, data, **self.strong).predict(engine.place(data.x[data.half :]))
        truth = data.y[data.half :]
        if data.n_classes:
            assert (predictions.argmax(axis=1) == truth).mean() > np.bincount(truth).max() / len(truth) + 0.1
        else:
            assert ((predictions - truth) ** 2).mean() < 0.7 * truth.var()

    def test_the_same_seed_gives_the_same_model(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition
    ) -> None:
        """Two fits agree exactly; another seed gives another model, if the engine uses it."""
        data = make_data(kinds_of(model)[0])
        unseen = engine.place(make_data("regression", seed=9).x)
        params = {
            name: value for name, value in (self.samples or {}).items() if name in model.hyperparameters
        }
        one, same, other = (fit(model, data, seed, **params).predict(unseen) for seed in (1, 1, 2))
        assert (one == same).all()
        assert self.samples is None or (one != other).any()

    @pytest.mark.parametrize("columns", [COLUMNS, 1])
    def test_arguments_stay_as_they_are(self, engine: Engine, model: ModelDefinition, columns: int) -> None:
        """Others read the same arrays and write to them: some libraries lock a matrix of one column."""
        data = make_data(kinds_of(model)[0])
        rows = np.ascontiguousarray(data.x[:, -columns:])
        x, y, params = engine.place(rows.copy()), engine.place(data.y.copy()), dict(self.fast)
        options: dict[str, Any] = {"n_classes": data.n_classes, "seed": 1, "threads": 1}
        scored = engine.place(rows.copy())
        engine.fit(model, params, x, y, **options).predict(scored)
        if isinstance(engine, BoostingEngine):
            engine.bin(model, params, x, y, scored, **options).start(params).grow(2)
        for array, content in ((x, rows), (y, data.y), (scored, rows)):
            assert np.array_equal(engine.fetch(array), content, equal_nan=True)
            array[:] = 0
        assert params == self.fast

    def test_a_row_without_weight_does_not_count(self, engine: Engine, model: ModelDefinition) -> None:
        """Every row is repeated with a wrong target."""
        if not engine.sample_weights:
            pytest.skip("the engine takes no weights")
        data = make_data("binary" if model.task == "classification" else "regression")
        wrong = 1 - data.y if data.n_classes else -data.y
        x, y = engine.place(np.tile(data.x, (2, 1))), engine.place(np.concatenate([data.y, wrong]))
        weights = engine.place(np.repeat([2.0, 0.0], len(data.x)))
        fitted = engine.fit(
            model, self.strong, x, y, n_classes=data.n_classes, seed=0, threads=1, weights=weights
        )
        predictions = fitted.predict(engine.place(data.x))
        assert np.corrcoef(predictions[:, 1] if data.n_classes else predictions, data.y)[0, 1] > 0.8

    def test_a_class_without_rows_keeps_its_column(self, engine: Engine, model: ModelDefinition) -> None:
        """A fold may lack a class."""
        if model.task == "regression":
            pytest.skip("a regression has no classes")
        data = make_data("multiclass")
        rows = data.y != 2
        fitted = engine.fit(
            model,
            self.fast,
            engine.place(data.x[rows]),
            engine.place(data.y[rows]),
            n_classes=4,
            seed=0,
            threads=1,
        )
        predictions = fitted.predict(engine.place(data.x))
        assert predictions.shape == (len(data.x), 4)
        assert predictions.sum(axis=1) == pytest.approx(1, abs=1e-5)
        assert predictions[:, 2].max() < 0.3

    def test_importances_are_shares(self, fit: Callable[..., Fitted], model: ModelDefinition) -> None:
        """Informative columns have most of them; an engine may return zeros only."""
        importances = fit(model, make_data(kinds_of(model)[0]), **self.strong).importances()
        assert importances.shape == (COLUMNS,)
        if importances.any():
            assert importances.sum() == pytest.approx(1, abs=1e-5)
            assert importances[1] + importances[5] < importances[2] + importances[3] + importances[4]

    def test_hyperparameters_are_recorded(
        self, fit: Callable[..., Fitted], model: ModelDefinition, parameter: str
    ) -> None:
        """``parameters`` reports a value that is not the default, and all others."""
        value = self.values.get(parameter, self._other_value(model.hyperparameters[parameter]))
        needed = {rule.needs: rule.value for rule in model.requirements if rule.name == parameter}
        fitted = fit(model, make_data(kinds_of(model)[0]), **{**needed, parameter: value})
        parameters = fitted.parameters()
        aliases = (
            self.engine_class.arguments[parameter].aliases if parameter in self.engine_class.arguments else {}
        )
        assert parameters[parameter] == (None if value == "none" else aliases.get(str(value), value))
        assert set(parameters) >= set(self.engine_class.effective(model, {}))
        assert all(isinstance(one, bool | int | float | str | type(None)) for one in parameters.values())

    def test_the_librarys_errors_are_the_users(
        self, fit: Callable[..., Fitted], model: ModelDefinition
    ) -> None:
        """A fit that the library rejects raises ``DataError``, which fails the trial and not the run."""
        if not self.refused or not set(self.refused) <= set(model.hyperparameters):
            pytest.skip("the suite has no hyperparameters that the library rejects")
        with pytest.raises(DataError, match=f"{model.name} cannot be fitted: "):
            fit(model, make_data(kinds_of(model)[0]), **self.refused)

    # -- export ----------------------------------------------------------------------------------------

    def test_the_exported_model_predicts_the_same(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition, kind: str, tmp_path: Path
    ) -> None:
        """The files agree with the fitted model within the tolerance of a deployment, and are no pickles."""
        data = make_data(kind)
        fitted = fit(model, data, **self.strong)
        expected = fitted.predict(engine.place(data.x))
        served = export_format(engine.export_format).export(fitted, tmp_path, threads=1).predict(data.x)
        check_parity(expected, np.asarray(served, dtype=np.float32))
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert files
        assert not [path.name for path in files if path.read_bytes().startswith(_PICKLES)]

    def test_missing_values_where_training_had_none(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition, tmp_path: Path
    ) -> None:
        """The exported model sends missing values down the same branches."""
        if not model.missing_values:
            pytest.skip("missing values are imputed")
        data = make_data(kinds_of(model)[0])
        fitted = fit(model, data)
        holes = data.x.copy()
        holes[np.random.default_rng(3).random(holes.shape) < 0.4] = np.nan
        served = export_format(engine.export_format).export(fitted, tmp_path, threads=1).predict(holes)
        check_parity(fitted.predict(engine.place(holes)), np.asarray(served, dtype=np.float32))

    def test_native_categories_are_exported(
        self, engine: Engine, model: ModelDefinition, tmp_path: Path
    ) -> None:
        """The exported model treats unseen codes, in between and beyond, as the fitted model does."""
        if not engine.native_categories:
            pytest.skip("unknown and missing categories have no codes of their own")
        data = make_data(kinds_of(model)[0], rows=600)
        data.x[:, 0] += 1
        train, unseen = data.x[: data.half, 0], data.x[data.half :, 0]
        train[train == 1] = 0
        unseen[::3] = 9
        engine.categories = (0,)
        x, y = engine.place(data.x[: data.half]), engine.place(data.y[: data.half])
        fitted = engine.fit(model, self.strong, x, y, n_classes=data.n_classes, seed=1, threads=1)
        served = export_format(engine.export_format).export(fitted, tmp_path, threads=1).predict(data.x)
        check_parity(fitted.predict(engine.place(data.x)), np.asarray(served, dtype=np.float32))

    # -- optional capabilities -------------------------------------------------------------------------

    def test_growing_models_agree_with_fits(self, engine: Engine, model: ModelDefinition, kind: str) -> None:
        """A growing model, and the first rounds of a fitted one, predict as a fit with that many rounds."""
        if not isinstance(engine, BoostingEngine):
            pytest.skip("not a BoostingEngine")
        data = make_data(kind)
        x, y = engine.place(data.x[: data.half]), engine.place(data.y[: data.half])
        scored = engine.place(data.x[data.half :])
        options: dict[str, Any] = {"n_classes": data.n_classes, "seed": 3, "threads": 1}
        growing = engine.bin(model, self.fast, x, y, scored, **options).start(
            {**self.fast, "n_estimators": 9}
        )
        for rounds in (1, 4, 9):
            fitted = engine.fit(model, {**self.fast, "n_estimators": rounds}, x, y, **options)
            np.testing.assert_allclose(growing.grow(rounds), fitted.predict(scored), rtol=2e-6, atol=2e-6)
        if fitted.can_stop_earlier():
            shorter = engine.fit(model, {**self.fast, "n_estimators": 4}, x, y, **options).predict(scored)
            predictions = fitted.first_rounds(4).predict(scored)
            np.testing.assert_allclose(predictions, shorter, rtol=2e-6, atol=2e-6)

    def test_forests_are_the_mean_of_their_trees(
        self, engine: Engine, fit: Callable[..., Fitted], model: ModelDefinition
    ) -> None:
        """Nested search reads the trees of a Treelite model."""
        if not isinstance(engine, ForestEngine):
            pytest.skip("not a ForestEngine")
        data = make_data(kinds_of(model)[0])
        outputs = data.n_classes or 1
        fitted = fit(model, data)
        total, count = np.zeros((len(data.x), outputs)), 0
        for trees in read_trees(fitted.to_treelite(), outputs, most=2):
            for root in trees.roots:
                at = np.full(len(data.x), root)
                for _ in range(trees.depth):
                    right = data.x[np.arange(len(at)), trees.features[at]] > trees.thresholds[at]
                    at = trees.children[at, right.astype(int)]
                total += trees.values[at]
                count += 1
        expected = fitted.predict(engine.place(data.x)).reshape(len(data.x), outputs)
        np.testing.assert_allclose(total / count, expected, rtol=1e-5, atol=1e-6)
