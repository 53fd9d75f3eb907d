"""Rows whose columns may drift, and logged answers of which a share is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from dmls_core.store import Store, layout


def stream(rows: int, seed: int, shift: float = 0.0) -> pl.DataFrame:
    """Two numbers and a category, of which ``b`` may be shifted; the target follows from them."""
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=rows), draw.normal(size=rows) + shift
    k = draw.choice(["x", "y", "z"], size=rows)
    y = np.where(a + b + (k == "x") > 0, "yes", "no")
    return pl.DataFrame({"a": a, "b": b, "k": k, "y": y})


def answers_of(store: Store, job: str, hour: int, right: float, rows: int, folder: Path) -> pl.DataFrame:
    """Log answers of which a share is right, as ``collect`` does; return what turns out to be true."""
    draw = np.random.default_rng(hour)
    truth = draw.choice(["no", "yes"], size=rows)
    reported = np.where(draw.random(rows) < right, truth, np.where(truth == "no", "yes", "no"))
    second = np.where(reported == "yes", 0.9, 0.1)
    name = f"20260201T{hour:02}0000Z-0a1b2c3d4e5f-{rows}.parquet"
    ids = [f"{job}-{hour}-{row}" for row in range(rows)]
    stream(rows, 100 + hour).drop("y").with_columns(
        **{
            "dmls.request_id": pl.Series(ids),
            "dmls.row": pl.Series([0] * rows, dtype=pl.Int32),
            "dmls.version": pl.lit(1),
            "dmls.prediction": pl.Series(reported),
            "dmls.probability.no": pl.Series(1 - second),
            "dmls.probability.yes": pl.Series(second),
        }
    ).write_parquet(folder / name)
    store.upload(f"{layout.inference_folder('lab', job)}dt=2026-02-01/{name}", folder / name)
    return pl.DataFrame({"request_id": ids, "y": truth})
