"""The example engine installs from its folder, passes the suite, and trains a job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "plugins" / "dmls-hist-gradient-boosting"
MODULE = "dmls_hist_gradient_boosting"

SPEC = """
model = "hist-gradient-boosting-classifier"
n_trials = 3
[columns]
target = "species"
[n_estimators]
min = 10
max = 30
[search]
metric = "correct_share"
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed engine, and a metric of its own, for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("plugin")
    uv = Path(sys.executable).with_name("uv")
    options = ["--quiet", "--offline", "--no-index", "--no-deps", "--no-build-isolation"]
    target = ["--python", sys.executable, "--target", folder / "site"]
    sources = [shutil.copytree(EXAMPLE, folder / "engine"), metric_package(folder / "metric")]
    subprocess.run([uv, "pip", "install", *options, *target, *sources], check=True, timeout=120)
    return folder / "site"


def metric_package(folder: Path) -> Path:
    """Write the package of the guide to add a metric."""
    guide = (ROOT / "docs" / "extending" / "metrics.md").read_text()
    folder.mkdir()
    for file in ("pyproject.toml", "dmls_correct_share.py"):
        _, _, rest = guide.partition(f'title="{file}"\n')
        (folder / file).write_text(rest.partition("```")[0])
    return folder


def run(installed: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=environment, timeout=600
    )


def test_the_example_passes_the_suite(installed: Path, tmp_path: Path):
    shutil.copy(EXAMPLE / f"test_{MODULE}.py", tmp_path)
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    done = run(installed, "-m", "pytest", *options, str(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_job_trains_with_the_engine_and_a_metric_of_another_package(installed: Path, tmp_path: Path):
    from sklearn.datasets import load_iris

    data = load_iris()
    rows = zip(data.data.tolist(), data.target, strict=True)
    lines = ["a,b,c,d,species", *(",".join(map(str, [*row, data.target_names[code]])) for row, code in rows)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "spec.toml").write_text(SPEC)

    command = ["-m", "dmls_core.cli", "train", "spec.toml", "data.csv", "--out", "out", "--json"]
    done = run(installed, *command, cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["model"] == "hist-gradient-boosting-classifier"
    assert result["metric"] == "correct_share"
    assert result["score"] > 0.8
    assert result["best_params"]["max_iter"] == result["best_params"]["n_estimators"]
    assert (tmp_path / "out" / "model" / "checkpoint.tl").is_file()


def test_a_misspelled_metric_names_the_one_of_the_package(installed: Path, tmp_path: Path):
    (tmp_path / "spec.toml").write_text(SPEC.replace("correct_share", "corect_share"))

    done = run(installed, "-m", "dmls_core.cli", "validate", "spec.toml", cwd=tmp_path)

    assert done.returncode == 1
    assert "did you mean correct_share?" in done.stdout + done.stderr


def test_the_guide_shows_the_files_of_the_example():
    guide = (ROOT / "docs" / "extending" / "engines.md").read_text()
    for file in ("pyproject.toml", f"{MODULE}.py", f"test_{MODULE}.py"):
        assert (EXAMPLE / file).read_text() in guide, f"run: copy {file} into docs/extending/engines.md"
