"""The memory of a run by phase, and whether its data must be read from disk; before the data is read.

``tests/bench/plan_memory.py`` compares the estimates with the peaks of control groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from dmls_core.data.table.memory import MIB, STORED_ROW, TableSize
from dmls_core.data.validation import LARGE
from dmls_core.hardware import available_cpus, available_memory, parse_memory
from dmls_core.models import CATALOGUE, engine_class
from dmls_core.models.engines import BoostingEngine, ForestEngine
from dmls_core.search.task import Space
from dmls_core.spec import Spec
from dmls_core.spec.definitions import Choice, Scalar, worth_trying
from dmls_core.spec.spec import ModelSearch

LOADED, REPORTED = 142 * MIB, 190 * MIB
"""Memory of a trainer without data, after it has read some, and after its report."""

VALIDATION, DATA_DOCS = 62 * MIB, 135 * MIB
"""Memory of the validation without data, and while it writes the Data Docs."""

_READER = 90 * MIB
"""Text that Polars holds for each thread, and once more, while it reads a CSV file in parts."""

_READ = 1.95
"""Copies of the matrix while a table is read: the columns, and the matrix made of them."""

ROW, REPORTED_ROW, COLUMN = 65, 40, 8 << 10
"""Bytes for each row (target, row numbers of split and folds, gradients), for each in the report, and for
each column."""

STORING, BLOCKS = 112 * MIB, 64 * MIB
"""Columns of a table on disk that are checked and encoded at a time, and rows that are binned at a time."""

NODE, DASK = 190 * MIB, 64 * MIB
"""Memory of a node without rows, and of Dask in its trainer (``tests/bench/nodes.py``)."""

FEWEST = 0.25
"""Share of the memory that the data may take in any case."""

MATRICES = 3.1
"""Copies of the matrix that such data counts for."""


@dataclass(frozen=True, slots=True)
class RunMemory:
    """Peak memory of a run's phases in bytes: of the trainer, and of the validation beside it."""

    load: int
    search: int
    refit: int
    report: int

    @property
    def peak(self) -> int:
        """Return the most memory of all phases."""
        return max(self.load, self.search, self.refit, self.report)


def estimate_memory(
    spec: Spec,
    size: TableSize,
    *,
    disk_limit: int | None = None,
    model_bytes: int = 0,
) -> RunMemory:
    """Estimate the memory of a run on a table of this size.

    Args:
        spec: its model that needs most counts.
        size: the table.
        disk_limit: memory of the run in bytes if the table is read from disk, else None.
        model_bytes: size of the largest model.
    """
    stored = disk_limit is not None
    # The size of the table does not say how many classes there are: with three, CatBoost is tried most often.
    tried = worth_trying([model.name for model in spec.models], 3, size.features)
    models = [_model_memory(spec, model, size, disk_limit) for model in spec.models if model.name in tried]
    columns = size.features * COLUMN
    beside_search = VALIDATION if size.rows * size.features > LARGE else DATA_DOCS
    reader = min(size.text_bytes, _READER * (available_cpus() + 1))
    rows = size.rows * (STORED_ROW if stored else ROW)
    validation = VALIDATION + 3 * columns
    if stored:  # the validation has read the table before; the rows come after the text
        reading = max(reader + BLOCKS // 2, STORING + rows)
    else:
        validation += min(size.text_bytes, 2 * _READER)
        reading = rows + int(_READ * size.matrix_bytes)
    held = BLOCKS if stored else size.matrix_bytes
    # An ensemble has up to twice the nodes, and is joined from its members' trees.
    final = 3 * model_bytes if spec.search.ensemble else model_bytes
    return RunMemory(
        load=LOADED + columns + reading + validation,
        search=max(search for search, _ in models) + 2 * model_bytes + beside_search,
        refit=max(refit for _, refit in models) + 2 * final + DATA_DOCS,
        report=REPORTED + columns + size.rows * REPORTED_ROW + held + 3 * final + DATA_DOCS,
    )


def estimate_node(spec: Spec, size: TableSize, model_bytes: int = 0) -> int:
    """Estimate the peak memory of each of the run's nodes in bytes: its rows, and the fit on them.

    ``model_bytes`` is the size of the largest model.
    """
    rows = -(-int(size.rows * (1 - spec.evaluation.holdout)) // spec.resources.nodes)
    held = rows * (4 * size.features + ROW) + size.features * COLUMN
    fits = [_node_fit(spec, model, rows, size.features, model_bytes) for model in spec.models]
    return NODE + BLOCKS // 2 + held + max(fits)


def _node_fit(spec: Spec, model: ModelSearch, rows: int, columns: int, model_bytes: int) -> int:
    engine = engine_class("cpu", model.name)
    if issubclass(engine, ForestEngine):
        # The rows become codes in place; beside them are rows to score and the node's trees.
        return BLOCKS // 2 + 2 * model_bytes // spec.resources.nodes
    # The bins of the search may still be there when those of the refit are made.
    return 2 * rows * columns + engine.fit_bytes(rows, columns, _largest(model))


def _model_memory(spec: Spec, model: ModelSearch, size: TableSize, disk_limit: int | None) -> tuple[int, int]:
    """Return the memory of search and refit, without models and validation."""
    if spec.resources.nodes > 1:
        # The fits are on the nodes; the trainer sends them blocks, and scores forests' predictions.
        sending = LOADED + size.features * COLUMN + size.rows * STORED_ROW + 2 * BLOCKS + DASK
        return sending, sending
    engine = engine_class(CATALOGUE[model.name].engines[0], model.name)
    params, columns = _largest(model), size.features
    train = int(size.rows * (1 - spec.evaluation.holdout))
    base = LOADED + columns * COLUMN + size.rows * (ROW if disk_limit is None else STORED_ROW)
    if disk_limit is not None and engine.external_memory:
        fit = engine.fit_bytes(train, columns, params, stored=True)
        return base + fit, base + fit
    held = size.rows
    if disk_limit is not None:  # other models are fitted on some of the rows
        held = train = min(train, sampled_rows(spec, size, disk_limit))
    base += 4 * held * columns
    refit = engine.fit_bytes(train, columns, params)
    if not issubclass(engine, BoostingEngine):
        return base + refit, base + refit
    fold = train * (spec.search.folds - 1) // spec.search.folds
    binned = 2 * train * columns * (spec.search.folds - 1)
    return base + 4 * fold * columns + engine.fit_bytes(fold, columns, params) + binned, base + refit


def _largest(model: ModelSearch) -> dict[str, Scalar]:
    """Return the largest value of each number among the hyperparameters, their defaults included."""
    space = Space.of(model.hyperparameters)
    largest: dict[str, Scalar] = {
        name: definition.default for name, definition in CATALOGUE[model.name].hyperparameters.items()
    }
    for name, searched in space.searched.items():
        values = searched.values if isinstance(searched, Choice) else (searched.max,)
        numbers = [value for value in values if isinstance(value, int | float)]
        largest[name] = max(numbers) if len(numbers) == len(values) else "none"
    return largest | space.fixed


def run_memory(spec: Spec) -> int:
    """Return the bytes that a run may use on this machine: the lowest limit, ``[resources]`` included."""
    available = available_memory()
    return min(available, parse_memory(spec.resources.memory)) if spec.resources.memory else available


def fits(spec: Spec, size: TableSize, limit: int) -> bool:
    """Return whether a run on a table of this size can hold its matrix in ``limit`` bytes."""
    return size.matrix_bytes * MATRICES <= FEWEST * limit or estimate_memory(spec, size).peak <= limit


def sampled_rows(spec: Spec, size: TableSize, limit: int) -> int:
    """Return the number of training rows of a table on disk that fit in ``limit`` bytes with all columns."""
    limit -= STORED_ROW * size.rows
    low, high = 1, size.rows
    while low < high:
        middle = (low + high + 1) // 2
        part = TableSize(middle, size.features)
        low, high = (middle, high) if fits(spec, part, limit) else (low, middle - 1)
    return low


def describe_stored(limit: int) -> str:
    """Return the message about data that does not fit in ``limit`` bytes and is read from disk."""
    return (
        f"the data does not fit in {limit / 2**30:.3g} GiB of memory: it is read from disk, and "
        "the search scores trials on one fold"
    )
