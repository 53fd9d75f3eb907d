"""Run the command line inside the test's process, as ``main`` does for a shell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from dmls_core.cli.main import main


class Done(NamedTuple):
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str


Dmls = Callable[..., Done]


@pytest.fixture
def dmls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Dmls:
    """Run ``dmls`` in an empty folder, without any platform; returns what it left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DMLS_HOME", str(tmp_path / ".dmls"))
    for name in ("DMLS_ROOT", "DMLS_DEBUG", "DMLS_AIRFLOW_URL", "DMLS_TEAM", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Done:
        monkeypatch.setattr("sys.argv", ["dmls", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        out, err = capsys.readouterr()
        return Done(code if isinstance(code, int) else int(code is not None), out, err)

    return run


SPEC = """model = "random-forest-classifier"
n_trials = 2

[columns]
features = ["a", "b"]
target = "y"

[n_estimators]
min = 5
max = 10
"""

TABLE = "a,b,y\n" + "".join(f"{n},{n * 7 % 5},{'yes' if n % 2 else 'no'}\n" for n in range(30))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A valid spec and its data in ``tides/``."""
    folder = tmp_path / "tides"
    folder.mkdir()
    (folder / "spec.toml").write_text(SPEC)
    (folder / "data.csv").write_text(TABLE)
    return folder / "spec.toml", folder / "data.csv"
