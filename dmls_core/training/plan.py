"""Estimate what a run needs: engine, memory, time and size of the model.

The data is read as in training, and a few small fits on samples of it are timed. The cost of a search is
estimated as a number of fits of its largest model.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmls_core.data.formats.conversion import convert
from dmls_core.data.table.memory import TableSize, measure_table
from dmls_core.hardware import available_cpus, parse_memory
from dmls_core.models import CATALOGUE, load_spec
from dmls_core.models.catalogue import load_engine
from dmls_core.models.engines import BoostingEngine, Engine, ForestEngine
from dmls_core.search.boosting.shrinkage import resolve
from dmls_core.search.candidate import expected_trials
from dmls_core.search.samplers.strategy import load_strategy
from dmls_core.search.task import Space, enough_folds
from dmls_core.serving.formats.base import export_format
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.spec.definitions import Choice, Hyperparameter, Scalar, worth_trying
from dmls_core.spec.spec import ModelSearch
from dmls_core.training.memory import (
    RunMemory,
    describe_stored,
    estimate_memory,
    estimate_node,
    fits,
    run_memory,
)
from dmls_core.training.prepare import prepare
from dmls_core.training.prepared import Prepared
from dmls_core.training.request import choose_engine, missing_for_gpu

_SIZE = "n_estimators"
"""The number of trees; a model without it is one fit."""

_ROWS = (1_000, 4_000)
"""Rows of the two samples."""

_TREES = 10
_GROWTH = (0.8, 1.3)
"""Bounds of the exponent by which the time of a fit grows with its rows: small samples measure it poorly."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds to fit the largest model of a space on all training rows, and bytes of its files."""

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
    sizes = [size for size in _ROWS if size < rows] or [rows]
    samples = [_sample(engine, model, space, data, size, seed) for size in sizes]
    small, large = samples[0], samples[-1]
    growth = 1.0
    if len(samples) > 1:
        growth = math.log(large.seconds / small.seconds) / math.log(large.rows / small.rows)
        growth = min(max(growth, _GROWTH[0]), _GROWTH[1])
    trees = max(sizes_of(model, space))
    seconds = trees * large.seconds * (rows / large.rows) ** growth
    return Cost(seconds, int(trees * large.bytes * rows / large.rows))


def sizes_of(model: ModelDefinition, space: Space) -> tuple[int, ...]:
    """Return the numbers of trees of a space: both ends of a range, or all values of a choice."""
    if _SIZE not in model.hyperparameters:
        return (1,)
    searched = space.searched.get(_SIZE)
    if searched is None:
        return (int(space.fixed.get(_SIZE, model.hyperparameters[_SIZE].default)),)
    values = searched.values if isinstance(searched, Choice) else (searched.min, searched.max)
    return tuple(int(value) for value in values)


def _sample(
    engine: Engine, model: ModelDefinition, space: Space, data: Prepared, rows: int, seed: int
) -> _Sample:
    """Time fits of one tree and of more trees on the first rows: the difference has no fixed costs.

    An earlier fit of one tree imports the library, which can take longer than all trees.
    """
    params = {
        **space.fixed,
        **{name: _middle(hyperparameter) for name, hyperparameter in space.searched.items()},
    }
    features, target = engine.place(data.train[:rows]), engine.place(data.train_target[:rows])
    times = []
    for trees in (1, 1, 1 + _TREES):
        begun = time.monotonic()
        fitted = engine.fit(
            model,
            {**params, _SIZE: trees},
            features,
            target,
            n_classes=data.n_classes,
            seed=seed,
            threads=available_cpus(),
        )
        times.append(time.monotonic() - begun)
    size = export_format(engine.export_format).model_bytes(fitted)
    if _SIZE not in model.hyperparameters:
        return _Sample(rows, times[-1], size)
    return _Sample(rows, max(times[-1] - times[-2], 1e-5) / _TREES, size / (1 + _TREES))


def _middle(hyperparameter: Hyperparameter) -> Scalar:
    if isinstance(hyperparameter, Choice):
        value: Scalar = hyperparameter.values[len(hyperparameter.values) // 2]
        return value
    low, high = float(hyperparameter.min), float(hyperparameter.max)
    middle = math.sqrt(low * high) if hyperparameter.log else (low + high) / 2
    return round(middle) if hyperparameter.integer else middle


_NESTED_FITS = 2.5
"""Cost of a nested search of a forest, in fits of its largest forest (``tests/bench/search.py``)."""

_BOOSTED_SHARE = 0.2
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
        trials: number of trials; fewer than in the spec if no others differ.
        matrix_bytes: the features as float32.
        memory_bytes: maximum memory of the trainer and of the validation beside it, without cached files.
        memory: the same of each phase.
        node_bytes: maximum memory of each node beside the trainer; 0 if the trainer is the only one.
        load_seconds: to read the data (measured).
        seconds: for the whole run, with the mean model if several compete.
        warnings: reasons against running it with this spec.
    """

    rows: int
    features: int
    trials: int
    matrix_bytes: int
    memory_bytes: int
    memory: RunMemory
    node_bytes: int
    load_seconds: float
    seconds: float
    models: tuple[ModelPlan, ...]
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {"schema": 1, **asdict(self)}


def plan_run(spec: Spec, paths: Sequence[Path], *, factor: float = 1.0, limit: int | None = None) -> RunPlan:
    """Estimate what ``dmls train`` needs for this spec and data on this machine.

    Args:
        spec: the run's spec.
        paths: the data files, or the beginning of one.
        factor: size of the data, in sizes of these files. Times and models grow in proportion.
        limit: memory of the trainer in bytes; what it is on this machine if None.

    Raises:
        UserError: the spec or the data is wrong.
        EngineUnavailableError: the spec asks for an engine that this machine lacks.
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        converted = [convert(path, spec.data, Path(folder) / str(at)) for at, path in enumerate(paths)]
        sample_size = measure_table(converted, spec)
        stored = None if fits(spec, sample_size, run_memory(spec)) else Path(folder) / "stored"
        data = prepare(spec, CATALOGUE[spec.models[0].name], converted, folder=stored)
    load = factor * (time.monotonic() - begun)
    names = [search.name for search in spec.models]
    tried = worth_trying(names, len(data.labels or ()), data.train.shape[1])
    loaded = [_load_model(spec, search, data) for search in spec.models if search.name in tried]
    models = tuple(_plan_model(spec, model, data, factor) for model in loaded)
    engines = [(model.engine, model.space) for model in loaded]
    rows, features = len(data.train) + len(data.test) + data.left_out, data.train.shape[1]
    size = TableSize(round(rows * factor), features, round(sample_size.text_bytes * factor))
    limit = run_memory(spec) if limit is None else limit
    nodes = spec.resources.nodes > 1
    from_disk = nodes or not fits(spec, size, limit)
    search = sum(model.search_seconds for model in models) / len(models)
    spent = search if spec.search.timeout is None else min(search, spec.search.timeout)
    model_bytes = max(model.model_bytes for model in models)
    phases = estimate_memory(
        spec,
        size,
        disk_limit=limit if from_disk else None,
        model_bytes=model_bytes,
    )
    node = estimate_node(spec, size, model_bytes) if nodes else 0
    warnings = [describe_stored(limit)] if from_disk and not nodes else []
    return RunPlan(
        rows=size.rows,
        features=features,
        trials=expected_trials(engines, load_strategy(spec.search.strategy), spec.n_trials),
        matrix_bytes=size.matrix_bytes,
        memory_bytes=phases.peak,
        memory=phases,
        node_bytes=node,
        load_seconds=load,
        seconds=load + spent + max(model.fit_seconds for model in models),
        models=models,
        warnings=(*warnings, *data.warnings, *_warnings(spec, max(phases.peak, node), search)),
    )


class _LoadedModel(NamedTuple):
    """A model with its engine, and its space on this data; trials learn ``speedup`` times as fast."""

    definition: ModelDefinition
    device: str
    engine: Engine
    space: Space
    speedup: int


def _load_model(spec: Spec, search: ModelSearch, data: Prepared) -> _LoadedModel:
    model = CATALOGUE[search.name]
    weighted = spec.columns.weight is not None
    requested = "cpu" if spec.resources.nodes > 1 else spec.resources.engine
    device, hyperparameters = choose_engine(requested, model, search.hyperparameters, weighted=weighted)
    space, speedup = resolve(Space.of(hyperparameters), len(data.train), len(data.labels or ()), model.family)
    return _LoadedModel(model, device, load_engine(device, model.name), space, speedup)


def _plan_model(spec: Spec, loaded: _LoadedModel, data: Prepared, factor: float) -> ModelPlan:
    model, device, fitter, space, speedup = loaded
    if fitter.native_categories:
        fitter.categories = data.categories
    cost = estimate_largest_fit(fitter, model, space, data, spec.search.seed)
    folds = spec.search.folds
    if data.train_roles.independent:
        counts = np.bincount(data.train_target).tolist() if data.labels else [len(data.train)]
        folds = enough_folds([round(rows * factor) for rows in counts if rows > 1], folds)
    cost_of_search = _fits(fitter, spec, folds, sizes_of(model, space)) / speedup
    return ModelPlan(
        name=model.name,
        engine=device,
        why=missing_for_gpu(model) if device == "cpu" and "gpu" in model.engines else "",
        searched=tuple(space.searched),
        fit_seconds=cost.seconds * factor,
        search_seconds=cost.seconds * factor * (cost_of_search if space.searched else 1),
        model_bytes=round(min(cost.model_bytes * factor, _full_trees(sizes_of(model, space), space))),
    )


_NODE_BYTES = 80
"""Maximum size of a node of a checkpoint, with few classes."""


def _full_trees(sizes: tuple[int, ...], space: Space) -> float:
    """Return the size of a model whose trees have all nodes of their largest depth, in bytes."""
    searched = space.searched.get("max_depth")
    depth = space.fixed.get("max_depth") if searched is None else getattr(searched, "max", None)
    return max(sizes) * 2.0 ** (depth + 1) * _NODE_BYTES if isinstance(depth, int | float) else math.inf


def _fits(engine: Engine, spec: Spec, folds: int, sizes: tuple[int, ...]) -> float:
    """Return the cost of a search on that many folds, in fits of the largest model on all training rows."""
    if isinstance(engine, ForestEngine):
        return _NESTED_FITS
    mean = (min(sizes) + max(sizes)) / 2 / max(sizes)
    share = _BOOSTED_SHARE if isinstance(engine, BoostingEngine) else 1.0
    return share * spec.n_trials * folds * (1 - 1 / spec.search.folds) * mean


def _warnings(spec: Spec, memory: int, search: float) -> list[str]:
    warnings = []
    if spec.resources.memory and memory > parse_memory(spec.resources.memory):
        warnings.append(f"[resources] memory {spec.resources.memory} is less than the run needs")
    if spec.search.timeout is not None and search > spec.search.timeout:
        warnings.append(
            f"[search] timeout {spec.search.timeout:g} s ends the search early: "
            f"all trials take about {search:.0f} s"
        )
    return warnings


def plan_file(toml: str, path: str, factor: float, memory: str) -> dict[str, Any]:
    """Return the plan of a run for the page as JSON; called in the sandbox.

    The data is ``factor`` times this file, and ``memory`` the platform's limit, such as ``4g``.
    """
    spec = load_spec(toml.encode())
    limit = parse_memory(spec.resources.memory or memory)
    plan = plan_run(spec, [Path(path)], factor=factor, limit=limit)
    return {
        "rows": plan.rows,
        "seconds": plan.seconds,
        "memory_bytes": plan.memory_bytes,
        "sampled": factor > 1,
        "warnings": plan.warnings,
        "gpu": spec.resources.engine == "gpu",
    }
