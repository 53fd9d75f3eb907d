"""The base classes of engines and fitted models.

An engine fits the models of one library on one device. It is one class, registered under the entry point
``dmls.engines``; ``docs/extending/engines.md`` shows a complete one. Engine modules import their libraries
within methods, so that the catalogue can be read without these libraries.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dmls_core.errors import DataError, ValidationIssue
from dmls_core.spec.definitions import NONE, HyperparameterDefinition, ModelDefinition, Scalar

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import treelite
    from numpy.typing import NDArray

    FloatArray = NDArray[np.floating[Any]]

Device = Literal["cpu", "gpu"]
"""Device of an engine: ``engine`` in ``[resources]`` of a spec and in ``result.json``."""

Array = Any
"""An array on the engine's device: NumPy's on ``cpu``, CuPy's on ``gpu``."""

Forest = Any
"""A forest of scikit-learn or cuML; neither library is typed."""

_TREELITE = "treelite"
"""The export format that Triton's FIL backend serves: a Treelite checkpoint."""

_PARALLEL_CELLS = 20_000
"""A fit on fewer cells (rows times columns) than this is faster on one thread."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A library's form of a hyperparameter, where it differs from the spec's.

    Attributes:
        name: the library's name for it.
        values: value in a spec -> the library's value. ``"none"`` is ``None`` by default.
        aliases: value in a spec -> another value that has the same effect in this library.
        unsupported: why the library cannot change it from its default; empty if it can.
        unsupported_values: values that the library does not support.
        shares_only: whether a ``count`` must be a float.
    """

    name: str = ""
    values: Mapping[str, Scalar | None] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    unsupported: str = ""
    unsupported_values: frozenset[str] = frozenset()
    shares_only: bool = False


SAME = Argument()
"""The library takes the hyperparameter as the spec does."""


class Fitted(ABC):
    """A fitted model.

    Examples:
        The mean of the target, whatever the row:

        >>> import numpy as np
        >>> from dmls_core.models.engines import Fitted
        >>> class FittedMean(Fitted):
        ...     def __init__(self, mean, n_features):
        ...         self.mean, self.n_features = mean, n_features
        ...     def predict(self, features):
        ...         return np.full(len(features), self.mean)
        ...     def importances(self):
        ...         return np.zeros(self.n_features)
        ...     def parameters(self):
        ...         return {}
        >>> FittedMean(2.5, n_features=3).predict(np.zeros((2, 3), np.float32))
        array([2.5, 2.5])
    """

    @abstractmethod
    def predict(self, features: Array) -> FloatArray:
        """Predict ``features`` of shape (n_rows, n_features), float32, on the engine's device.

        Returns:
            A NumPy array: probabilities of shape (n_rows, n_classes), or values of shape (n_rows,).
        """

    @abstractmethod
    def importances(self) -> FloatArray:
        """Return one share per feature, shape (n_features,), summing to 1 (or all 0)."""

    @abstractmethod
    def parameters(self) -> dict[str, Scalar | None]:
        """Return every parameter in effect: the spec's by the spec's names, others by the library's."""

    def to_treelite(self) -> treelite.Model:
        """Return the trees as a Treelite model; engines with the export format ``treelite`` define it."""
        raise NotImplementedError(f"{type(self).__name__} has no Treelite model")

    def can_stop_earlier(self) -> bool:
        """Return whether ``first_rounds`` is supported."""
        return False

    def first_rounds(self, rounds: int) -> Fitted:
        """Return the boosted model after its first ``rounds`` rounds, for ``[deploy] compact``."""
        raise NotImplementedError(f"{type(self).__name__} cannot leave out rounds")

    def export(self, folder: Path) -> Callable[[NDArray[np.float32]], FloatArray]:
        """Write the model's files to ``folder``; engines with another export format define it.

        Returns:
            A function that predicts from these files, in the shapes of ``predict``. Training compares its
            predictions with those of the model before it publishes the files.
        """
        raise NotImplementedError(f"{type(self).__name__} has the export format {_TREELITE!r}")


class Engine(ABC):
    """Fit the models of one library on one device.

    Attributes:
        name: the engine's name, which is also the name of its entry point.
        device: ``cpu`` or ``gpu``. A model has at most one engine per device.
        packages: modules that must be importable.
        libraries: distributions whose versions ``result.json`` records.
        arguments: hyperparameter -> the library's form of it, where that differs from the spec's.
        native_categories: whether unknown and missing categories have codes of their own, as libraries need
            that split on sets of categories. DMLS then sets ``categories``.
        sample_weights: whether ``fit``, and ``bin`` of a ``BoostingEngine``, take ``weights``.
        external_memory: whether ``features`` may be a ``StoredMatrix``, which is larger than memory. Other
            engines get as many of its rows as fit in memory. ``distributed``: or a ``ShardedMatrix``.
        export_format: format of the exported model. Triton's FIL backend serves ``treelite`` only.
        target_scale: smallest and largest standard deviation of a regression's target at which the unit of
            the target does not change the trees. A run warns of a target outside of these.

    Examples:
        Fit a model of a registered engine as a run does, on one thread:

        >>> import numpy as np
        >>> from dmls_core.models import CATALOGUE, load_engine
        >>> model, engine = CATALOGUE["lightgbm-regressor"], load_engine("cpu", "lightgbm-regressor")
        >>> rows = np.arange(200, dtype=np.float32).reshape(-1, 1)
        >>> target = np.repeat([1.0, 5.0], 100)
        >>> fitted = engine.fit(model, {"n_estimators": 50}, rows, target, n_classes=0, seed=1, threads=1)
        >>> fitted.predict(rows[[0, 199]]).round(1).tolist()
        [1.0, 5.0]
        >>> fitted.parameters()["n_estimators"]
        50
    """

    name: ClassVar[str]
    device: ClassVar[Device]
    models: ClassVar[tuple[ModelDefinition, ...]]
    packages: ClassVar[tuple[str, ...]]
    libraries: ClassVar[tuple[str, ...]]
    arguments: ClassVar[Mapping[str, Argument]] = {}
    native_categories: ClassVar[bool] = False
    sample_weights: ClassVar[bool] = False
    external_memory: ClassVar[bool] = False
    distributed: ClassVar[bool] = False
    export_format: ClassVar[str] = _TREELITE
    target_scale: ClassVar[tuple[float, float]] = (1e-7, 1e28)  # scikit-learn splits no variance below 2e-16
    categories: tuple[int, ...] = ()
    """Positions of the columns with codes of categories, 0, 1, 2, ...; only with ``native_categories``."""

    @abstractmethod
    def fit(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: Array | None = None,
    ) -> Fitted:
        """Fit one model.

        Args:
            model: one of ``models``.
            params: hyperparameters by the spec's names; ``effective`` adds the defaults of the others.
            features: (n_rows, n_features) float32 on the engine's device.
            target: (n_rows,) on the device: class codes from 0 as int32, or values as float64.
            n_classes: number of classes, 0 for a regression. ``target`` may lack some of them.
            seed: the same seed gives the same model.
            threads: maximum number of CPU threads.
            weights: (n_rows,) float64 on the device, 0 or more; only if the engine has ``sample_weights``.

        Raises:
            DataError: the library rejects these hyperparameters for this data; see ``refusal``.
            MemoryError: the device has too little memory.
        """

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003 - engines use them
        """Estimate the memory of one fit beside its rows and its model, in bytes; two copies by default.

        ``params`` are as those of ``fit``; ``stored``: the rows are in a file.
        """
        return 8 * rows * columns

    def place(self, array: NDArray[Any]) -> Array:
        """Copy an array, of data or row indices, to the engine's device."""
        return array

    def fetch(self, array: Array) -> NDArray[Any]:
        """Copy an array from the engine's device to a NumPy array."""
        import numpy as np

        return np.asarray(array)

    @classmethod
    def reader(cls) -> Reader | None:
        """Return a reader that loads data files on the engine's device; ``None`` to read them with Polars."""
        return None

    @classmethod
    def missing_packages(cls) -> list[str]:
        """Return those of ``packages`` that are not installed, without importing any."""
        return [name for name in cls.packages if find_spec(name) is None]

    @classmethod
    def effective(cls, model: ModelDefinition, params: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return all hyperparameters that this engine supports, by the spec's names, with defaults.

        Values with the same effect become one value.
        """
        settings: dict[str, Scalar] = {}
        for name, definition in model.hyperparameters.items():
            argument = cls.arguments.get(name, SAME)
            if not argument.unsupported:
                value = params.get(name, definition.default)
                settings[name] = argument.aliases.get(str(value), value)
        return settings

    @classmethod
    def library_arguments(cls, settings: Mapping[str, Scalar]) -> dict[str, Scalar | None]:
        """Return the output of ``effective`` by the library's names and values."""
        arguments: dict[str, Scalar | None] = {}
        for name, value in settings.items():
            argument = cls.arguments.get(name, SAME)
            translated: Scalar | None = value
            if isinstance(value, str):
                translated = argument.values.get(value, None if value == NONE else value)
            arguments[argument.name or name] = translated
        return arguments

    @classmethod
    def recorded(
        cls, settings: Mapping[str, Scalar], library: Mapping[str, Scalar | None]
    ) -> dict[str, Scalar | None]:
        """Join the output of ``effective`` with the library's other parameters, by the library's names."""
        names = {*cls.library_arguments(settings), *settings}
        merged: dict[str, Scalar | None] = {k: None if v == NONE else v for k, v in settings.items()}
        return merged | {k: v for k, v in library.items() if k not in names}


class ForestEngine(Engine):
    """An engine whose models are means of trees that grow independently: nested search supports it.

    Every tree of a Treelite model of ``Fitted.to_treelite`` must test ``value <= threshold`` and record how
    many rows reached each node. Nested search fits blocks of trees with different seeds and scores all sizes
    and depths from these.
    """

    def reports_draws(self) -> bool:
        """Return whether ``fit_block`` returns the draws of a bootstrapped forest."""
        return False

    def fit_block(self, *arguments: Any, **options: Any) -> tuple[Fitted, Array | None]:  # noqa: ANN401
        """Fit as ``fit`` does; return also the rows that each tree has drawn: (n_trees, n_rows) bool."""
        return self.fit(*arguments, **options), None

    @classmethod
    def fit_bytes(cls, rows: int, columns: int, params: Mapping[str, Scalar], *, stored: bool = False) -> int:  # noqa: ARG003
        """Return the size of the rows as bin codes; see ``Engine.fit_bytes``."""
        return 4 * rows * columns


class GrowingForestEngine(ForestEngine):
    """A forest engine that can add trees to a forest of scikit-learn (``warm_start``)."""

    @abstractmethod
    def unfitted(
        self, model: ModelDefinition, settings: Mapping[str, Scalar], *, seed: int, threads: int
    ) -> Forest:
        """Return a forest of scikit-learn with ``settings`` (see ``effective``) before its fit."""

    @abstractmethod
    def wrap(
        self, model: ModelDefinition, settings: Mapping[str, Scalar], forest: Forest, n_classes: int
    ) -> Fitted:
        """Return a fitted forest of scikit-learn as a ``Fitted``."""


class Growing(ABC):
    """A boosted model that grows round by round."""

    @abstractmethod
    def grow(self, rounds: int) -> FloatArray:
        """Grow to ``rounds`` rounds in all, no fewer than before; predict the scored rows.

        Returns:
            The predictions of a model fitted with that many rounds; see ``Fitted.predict``.

        Raises:
            DataError: the library rejects the hyperparameters for this data.
        """


class Binned(ABC):
    """Rows to fit on and rows to score, binned once for any number of models."""

    @abstractmethod
    def start(self, params: Mapping[str, Scalar]) -> Growing:
        """Return a model without trees.

        For ``params``, ``BoostingEngine.binning`` must be the same as for those that the rows were binned
        for.

        Raises:
            DataError: the library rejects these hyperparameters.
        """


class BoostingEngine(Engine):
    """An engine whose models grow round by round: a search stops poor ones early.

    Its models have the hyperparameters ``n_estimators`` and ``learning_rate``.
    """

    @abstractmethod
    def binning(self, model: ModelDefinition, params: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """Return the hyperparameters that decide how rows are binned and weighted."""

    @abstractmethod
    def bin(
        self,
        model: ModelDefinition,
        params: Mapping[str, Scalar],
        features: Array,
        target: Array,
        scored: Array,
        *,
        n_classes: int,
        seed: int,
        threads: int,
        weights: Array | None = None,
    ) -> Binned:
        """Bin the rows to fit on and the rows to score, ``scored``: (n_scored, n_features).

        The other arguments are those of ``fit``; of ``params``, only those that ``binning`` returns matter.

        Raises:
            DataError: the library rejects these hyperparameters for this data.
        """


class Reader(ABC):
    """Reads columns of data files on a device; each method returns a ``pyarrow.Table`` or None."""

    @abstractmethod
    def csv(
        self,
        path: Path,
        dtypes: Mapping[int, Literal["float32", "float64", "str"]],
        *,
        header_lines: int,
        columns: int,
    ) -> Any:  # noqa: ANN401 - pyarrow is not typed
        """Read columns, by position, from a CSV file of ``columns`` columns."""

    @abstractmethod
    def parquet(self, path: Path, dtypes: Mapping[str, Literal["float32", "float64", "str"]]) -> Any:  # noqa: ANN401
        """Read columns of a Parquet file."""


def by_name(*definitions: HyperparameterDefinition) -> dict[str, HyperparameterDefinition]:
    """Return hyperparameter definitions by their names, as ``ModelDefinition`` takes them."""
    return {definition.name: definition for definition in definitions}


def useful_threads(features: Array, threads: int) -> int:
    """Return the number of threads for a fit on ``features``: 1 below ``_PARALLEL_CELLS``."""
    return threads if features.size >= _PARALLEL_CELLS else 1


_SOURCE_POSITION = re.compile(r"^\S+\.cpp:\d+: ")
"""The position in its source code at the beginning of a message of CatBoost."""


def refusal(model: ModelDefinition, error: Exception) -> Exception:
    """Return the exception to raise if a library fails to fit: ``MemoryError`` or ``DataError``."""
    if "bad_alloc" in str(error) or "out of memory" in str(error).lower():
        return MemoryError(str(error))
    lines = _SOURCE_POSITION.sub("", str(error)).strip().splitlines()
    message = lines[0] if lines else type(error).__name__
    return DataError(ValidationIssue(f"{model.name} cannot be fitted: {message}"))


def spread_columns(
    columns: FloatArray, codes: NDArray[Any], n_classes: int, absent: float = 0.0
) -> FloatArray:
    """Add columns of ``absent`` for the classes that the training rows of a fold lack.

    ``codes`` holds the class code of each column; the result has ``n_classes`` columns.
    """
    import numpy as np

    if columns.shape[1] == n_classes:
        return columns
    full = np.full((len(columns), n_classes), absent, dtype=columns.dtype)
    full[:, codes] = columns
    return full


def shares(gains: FloatArray) -> FloatArray:
    """Scale importances to a sum of 1; all zeros stay zeros."""
    import numpy as np

    infinite = ~np.isfinite(gains)
    if infinite.any():
        # The library's numbers overflow for targets around 1e30: the features that overflow share equally.
        gains = infinite.astype(float)
    total = gains.sum()
    return gains / total if total > 0 else np.zeros_like(gains)
