"""Read, split and encode the data for a search and a final score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dmls_core.data import Encoder, encode_in_place, fit_encoder, read_table, split_holdout
from dmls_core.models import CATALOGUE, engine_class
from dmls_core.monitoring import Profile, profile_table
from dmls_core.spec import ModelDefinition, Spec

if TYPE_CHECKING:
    from dmls_core.training.champion import Champion, ChampionPredictions

GOLDEN_ROWS = 100
"""Held-out rows that are kept with the model to verify deployments."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Encoded data.

    Attributes:
        train: (n_train, n_features) float32.
        train_target: (n_train,): int32 class codes, or float64 values.
        test: (n_test, n_features) float32: the held-out rows.
        test_target: (n_test,).
        golden: raw values by column of the first held-out rows, ``GOLDEN_ROWS`` at most.
        labels: the classes; ``None`` for a regression.
        profile: of all rows, for drift detection.
        champion: the champion's predictions of the held-out rows, if there is one.
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
    champion: ChampionPredictions | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return len(self.labels or ())


def prepare(
    spec: Spec,
    model: ModelDefinition,
    paths: Sequence[Path],
    engine: str = "cpu",
    champion: Champion | None = None,
) -> Prepared:
    """Read, split and encode the data; the result is the same with any engine's reader.

    ``champion`` predicts the held-out rows before they are encoded. Raise ``DataError`` if the data does not
    fit the spec, or there is too little of it.
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
    answers = champion.ask(table, test) if champion else None
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
        champion=answers,
    )


DIGITS = 1e-6
"""Smallest ratio of a target's standard deviation to its largest value that 32-bit predictions resolve."""


def scale_warning(target: NDArray[Any], models: Iterable[str]) -> str:
    """Return a warning about the scale of a regression's target for ``models``; empty if none."""
    spread, largest = float(target.std()), float(np.abs(target).max())
    limits = [
        engine_class(device, name).target_scale for name in models for device in CATALOGUE[name].engines
    ]
    if not max(low for low, _ in limits) <= spread <= min(high for _, high in limits):
        return (
            f"the target's standard deviation is {spread:.2g}, too {'small' if spread < 1 else 'large'} a "
            "number for the model's arithmetic: it may learn little or nothing. Give the target in another "
            "unit, so that it is around 1."
        )
    if spread < DIGITS * largest:
        return (
            f"the target's standard deviation is {spread:.2g}, around values of {largest:.2g}: models are "
            "served in 32-bit numbers, which cannot represent these differences. Subtract a constant from "
            "the target."
        )
    return ""
