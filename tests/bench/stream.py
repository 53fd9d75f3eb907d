"""A synthetic weekly stream, with and without drift, and what the monitor's comparison says of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from tests.bench.report import Row

WEEKS = 12
ROWS = 500
BASELINE = 4
"""Weeks that the baseline of a false-alarm study is made of."""

THRESHOLD = 0.2
NUMBERS = 8
KINDS = ("card", "cash", "invoice", "voucher")


def week(seed: int, number: int, drifts_at: int | None) -> pl.DataFrame:
    """Return a week's rows: numbers of several shapes, a category, and a target that follows from them.

    Args:
        seed: of the stream.
        number: of the week, from 1.
        drifts_at: the first week in which ``n0`` lies one and a half standard deviations higher, and counts
            the other way round for the target; None: no week.
    """
    draw = np.random.default_rng([seed, number])
    drifted = drifts_at is not None and number >= drifts_at
    numbers = draw.normal(size=(ROWS, NUMBERS))
    numbers[:, 1] = np.exp(numbers[:, 1])
    numbers[:, 2] = draw.poisson(3, ROWS)
    kind = draw.choice(KINDS, ROWS, p=[0.5, 0.3, 0.15, 0.05])
    gap = draw.random(ROWS) < 0.05
    pull = (-1 if drifted else 1) * 1.5 * numbers[:, 0] + numbers[:, 3] + (kind == "cash")
    numbers[:, 0] += 1.5 if drifted else 0.0
    target = np.where(pull + draw.normal(scale=0.5, size=ROWS) > 0.3, "late", "on time")
    columns = {f"n{column}": numbers[:, column] for column in range(NUMBERS)}
    frame = pl.DataFrame(columns | {"kind": kind, "y": target})
    return frame.with_columns(n4=pl.when(pl.Series(gap)).then(None).otherwise(pl.col("n4")))


def alarms(seed: int, drifts_at: int | None) -> Row:
    """Train on a stream's first weeks, and compare each later week with the baseline that this leaves.

    It is trained by ``dmls_core.training`` and compared by what the monitor calls; a week's alarm is a
    verdict of ``drifted``.
    """
    from dmls_core.models import load_spec
    from dmls_core.monitoring.new_data import check_files
    from dmls_core.training import TrainRequest, train

    spec = load_spec(
        b'model = "random-forest-classifier"\nn_trials = 1\n[columns]\ntarget = "y"\n'
        b"[n_estimators]\nvalue = 20\n[max_depth]\nvalue = 6\n"
    )
    with TemporaryDirectory(prefix="dmls-stream-") as scratch:
        folder = Path(scratch)
        weeks = [week(seed, number, drifts_at) for number in range(1, WEEKS + 1)]
        pl.concat(weeks[:BASELINE]).write_csv(folder / "baseline.csv")
        (folder / "spec.json").write_bytes(spec.canonical())
        train(
            TrainRequest(
                spec=str(folder / "spec.json"),
                data=(str(folder / "baseline.csv"),),
                out=str(folder / "run"),
                team="bench",
                name=f"stream{seed}",
                run_key=f"{seed:016d}",
            ),
            progress=lambda _: None,
        )
        found, largest = [], 0.0
        for number, frame in enumerate(weeks[BASELINE:], BASELINE + 1):
            frame.write_csv(folder / "week.csv")
            drift = check_files(folder / "run" / "model", [folder / "week.csv"], THRESHOLD)
            largest = max(largest, *(column.psi or 0.0 for column in drift.compared))
            if drift.drifted:
                found.append(number)
    return {
        "seed": seed,
        "weeks compared": WEEKS - BASELINE,
        "columns": len(drift.compared),
        "largest index": largest,
        "alarms in weeks": ", ".join(map(str, found)),
    }


def false_alarms(seeds: Iterable[int]) -> list[Row]:
    """Look at streams without drift; at most one in twenty may raise an alarm."""
    rows = [alarms(seed, None) for seed in seeds]
    wrong = sum(bool(row["alarms in weeks"]) for row in rows)
    print(f"{wrong} of {len(rows)} streams without drift raised an alarm")
    assert wrong <= len(rows) / 20, rows
    return rows
