"""Fetch the champion, and predict the challenger's held-out rows with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data.encoder import CategoryFeature, DateFeature, Encoder
from dmls_core.data.formats.data_files import content_hash
from dmls_core.data.split.description import split_settings
from dmls_core.data.table.table import Table, encode_table
from dmls_core.data.table.time_filter import TimeFilter, rows_within
from dmls_core.errors import DmlsError, ServingError
from dmls_core.evaluate.comparison import Freshness
from dmls_core.hardware import available_cpus
from dmls_core.serving.formats.base import ServingFormat, format_of
from dmls_core.serving.repository.files import sha256
from dmls_core.spec.definitions import NONE, Scalar
from dmls_core.store import layout, open_store
from dmls_core.training.request import TrainingJob

ENCODER, MODEL_JSON = "encoder.json", "model.json"

_FEWEST_FRESH = 30
"""Minimum number of held-out rows new to the champion for a comparison on these rows only."""

_BLOCK = 65_536
"""Rows encoded value by value at a time."""


@dataclass(frozen=True, slots=True)
class ChampionPredictions:
    """The champion's predictions of the held-out rows, or the ``problem`` that prevented them.

    Attributes:
        version: the champion's, in MLflow's registry.
        values: float32 (n_rows, n_classes) probabilities or (n_rows,) values.
        rows: predicted rows as positions in the holdout, ascending.
        fresh: how many of them are new to the champion.
    """

    version: int
    run_key: str = ""
    problem: str = ""
    labels: tuple[str, ...] | None = None
    values: NDArray[np.float32] | None = None
    rows: NDArray[np.intp] | None = None
    fresh: Freshness = "unknown"


@dataclass(frozen=True, slots=True)
class FetchedChampion:
    """The champion's files on this machine, or the ``problem`` that prevented it.

    ``job`` is the challenger's run; ``result`` is the ``result.json`` of the champion's run. ``folder`` has
    the files of its model.
    """

    job: TrainingJob
    version: int
    result: dict[str, Any]
    encoder: Encoder | None = None
    format: ServingFormat | None = None
    folder: Path | None = None
    problem: str = ""

    def ask(
        self, table: Table, test: NDArray[np.integer], held_out: Table | None = None
    ) -> ChampionPredictions:
        """Predict the held-out rows ``test`` of the challenger's table, which is not encoded yet.

        ``held_out`` is a table of these rows alone, if ``table`` has no columns.

        Rows that the champion cannot read are no error of this run: the models are not comparable, and the
        result gives the reason.
        """
        key = str(self.result.get("run_key", ""))
        if self.encoder is None or self.format is None or self.folder is None:
            return ChampionPredictions(self.version, key, self.problem)
        try:
            self._check_target(table)
            rows, fresh = self._rows(table, test)
            asked = (table, test[rows]) if held_out is None else (held_out, rows)
            matrix = _encode(self.encoder, *asked)
            values = self.format.load(self.folder, threads=available_cpus())(matrix)
        except (ValueError, DmlsError) as error:
            return ChampionPredictions(self.version, key, f"the champion cannot read these rows: {error}")
        return ChampionPredictions(self.version, key, "", self.encoder.target.labels, values, rows, fresh)

    def _check_target(self, table: Table) -> None:
        target = self.encoder.target if self.encoder else None
        if target is None or target.name != table.target_name:
            raise ValueError(f"it predicts {target.name if target else '?'!r}, not {table.target_name!r}")
        if (target.labels is None) != (table.labels is None):
            raise ValueError("one of the two predicts classes, the other one numbers")

    def _rows(self, table: Table, test: NDArray[np.integer]) -> tuple[NDArray[np.intp], Freshness]:
        """Choose the held-out rows to compare on: those new to the champion, if there are enough."""
        everything = np.arange(len(test))
        run_data = _RunData.of(self.result)
        unseen = _unseen_rows(self.job, run_data, table)
        if unseen is None:
            return everything, "unknown"
        fresh = np.flatnonzero(unseen[test])
        if len(fresh) == len(test):
            return everything, "all"
        if len(fresh) >= _FEWEST_FRESH:
            return fresh, "some"
        return everything, "none"


def fetch_champion(job: TrainingJob) -> FetchedChampion:
    """Download the champion's files, checked against the ``result.json`` of its run."""
    request, folder = job.request, job.out.parent / "champion"
    result: dict[str, Any] = {}
    try:
        store = open_store(request.champion)
        result = json.loads(store.get(layout.RESULT))
        folder.mkdir(exist_ok=True)
        sums = {artifact["name"]: artifact["sha256"] for artifact in result["artifacts"]}

        def fetch(name: str) -> Path:
            key, path = f"{layout.MODEL}{name}", folder / name
            store.download(key, path)
            if sha256(path) != sums[key]:
                raise ServingError(f"{key} is not the file that its trainer wrote")
            return path

        encoder = Encoder.from_json(json.loads(fetch(ENCODER).read_bytes()))
        serving = format_of(json.loads(fetch(MODEL_JSON).read_bytes()), "the champion")
        for file in serving.files:
            fetch(file)
    except (DmlsError, ValueError, KeyError, TypeError) as error:
        problem = f"the champion's files cannot be read: {error}"
        return FetchedChampion(job, request.champion_version, result, problem=problem)
    return FetchedChampion(job, request.champion_version, result, encoder, serving, folder)


def champion_params(job: TrainingJob, champion: FetchedChampion | None) -> tuple[str, dict[str, Scalar]]:
    """Return the champion's model and hyperparameters; an empty name if there is none, or it cannot be read.

    Helpers of a search, which compare with no ``champion``, read them as well: all workers suggest the same.
    """
    try:
        if champion:
            result = champion.result
        elif job.request.champion:
            result = json.loads(open_store(job.request.champion).get(layout.RESULT))
        else:
            return "", {}
        params = {name: NONE if value is None else value for name, value in result["best_params"].items()}
        return str(result["model"]), params
    except (DmlsError, ValueError, KeyError, TypeError, AttributeError):
        return "", {}


def _encode(encoder: Encoder, table: Table, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    """Encode rows of a table with another run's encoder.

    Raise ``ValueError`` if the table lacks a column of the encoder, or has texts instead of numbers.
    """
    positions: dict[str, list[int]] = {}
    for position, column in enumerate(table.columns):
        positions.setdefault(column.name, []).append(position)
    if missing := [name for name in encoder.feature_names if name not in positions]:
        raise ValueError(f"columns are missing: {', '.join(map(repr, missing[:10]))}")
    order = np.array(
        [position for name in encoder.feature_names for position in positions[name]], dtype=np.intp
    )
    columns = tuple(table.columns[position] for position in order)
    narrow = Table(columns, table.matrix[np.ix_(rows, order)], table.target_name, table.target[rows])
    everything = np.arange(len(rows))
    features = encoder.column_features
    alike = [feature.name for feature in features] == [column.name for column in columns] and all(
        isinstance(feature, CategoryFeature) == (column.categories is not None)
        and isinstance(feature, DateFeature) == (column.date is not None)
        for feature, column in zip(features, columns, strict=True)
    )
    if alike:
        return encode_table(encoder, narrow, everything)
    # A column has changed its kind: encode value by value.
    blocks = [everything[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
    return np.concatenate([_by_value(encoder, narrow, block) for block in blocks])


def _by_value(encoder: Encoder, table: Table, rows: NDArray[np.integer]) -> NDArray[np.float32]:
    columns: dict[str, Any] = {**table.raw(rows)}
    return encoder.transform(columns)


@dataclass(frozen=True, slots=True)
class _RunData:
    """The data that a finished run has read.

    ``hash`` is that of the content within the interval, ``files`` the SHA-256 of each whole file. ``until``
    is the end of the interval; ``None`` for data without one. ``split`` holds the settings of the holdout.
    """

    hash: str
    files: frozenset[str]
    until: datetime | None
    split: Mapping[str, Any]

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> _RunData:
        """Read the data section of ``result.json``."""
        data = result["data"]
        until = data.get("until")
        return cls(
            hash=data["hash"],
            files=frozenset(item["sha256"] for item in data["objects"]),
            until=datetime.fromisoformat(until) if until else None,
            split=data.get("split") or {},
        )


def _unseen_rows(job: TrainingJob, run_data: _RunData, table: Table) -> NDArray[np.bool_] | None:
    """Return for each row of ``table`` whether the other run cannot have been trained on it: (n_rows,).

    * The same content, split in the same way: the same rows were held out, and none of them was trained on.
      (Returns true for all rows: callers use held-out rows only.)
    * Both split by the same time: the rows from the beginning of the other run's holdout on.
    * Both of an interval, with ``[columns] time``: the rows from the end of the other run's interval on.
    * Both of an interval, in files: the rows of files that the other run did not read.

    The result is ``None`` if this cannot be decided: data that was uploaded again may hold earlier rows.
    """
    request, spec = job.request, job.spec
    if run_data.hash == content_hash([file.path for file in job.files]):
        same = _held_out_by(run_data.split) == _held_out_by(split_settings(spec))
        return np.full(table.n_rows, fill_value=same)
    if spec.evaluation.split == "time" and run_data.split.get("time") == spec.columns.time:
        since = datetime.fromisoformat(run_data.split["since"])
        cut = TimeFilter(
            str(spec.columns.time),
            since,
            datetime.max.replace(tzinfo=UTC),
            spec.timezone,
            spec.columns.date_order,
        )
        parts = [rows_within(file.path, cut, data_format=spec.data.format) for file in job.files]
        rows = np.concatenate(parts)
        return rows if table.row_mask is None else rows[table.row_mask]
    if request.until is None or run_data.until is None:
        return None
    if spec.columns.time:
        cut = TimeFilter(
            spec.columns.time, run_data.until, request.until, spec.timezone, spec.columns.date_order
        )
        parts = [rows_within(file.path, cut, data_format=spec.data.format) for file in job.files]
    else:
        new = [file.sha256 not in run_data.files for file in job.files]
        parts = [np.full(height, flag) for height, flag in zip(table.heights, new, strict=True)]
    rows = np.concatenate(parts)
    return rows if table.row_mask is None else rows[table.row_mask]


def _held_out_by(split: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide which rows are held out."""
    return {key: value for key, value in split.items() if key not in ("since", "weight")}
