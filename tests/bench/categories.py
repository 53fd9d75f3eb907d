"""Native categorical splits compared with ordinal codes: holdout log loss, CPU of training, checkpoint.

Run it with ``python tests/bench/categories.py``. The data is generated: the target depends on
each category and on three of four numbers; frequencies of categories fall by a power law, 3 % are missing.
``high`` has columns of 40, 300 and 1,500 categories, ``low`` of 3, 6, 8, 12 and 20. In ``ordered``, the
effects of two columns of 40 and 300 categories rise with their sorted names.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dmls_core.models.engines import Engine
from dmls_core.models.engines.lightgbm import LightGBMEngine
from dmls_core.models.engines.xgboost import XGBoostEngine
from dmls_core.training import TrainRequest, train
from tests.bench.report import Row, run

DATA = {"high": (40, 300, 1500), "low": (3, 6, 8, 12, 20), "ordered": (40, 300)}
ENGINES: dict[str, type[Engine]] = {"lightgbm": LightGBMEngine, "xgboost": XGBoostEngine}
SPEC = """model = "{family}-classifier"
n_trials = {trials}
[columns]
target = "y"
categorical = {columns}
[search]
metric = "log_loss"
seed = {seed}
"""


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Train each model with both codes on the same splits; return means over the seeds."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="dmls-bench-") as name:
        folder = Path(name)
        for data, levels in DATA.items():
            write_data(folder / f"{data}.csv", arguments.rows, levels, ordered=data == "ordered")
            for family, engine in ENGINES.items():
                for native in (True, False):
                    engine.native_categories = native
                    runs = [
                        one(folder, data, family, seed, arguments.trials) for seed in range(arguments.seeds)
                    ]
                    means = np.mean(runs, axis=0)
                    codes = "native" if native else "ordinal"
                    rows.append({"data": data, "model": family, "codes": codes, "runs": len(runs)})
                    figures = zip(("log loss", "accuracy", "CPU s", "checkpoint MB"), means, strict=True)
                    rows[-1] |= {key: round(float(value), 4) for key, value in figures}
    return rows


def write_data(path: Path, n_rows: int, levels: tuple[int, ...], *, ordered: bool) -> None:
    """Write a CSV with a column for each number of levels, four columns of numbers, and two classes."""
    draw = np.random.default_rng(len(levels))
    numbers = draw.normal(size=(n_rows, 4))
    effect = numbers[:, 0] + numbers[:, 1] * numbers[:, 2]
    columns = []
    for count in levels:
        weights = 1 / np.arange(1, count + 1) ** 0.7
        codes = draw.choice(count, n_rows, p=weights / weights.sum())
        names = draw.permutation(count)
        effect += (4 * names / count - 2 if ordered else draw.normal(size=count))[codes]
        texts = np.array([f"v{number:04}" for number in names], dtype=object)[codes]
        texts[draw.random(n_rows) < 0.03] = ""
        columns.append(texts)
    target = np.where(effect + draw.normal(size=n_rows) > 0, "yes", "no")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"c{number}" for number in range(len(levels))), *"abcd", "y"])
        writer.writerows(zip(*columns, *numbers.T.round(4).tolist(), target, strict=True))


def one(folder: Path, data: str, family: str, seed: int, trials: int) -> tuple[float, ...]:
    """Train once; return log loss and accuracy on the holdout, CPU seconds, and the checkpoint's MB."""
    spec, out = folder / "spec.toml", Path(tempfile.mkdtemp(dir=folder))
    columns = [f"c{number}" for number in range(len(DATA[data]))]
    spec.write_text(SPEC.format(family=family, trials=trials, columns=columns, seed=seed))
    begun = time.process_time()
    result = train(TrainRequest(str(spec), (str(folder / f"{data}.csv"),), str(out)), progress=lambda _: None)
    # The validation of the data runs in a process of its own.
    spent = time.process_time() - begun
    return result["score"], result["holdout"]["metrics"]["accuracy"], spent, result["size"]["bytes"] / 1e6


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--rows", 12_000, "rows of each data set"),
        ("--seeds", 3, "splits of each data set"),
        ("--trials", 8, "trials of each search"),
    )
