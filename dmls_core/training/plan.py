"""Estimate what a run needs: engine, memory, time and size of the model.

The data is read as in training, and a few small fits on samples of it are timed. The cost of a search is
estimated as a number of fits of its largest model.
"""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dmls_core.data.conversion import convert
from dmls_core.data.memory import STORED_ROW
from dmls_core.hardware import available_cpus, parse_memory
from dmls_core.models import CATALOGUE
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import BoostingEngine, Engine, ForestEngine
from dmls_core.models.engines.base import TREELITE
from dmls_core.search.task import Space
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.spec.definitions import Choice, Hyperparameter, Scalar
from dmls_core.spec.spec import ModelSearch
from dmls_core.training.memory import MATRICES, describe_stored, exceeds_memory
from dmls_core.training.prepare import Prepared, prepare
from dmls_core.training.request import choose_engine, missing_for_gpu

SIZE = "n_estimators"
"""The number of trees; a model without it is one fit."""

ROWS = (1_000, 4_000)
"""Rows of the two samples."""

TREES = 10
GROWTH = (0.8, 1.3)
"""Bounds of the exponent by which the time of a fit grows with its rows: small samples measure it poorly."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds to fit the largest model of a space on all training rows, and bytes of its checkpoint."""

    seconds: float
    model_bytes: int


@dataclass(frozen=True, slots=True)
class _Sample:
    rows: int
    seconds: float
    """Per tree."""
    bytes: float
    """Per tree."""


def estimate_largest_fit(
    engine: Engine, model: ModelDefinition, space: Space, data: Prepared, seed: int
) -> Cost:
    """Estimate the fit of the space's largest model, with all other hyperparameters in the middle."""
    rows = len(data.train)
    sizes = [size for size in ROWS if size < rows] or [rows]
    samples = [_sample(engine, model, space, data, size, seed) for size in sizes]
    small, large = samples[0], samples[-1]
    growth = 1.0
    if len(samples) > 1:
        growth = math.log(large.seconds / small.seconds) / math.log(large.rows / small.rows)
        growth = min(max(growth, GROWTH[0]), GROWTH[1])
    trees = max(sizes_of(model, space))
    seconds = trees * large.seconds * (rows / large.rows) ** growth
    return Cost(seconds, int(trees * large.bytes * rows / large.rows))


def sizes_of(model: ModelDefinition, space: Space) -> tuple[int, ...]:
    """Return the numbers of trees of a space: both ends of a range, or all values of a choice."""
    if SIZE not in model.hyperparameters:
        return (1,)
    wanted = space.searched.get(SIZE)
    if wanted is None:
        return (int(space.fixed.get(SIZE, model.hyperparameters[SIZE].default)),)
    values = wanted.values if isinstance(wanted, Choice) else (wanted.min, wanted.max)
    return tuple(int(value) for value in values)


def _sample(
    engine: Engine, model: ModelDefinition, space: Space, data: Prepared, rows: int, seed: int
) -> _Sample:
    """Time fits of one tree and of more trees on the first rows: the difference has no fixed costs."""
    params = {**space.fixed, **{name: _middle(wanted) for name, wanted in space.searched.items()}}
    features, target = engine.place(data.train[:rows]), engine.place(data.train_target[:rows])
    times = []
    for trees in (1, 1 + TREES):
        begun = time.monotonic()
        fitted = engine.fit(
            model,
            {**params, SIZE: trees},
            features,
            target,
            n_classes=data.n_classes,
            seed=seed,
            threads=available_cpus(),
        )
        times.append(time.monotonic() - begun)
    size = len(fitted.to_treelite().serialize_bytes()) if engine.export_format == TREELITE else 0
    if SIZE not in model.hyperparameters:
        return _Sample(rows, times[1], size)
    return _Sample(rows, max(times[1] - times[0], 1e-5) / TREES, size / (1 + TREES))


def _middle(wanted: Hyperparameter) -> Scalar:
    if isinstance(wanted, Choice):
        value: Scalar = wanted.values[len(wanted.values) // 2]
        return value
    low, high = float(wanted.min), float(wanted.max)
    middle = math.sqrt(low * high) if wanted.log else (low + high) / 2
    return round(middle) if wanted.integer else middle


BESIDE = 170 << 20
"""Memory of the validation's process, and of the libraries that only a trainer loads
(``tests/bench/plan_memory.py``)."""

NESTED_FITS = 2.5
"""Cost of a nested search of a forest, in fits of its largest forest (``tests/bench/search.py``)."""

BOOSTED_SHARE = 0.2
"""Cost of a search of boosted trees, as a share of one by cross-validation
(``tests/bench/search_boosted.py``)."""


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The needs of one model of the spec, if all trials go to it.

    Attributes:
        why: why it is not the gpu engine; empty if it is, or if the model has none.
        searched: the searched hyperparameters.
        fit_seconds: for the largest model of the space on all training rows.
        search_seconds: for all trials.
        model_bytes: the largest model of the space, as Triton loads it.
    """

    name: str
    engine: str
    why: str
    searched: tuple[str, ...]
    fit_seconds: float
    search_seconds: float
    model_bytes: int


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Estimates of what a run needs.

    Attributes:
        rows: rows with a target.
        features: columns of the matrix.
        trials: number of trials in the spec.
        matrix_bytes: the features as float32.
        memory_bytes: maximum memory of the trainer and of the validation beside it, without cached files.
        load_seconds: to read the data (measured).
        seconds: for the whole run, with the mean model if several compete.
        warnings: reasons against running it with this spec.
    """

    rows: int
    features: int
    trials: int
    matrix_bytes: int
    memory_bytes: int
    load_seconds: float
    seconds: float
    models: tuple[ModelPlan, ...]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {"schema": 1, **asdict(self)}


def plan_run(spec: Spec, paths: Sequence[Path]) -> RunPlan:
    """Estimate what ``dmls train`` needs for this spec and data on this machine.

    Raises:
        UserError: the spec or the data is wrong.
        EngineUnavailableError: the spec asks for an engine that this machine lacks.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = [convert(path, spec.data, Path(folder) / str(at)) for at, path in enumerate(paths)]
        stored = Path(folder) / "stored" if exceeds_memory(spec, found) else None
        data = prepare(spec, CATALOGUE[spec.models[0].name], found, folder=stored)
    load = time.monotonic() - begun
    models = tuple(_plan_model(spec, search, data) for search in spec.models)
    rows, features = len(data.train) + len(data.test) + data.left_out, data.train.shape[1]
    matrix = 4 * rows * features
    added = STORED_ROW * rows if stored else int((MATRICES - 1) * matrix)
    memory = _own_bytes() + BESIDE + added + 2 * max(m.model_bytes for m in models)
    warnings = [describe_stored(spec)] if stored else []
    search = sum(model.search_seconds for model in models) / len(models)
    spent = search if spec.search.timeout is None else min(search, spec.search.timeout)
    return RunPlan(
        rows=rows,
        features=features,
        trials=spec.n_trials,
        matrix_bytes=matrix,
        memory_bytes=memory,
        load_seconds=load,
        seconds=load + spent + max(model.fit_seconds for model in models),
        models=models,
        warnings=(*warnings, *data.warnings, *_warnings(spec, memory, search)),
    )


def _plan_model(spec: Spec, search: ModelSearch, data: Prepared) -> ModelPlan:
    model = CATALOGUE[search.name]
    engine, hyperparameters = choose_engine(spec.resources.engine, model, search.hyperparameters)
    space = Space.of(hyperparameters)
    fitter = load_engine(engine, model.name)
    if fitter.native_categories:
        fitter.categories = data.categories
    cost = estimate_largest_fit(fitter, model, space, data, spec.search.seed)
    fits = _fits(fitter, spec, sizes_of(model, space))
    return ModelPlan(
        name=model.name,
        engine=engine,
        why=missing_for_gpu(model) if engine == "cpu" and "gpu" in model.engines else "",
        searched=tuple(space.searched),
        fit_seconds=cost.seconds,
        search_seconds=cost.seconds * (fits if space.searched else 1),
        model_bytes=cost.model_bytes,
    )


def _fits(engine: Engine, spec: Spec, sizes: tuple[int, ...]) -> float:
    """Return the cost of a search, in fits of the largest model on all training rows."""
    if isinstance(engine, ForestEngine):
        return NESTED_FITS
    mean = (min(sizes) + max(sizes)) / 2 / max(sizes)
    share = BOOSTED_SHARE if isinstance(engine, BoostingEngine) else 1.0
    return share * spec.n_trials * (spec.search.folds - 1) * mean


def _own_bytes() -> int:
    """Return the peak memory of this process, which includes data and timed fits, without pages of files."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return peak
    with Path("/proc/self/statm").open() as figures:
        shared = int(figures.read().split()[2])
    return peak * 1024 - shared * resource.getpagesize()


def _warnings(spec: Spec, memory: int, search: float) -> list[str]:
    found = []
    if spec.resources.memory and memory > parse_memory(spec.resources.memory):
        found.append(f"[resources] memory {spec.resources.memory} is less than the run needs")
    if spec.search.timeout is not None and search > spec.search.timeout:
        found.append(
            f"[search] timeout {spec.search.timeout:g} s ends the search early: "
            f"all trials take about {search:.0f} s"
        )
    return found
