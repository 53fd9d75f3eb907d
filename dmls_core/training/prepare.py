"""From data files to the matrices that a search and a final score need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data import Encoder, encode_in_place, fit_encoder, read_table, split_holdout
from dmls_core.models import engine_class
from dmls_core.monitoring import Profile, profile_table
from dmls_core.spec import ModelDefinition, Spec
from dmls_core.training.target_scale import scale_warning

if TYPE_CHECKING:
    from dmls_core.training.rival import Answers, Rival

GOLDEN_ROWS = 100
"""Held-out rows that are kept with the model, to prove deployments by."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Encoded data.

    Attributes:
        encoder: fitted on the training rows.
        train: (n_train, n_features) float32.
        train_target: (n_train,): int32 class codes, or float64 values.
        test: (n_test, n_features) float32: the held-out rows.
        test_target: (n_test,).
        golden: raw values by column of the first held-out rows, ``GOLDEN_ROWS`` at most.
        labels: the classes; ``None`` for a regression.
        warnings: what the user should know about the data.
        profile: of all rows, to tell drift by.
        rival: the champion's answers to the held-out rows; ``None`` where there is none.
    """

    encoder: Encoder
    train: NDArray[np.float32]
    train_target: NDArray[Any]
    test: NDArray[np.float32]
    test_target: NDArray[Any]
    golden: dict[str, list[Any]]
    labels: tuple[str, ...] | None
    warnings: tuple[str, ...]
    profile: Profile
    rival: Answers | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.labels or ())


def prepare(
    spec: Spec,
    model: ModelDefinition,
    paths: Sequence[Path],
    engine: str = "cpu",
    rival: Rival | None = None,
) -> Prepared:
    """Read, split and encode the data; the engine decides who reads, not what comes of it.

    Args:
        spec: the spec.
        model: what is to be fitted.
        paths: the data files.
        engine: what fits it.
        rival: the champion, to be asked about the held-out rows while they are here as the files have them.

    Raises:
        DataError: it does not fit the spec, or there is too little of it.
    """
    reader = engine_class(engine, model.name).reader()
    table = read_table(paths, spec.columns, spec.task, data_format=spec.data.format, reader=reader)
    train, test = split_holdout(
        table.target,
        holdout=spec.evaluation.holdout,
        split=spec.evaluation.split,
        seed=spec.search.seed,
        task=spec.task,
        labels=table.labels,
    )
    train.sort()
    encoder = fit_encoder(table, train, fill_missing=not model.missing_values)
    target = table.target.astype(np.int32 if table.labels else np.float64, copy=False)
    unlucky = "" if table.labels else scale_warning(target[train], [one.name for one in spec.models])
    golden, profile = table.raw(test[:GOLDEN_ROWS]), profile_table(table)
    answers = rival.ask(table, test) if rival else None
    # Last, since it uses the table's memory: two matrices of this size are more than one.
    fitted, held_out = encode_in_place(encoder, table, train, test)
    return Prepared(
        encoder=encoder,
        train=fitted,
        train_target=target[train],
        test=held_out,
        test_target=target[test],
        golden=golden,
        labels=table.labels,
        warnings=(*table.warnings, unlucky) if unlucky else table.warnings,
        profile=profile,
        rival=answers,
    )
