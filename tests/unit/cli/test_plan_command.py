"""`dmls plan`: what a run will need."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dmls_core.cli.main import app
from dmls_core.errors import SpecError, SubmissionError

SPEC = """model = {model}
n_trials = 8
[columns]
target = "y"
{rest}
"""
ROWS = 600


@pytest.fixture
def data(tmp_path: Path) -> Path:
    draw = random.Random(3)
    lines = ["a,b,c,y"]
    for _ in range(ROWS):
        a, b, c = (draw.gauss(0, 1) for _ in range(3))
        lines.append(f"{a:.4f},{b:.4f},{c:.4f},{'high' if a + b > 0 else 'low'}")
    path = tmp_path / "data.csv"
    path.write_text("\n".join(lines))
    return path


def plan(tmp_path: Path, data: Path, rest: str = "", model: str = '"random-forest-classifier"') -> dict:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model=model, rest=rest))
    done = CliRunner().invoke(app, ["plan", str(spec), str(data), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_it_tells_rows_engine_and_what_is_searched(tmp_path: Path, data: Path) -> None:
    found = plan(tmp_path, data, "[n_estimators]\nmin = 10\nmax = 40\n[max_depth]\nvalue = 3")
    assert (found["rows"], found["features"], found["trials"]) == (ROWS, 3, 8)
    assert found["matrix_bytes"] == ROWS * 3 * 4
    (model,) = found["models"]
    assert model["name"] == "random-forest-classifier"
    assert model["searched"] == ["n_estimators"]
    assert model["engine"] in ("cpu", "gpu")
    assert found["seconds"] >= found["load_seconds"] > 0
    assert found["memory_bytes"] > found["matrix_bytes"]


def test_a_larger_space_needs_a_larger_model(tmp_path: Path, data: Path) -> None:
    small, large = (
        plan(tmp_path, data, f"[n_estimators]\nmin = 5\nmax = {most}")["models"][0] for most in (10, 1_000)
    )
    assert large["model_bytes"] > 20 * small["model_bytes"]
    assert large["fit_seconds"] > small["fit_seconds"]


def test_a_limit_that_is_too_low_is_warnings(tmp_path: Path, data: Path) -> None:
    rest = '[n_estimators]\nmin = 100\nmax = 5000\n[search]\ntimeout = 0.001\n[resources]\nmemory = "64m"'
    warnings = " ".join(plan(tmp_path, data, rest)["warnings"])
    assert "[search] timeout 0.001 s ends the search early" in warnings
    assert "[resources] memory 64m is less than the run needs" in warnings


def test_people_get_lines(tmp_path: Path, data: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model='"lightgbm-classifier"', rest=""))
    done = CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
    assert done.exit_code == 0
    assert f"{ROWS} rows, 3 features" in done.stdout
    assert "lightgbm-classifier" in done.stdout


def test_what_is_wrong_is_warnings_as_at_admission(tmp_path: Path, data: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.format(model='"random-forest"', rest=""))
    with pytest.raises(SpecError, match="did you mean"):
        CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
    spec.write_text(SPEC.format(model='"random-forest-classifier"', rest="").replace('"y"', '"z"'))
    with pytest.raises(SubmissionError, match="z"):
        CliRunner().invoke(app, ["plan", str(spec), str(data)], catch_exceptions=False)
