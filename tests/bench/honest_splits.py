"""How well the score of a holdout agrees with the score on later data: random splits and splits by time.

    .venv/bin/python tests/bench/honest_splits.py [--seeds 20] [--json FILE]

Each data set is generated: values that drift and remember their past, in order of time. A forest is fitted on
the training rows; the same forest is scored on its holdout and on as many later rows. The standard error is
that of the report's 95 % interval.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from sklearn.ensemble import RandomForestRegressor

from dmls_core.data.split.holdout import hold_out
from dmls_core.data.split.row_roles import read_row_roles
from dmls_core.data.table.reader import read_table
from dmls_core.evaluate.comparison import score_interval
from dmls_core.models import load_spec
from dmls_core.models.metrics import compute

ROWS, LATER = 1_500, 300
SPEC = (
    'model = "random-forest-regressor"\n[columns]\ntarget = "y"\ntime = "when"\n[evaluation]\nsplit = "{}"\n'
)


def generate(seed: int, drift: float) -> pl.DataFrame:
    """Return rows in order of time: an autocorrelated level that the features show late, and drift."""
    generator = np.random.default_rng(seed)
    count = ROWS + LATER
    level, hidden = np.zeros(count), np.zeros(count)
    for row in range(1, count):
        level[row] = 0.97 * level[row - 1] + generator.normal() * 0.25
        hidden[row] = 0.9 * hidden[row - 1] + generator.normal() * 0.3
    features = {f"f{at}": generator.normal(size=count) for at in range(3)}
    slope = 1 + drift * np.arange(count) / count
    y = slope * features["f0"] + hidden + 0.3 * level + generator.normal(size=count) * 0.5
    when = pl.datetime_range(
        pl.datetime(2024, 1, 1), pl.datetime(2024, 1, 1) + pl.duration(hours=count - 1), "1h", eager=True
    )
    return pl.DataFrame({"when": when, **features, "level": level, "smooth": hidden.cumsum(), "y": y})


def measure(frame: pl.DataFrame, split: str, folder: Path) -> tuple[float, float, float]:
    """Return the mean absolute error of the holdout, its standard error, and that of later rows."""
    path = folder / "data.parquet"
    frame[:ROWS].write_parquet(path)
    spec = load_spec(SPEC.format(split).encode())
    table = read_table([path], spec.columns, spec.task)
    held = hold_out(table, read_row_roles([path], spec, table.row_mask), spec)
    forest = RandomForestRegressor(60, min_samples_leaf=3, random_state=0, n_jobs=1)
    forest.fit(table.matrix[held.train], table.target[held.train])
    truth, found = table.target[held.test], forest.predict(table.matrix[held.test])
    units = held.roles.take(held.test).units()
    interval = score_interval("mae", truth, found, seed=0, units=units)
    assert interval is not None
    later = frame[ROWS:]
    answers = forest.predict(later.select(table.feature_names).to_numpy().astype(np.float32))
    error = (interval[1] - interval[0]) / (2 * 1.96)
    return compute("mae", truth, found), error, compute("mae", later["y"].to_numpy(), answers)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(
        f"{'drift':>6} {'split':>7} {'holdout':>8} {'later':>7} {'error':>7} {'within 1':>9} {'within 2':>9}"
    )
    with TemporaryDirectory() as folder:
        for drift in (0.0, 0.5, 1.0):
            for split in ("random", "time"):
                found = np.array(
                    [measure(generate(s, drift), split, Path(folder)) for s in range(options.seeds)]
                )
                off = np.abs(found[:, 0] - found[:, 2]) / found[:, 1]
                row = {"drift": drift, "split": split, "seeds": options.seeds}
                row |= dict(zip(("holdout", "error", "later"), found.mean(axis=0).tolist(), strict=True))
                row |= {"within_1": float((off <= 1).mean()), "within_2": float((off <= 2).mean())}
                rows.append(row)
                print(
                    f"{drift:6} {split:>7} {row['holdout']:8.3f} {row['later']:7.3f} {row['error']:7.3f} "
                    f"{row['within_1']:9.0%} {row['within_2']:9.0%}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
