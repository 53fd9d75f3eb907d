"""Read, split and encode the data, and prepare each model of a run for its search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.formats.conversion import original_lines
from dmls_core.data.split.holdout import hold_out, order_warning
from dmls_core.data.split.row_roles import RowRoles, read_row_roles
from dmls_core.data.table.memory import TableSize, check_memory, measure_table
from dmls_core.data.table.reader import read_table
from dmls_core.data.table.stored import store_table
from dmls_core.data.table.table import encode_in_place, encode_matrix, fit_encoder
from dmls_core.evaluate import scorer
from dmls_core.hardware import available_cpus, memory_limit
from dmls_core.intake.table_notes import leak_notes
from dmls_core.models import CATALOGUE, METRICS, engine_class
from dmls_core.models.catalogue import load_engine
from dmls_core.models.cluster import Cluster, ShardedMatrix
from dmls_core.models.engines import Engine
from dmls_core.monitoring.profile import profile_table
from dmls_core.search.candidate import ModelCandidate, make_candidate
from dmls_core.search.task import SearchTask, Space, make_folds
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.spec.definitions import worth_trying
from dmls_core.stored_matrix import BLOCK_BYTES, Matrix, StoredMatrix, read_rows
from dmls_core.training.champion import FetchedChampion, champion_params, fetch_champion
from dmls_core.training.matrix_cache import MatrixCache
from dmls_core.training.memory import fits, run_memory, sampled_rows
from dmls_core.training.prepared import HeldOut, Prepared, edge_rows, read_cached
from dmls_core.training.request import TrainingJob

GOLDEN_ROWS = 100
"""Held-out rows that are stored with the model to verify deployments."""

_GOLDEN_VALUES = 200_000
"""Values in these rows: of a wide table, fewer rows are stored."""


def prepare(
    spec: Spec,
    model: ModelDefinition,
    paths: Sequence[Path],
    engine: str = "cpu",
    champion: FetchedChampion | None = None,
    folder: Path | None = None,
    *,
    keep_raw: bool = False,
) -> Prepared:
    """Read, split and encode the data; the result is the same with any engine's reader.

    With ``folder``, which must not exist, the data is larger than memory, and its matrix is a file there.
    With ``keep_raw``, the result also has the held-out rows before their encoding. ``champion`` predicts them
    before that. Raise ``DataError`` if the data does not fit the spec, or there is too little of it.
    """
    fitter = engine_class(engine, model.name)
    data_format, not_missing = spec.data.format, spec.data.not_missing
    with original_lines(paths[0].name, spec.data):
        if folder:
            table = store_table(
                paths, spec.columns, spec.task, folder, data_format=data_format, not_missing=not_missing
            )
        else:
            table = read_table(
                paths,
                spec.columns,
                spec.task,
                data_format=data_format,
                not_missing=not_missing,
                reader=fitter.reader(),
            )
        held = hold_out(table, read_row_roles(paths, spec, table.row_mask), spec)
    train, test = np.sort(held.train), held.test
    encoder = fit_encoder(
        table,
        train,
        fill_missing=not model.missing_values,
        native_categories=fitter.native_categories,
        marks=spec.data.missing,
        not_missing=not_missing,
    )
    target = table.target.astype(np.int32 if table.labels else np.float64, copy=False)
    unlucky = "" if table.labels else scale_warning(target[train], [one.name for one in spec.models])
    golden_rows = max(1, min(GOLDEN_ROWS, _GOLDEN_VALUES // len(table.columns)))
    golden, profile = table.raw(test[:golden_rows]), profile_table(table)
    # Of a matrix in a file, the champion predicts as many rows as a block has: they are in random order.
    asked = test[: _block_rows(len(table.columns))] if folder else test
    answers = champion.ask(table, asked) if champion else None
    raw = HeldOut.of(table, test) if keep_raw else None
    warnings = [*leak_notes(table), *table.warnings]
    warnings += filter(None, (unlucky, held.warning, order_warning(table, held.roles)))
    fitted: Matrix
    held_out: Matrix
    left_out = 0
    # Last, since it uses the table's memory: two matrices of this size are more than one.
    if not folder:
        fitted, held_out = encode_in_place(encoder, table, train, test)
    else:
        encode_matrix(encoder, table, table.matrix)
        fitted, held_out = StoredMatrix(table.matrix, train), StoredMatrix(table.matrix, test)
        if not _reads_disk(fitter, spec):
            most = sampled_rows(spec, TableSize(table.n_rows, len(table.columns)), run_memory(spec))
            left_out, train = max(0, len(train) - most), draw_rows(train, most, spec.search.seed)
            fitted = read_rows(table.matrix, train)
    if left_out:
        warnings.append(
            f"{model.name} is fitted on {len(train):,} of {len(train) + left_out:,} training rows, drawn at "
            "random: more do not fit in memory. Raise [resources] memory, set nodes, or choose an XGBoost "
            "model, which reads all rows from disk."
        )
    return Prepared(
        encoder=encoder,
        train=fitted,
        train_target=target[train],
        test=held_out,
        test_target=target[test],
        golden=golden,
        edges=edge_rows(encoder, golden),
        labels=table.labels,
        warnings=tuple(warnings),
        profile=profile,
        champion=answers,
        left_out=left_out,
        train_roles=held.roles.take(train),
        test_roles=held.roles.take(test),
        since=held.since,
        raw=raw,
    )


def _reads_disk(engine: Engine | type[Engine], spec: Spec) -> bool:
    """Return whether an engine fits all rows of a matrix in a file, by itself or on nodes."""
    return engine.external_memory or (spec.resources.nodes > 1 and engine.distributed)


def sample_rows(data: Prepared) -> tuple[NDArray[np.float32], NDArray[Any], RowRoles]:
    """Return training rows in memory, targets and roles: all, or a random block if they are in a file."""
    if not isinstance(data.train, StoredMatrix):
        return data.train, data.train_target, data.train_roles
    rows = draw_rows(np.arange(len(data.train), dtype=np.int32), _block_rows(data.train.shape[1]), 0)
    return data.train[rows], data.train_target[rows], data.train_roles.take(rows)


def _block_rows(columns: int) -> int:
    return max(1, BLOCK_BYTES // (4 * columns))


def draw_rows(rows: NDArray[np.integer], most: int, seed: int) -> NDArray[np.integer]:
    """Return at most ``most`` of the ascending ``rows``, drawn at random, ascending."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


_DIGITS = 1e-6
"""Smallest ratio of a target's standard deviation to its largest value that 32-bit predictions resolve."""


def scale_warning(target: NDArray[Any], models: Iterable[str]) -> str:
    """Return a warning about the scale of a regression's target for ``models``; empty if none."""
    spread, largest = float(target.std()), float(np.abs(target).max())
    limits = [
        engine_class(device, name).target_scale for name in models for device in CATALOGUE[name].engines
    ]
    if not max(low for low, _ in limits) <= spread <= min(high for _, high in limits):
        return (
            f"the target's standard deviation is {spread:.2g}, outside the range in which the model learns "
            "reliably. Give the target in another unit, so that it is around 1."
        )
    if spread < _DIGITS * largest:
        return (
            f"the target's standard deviation is {spread:.2g}, around values of {largest:.2g}: models are "
            "served in 32-bit numbers, which cannot represent these differences. Subtract a constant from "
            "the target."
        )
    return ""


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """One model of a run, ready to be searched, with its encoded data."""

    candidate: ModelCandidate
    data: Prepared

    @property
    def task(self) -> SearchTask:
        """Data and metric of its trials."""
        return self.candidate.task


def prepare_models(
    job: TrainingJob, cluster: Cluster | None = None, *, validated: Callable[[], None] = lambda: None
) -> list[PreparedModel]:
    """Read the data and prepare every model, to be fitted on ``cluster`` if there is one.

    Data larger than memory is read after ``validated``, which waits for the validation: both at a time would
    need twice the memory.

    Of ``auto-classifier``, what is not ``worth_trying`` on the data is left out.

    Raise ``DataError`` if the data does not fit the spec, or the memory limit of this process. Models that
    differ in ``missing_values`` or ``native_categories`` have separate matrices; models of one kind on one
    engine share a matrix.
    """
    spec = job.spec
    champion = fetch_champion(job) if job.request.champion and job.request.leads else None
    served, params = champion_params(job, champion)
    paths = [file.path for file in job.files]
    cache = None if cluster else MatrixCache.of(job)
    size = cache.size if cache else None
    if size is None:
        size = measure_table(paths, spec)
        if cache:
            cache.keep_size(size)
    if limit := memory_limit():
        check_memory(size, limit)
    # The rows of a cluster come from a file: only its workers hold them in memory.
    stored = job.out.parent / "stored" if cluster or not fits(spec, size, run_memory(spec)) else None
    if stored:
        validated()
    prepared: dict[tuple[bool, ...], Prepared] = {}
    tasks: dict[tuple[tuple[bool, ...], str], SearchTask] = {}
    models: list[PreparedModel] = []
    names = [requested.model.name for requested in job.models]
    for requested in job.models:
        model = requested.model
        first = models[0].data if models else None
        if first and model.name not in worth_trying(names, first.n_classes, first.train.shape[1]):
            continue
        engine = load_engine(requested.engine, model.name)
        encoding = (
            model.missing_values,
            engine.native_categories,
            _reads_disk(engine, spec) and stored is not None,
        )
        if encoding not in prepared:
            folder = stored / str(len(prepared)) if stored else None
            build = partial(prepare, spec, model, paths, requested.engine, champion, folder)
            prepared[encoding] = (
                read_cached(cache, encoding, build, champion) if cache and not stored else build()
            )
        data = prepared[encoding]
        engine.categories = data.categories
        shared = tasks.get((encoding, requested.engine))
        task = (
            replace(shared, model=model, engine=engine)
            if shared
            else make_task(spec, model, engine, data, cluster)
        )
        tasks[encoding, requested.engine] = task
        space = Space.of(requested.hyperparameters)
        candidate = make_candidate(
            spec.search.strategy, task, space, spec.n_trials, earlier=params if model.name == served else None
        )
        models.append(PreparedModel(candidate, data))
    return models


def describe_search(job: TrainingJob, models: Sequence[PreparedModel]) -> str:
    """Return a text such as ``searching max_depth of xgboost-classifier``."""
    parts = []
    for model in models:
        names = ", ".join(model.candidate.space.searched)
        search = f"searching {names} of" if names else "no search, but the spec's values, for"
        warm = ", the champion's values first" if model.candidate.warm_start else ""
        parts.append(f"{search} {model.task.model.name}{warm}")
    tried = {model.task.model.name for model in models}
    parts += [
        f"skipping {requested.model.name}: not worth its time on this data"
        for requested in job.models
        if requested.model.name not in tried
    ]
    return "; ".join(parts)


def make_task(
    spec: Spec, model: ModelDefinition, engine: Engine, data: Prepared, cluster: Cluster | None = None
) -> SearchTask:
    """Put the training rows on the engine's device, or have ``cluster`` fit them, and assign them to folds.

    Rows in a file have a single fold: each fold costs as much as a fit, and so many rows need no more.
    """
    stored = isinstance(data.train, StoredMatrix)
    features: Any
    if isinstance(data.train, StoredMatrix):
        features = ShardedMatrix.of(data.train, cluster) if cluster else data.train
    else:
        features = engine.place(data.train)
    return SearchTask(
        model=model,
        engine=engine,
        features=features,
        target=engine.place(data.train_target),
        truth=data.train_target,
        n_classes=data.n_classes,
        folds=make_folds(
            data.train_target,
            spec.search.folds,
            n_classes=data.n_classes,
            seed=spec.search.seed,
            most=1 if stored else None,
            roles=data.train_roles,
        ),
        score=scorer(spec.search.metric),
        direction=METRICS[spec.search.metric].direction,
        seed=spec.search.seed,
        threads=available_cpus(),
        weights=data.train_roles.weights,
        out_of_bag=data.train_roles.independent,
    )
