"""A trainer whose data does not fit in memory: it refuses, or reads from disk and survives a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl

from dmls_core import sandbox

SPEC = """model = "{model}"
n_trials = 4
[columns]
target = "y"
[n_estimators]
value = 20
[max_depth]
min = 3
max = 8
"""


def command(folder: Path, data: Path) -> list[str]:
    spec, out = str(folder / "spec.toml"), str(folder / "out")
    return [sys.executable, "-m", "dmls_core.cli", "train", spec, str(data), "--out", out]


def test_a_run_that_reads_from_disk_keeps_its_trials_after_a_kill(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    values = draw.normal(size=(60_000, 25)).astype(np.float32)
    frame = pl.DataFrame({f"x{at}": values[:, at] for at in range(25)})
    target = values[:, :3].sum(axis=1) + draw.normal(size=len(values))
    frame.with_columns(y=pl.Series(target)).write_csv(tmp_path / "data.csv", float_precision=3)
    spec = SPEC.format(model="xgboost-regressor") + '[resources]\nmemory = "64 MiB"\n'
    (tmp_path / "spec.toml").write_text(spec)
    run = command(tmp_path, tmp_path / "data.csv")
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    process = subprocess.Popen(run, env=environment, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 240
    while len(kept := list((tmp_path / "out").glob("trials/**/*.json"))) < 2:
        assert process.poll() is None, "the run ended before it was killed"
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = {path: path.read_bytes() for path in kept}
    done = subprocess.run(run, env=environment, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert "it is read from disk" in done.stderr
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert (result["n_trials"], result["folds"]) == (4, 1)
    assert result["data"]["train_rows"] == 48_000
    assert {path: path.read_bytes() for path in kept} == before


def test_a_run_that_cannot_fit_is_refused_before_it_reads(tmp_path: Path) -> None:
    frame = pl.select(pl.repeat(1, 8_000_000, dtype=pl.Int8).alias("x0"))
    frame = frame.with_columns(pl.col("x0").alias(f"x{at}") for at in range(1, 10))
    frame.with_columns(y="x0").write_parquet(tmp_path / "data.parquet")
    (tmp_path / "spec.toml").write_text(SPEC.format(model="xgboost-regressor"))
    run = sandbox.command(command(tmp_path, tmp_path / "data.parquet"), 512 << 20)

    done = subprocess.run(run, capture_output=True, text=True, timeout=300)

    assert done.returncode == 1, done.stderr
    message = " ".join(done.stderr.split())
    assert "the run does not fit its memory limit" in message
    assert "at least 661 MiB for 8,000,000 rows of 10 features" in message
    assert "at most 512 MiB" in message
    assert 'raise [resources] memory to "768 MiB", keep at most 4 of the [columns] features' in message
    assert not (tmp_path / "out" / "result.json").exists()
