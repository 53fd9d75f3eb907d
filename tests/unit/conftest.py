"""Airflow without a database or a network: enough to build, parse and serialize DAGs."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dmls_core import extensions, sandbox
from dmls_core.data.formats import names
from tests.support.warm_sandbox import WarmSandbox

HOME = tempfile.mkdtemp(prefix="dmls-airflow-unit-")
ROOT = str(Path(HOME) / "root")
ENTRY = {
    "name": "dmls",
    "classpath": "dmls_core.airflow.bundle.DmlsBundle",
    "kwargs": {"root": ROOT, "runner": "process", "shards": 4, "refresh_interval": 3},
}
# Airflow reads these at import, which happens when the first test module is collected.
os.environ |= {
    "AIRFLOW_HOME": HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps([ENTRY]),
    "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(Path(HOME) / "bundles"),
}

SPEC = b"""
model = "random-forest-classifier"
n_trials = 5
[columns]
features = ["a", "b"]
target = "y"
[n_estimators]
min = 50
max = 500
"""


@pytest.fixture(autouse=True)
def lazy_names_stay_lazy() -> Iterator[None]:
    """Patch the modules of lazy packages: a patched package keeps the name, and hides later patches."""
    yield
    for name in ("dmls_core.serving", "dmls_core.testing"):
        package = sys.modules.get(name)
        kept = vars(package).keys() & package._MODULES.keys() if package else set()
        assert not kept, f"{name} keeps {', '.join(kept)}: patch the module that defines it"


@pytest.fixture(scope="session")
def _children() -> Iterator[WarmSandbox]:
    warm = WarmSandbox()
    yield warm
    warm.close()


@pytest.fixture
def _patches() -> Iterator[pytest.MonkeyPatch]:
    """Patches that a test's ``monkeypatch.undo()`` leaves."""
    with pytest.MonkeyPatch.context() as patches:
        yield patches


@pytest.fixture(autouse=True)
def warm_sandbox(_children: WarmSandbox, _patches: pytest.MonkeyPatch) -> None:
    """Let the calls of ``sandbox.run`` of all tests share children."""
    _patches.setattr(sandbox, "run", _children.run)


@pytest.fixture(autouse=True)
def no_fsync(_patches: pytest.MonkeyPatch) -> None:
    """Leave files in the page cache: a busy disk takes up to a second for each."""
    _patches.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def install_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Install a module with file formats, for this process and for children of the sandbox."""
    site = tmp_path / "site"

    def install(entry_point: str, source: str) -> None:
        metadata = site / "plugin-0.1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Name: plugin\nVersion: 0.1.0\n")
        (metadata / "entry_points.txt").write_text(f"[dmls.formats]\n{entry_point}\n")
        (site / "format_of_a_plugin.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(site))
        patched.syspath_prepend(str(site))
        forget()

    def forget() -> None:
        for cached in [*vars(extensions).values(), *vars(names).values()]:
            if hasattr(cached, "cache_clear"):
                cached.cache_clear()

    with monkeypatch.context() as patched:
        yield install
    sys.modules.pop("format_of_a_plugin", None)
    forget()


@pytest.fixture
def feather(install_format: Callable[[str, str], None]) -> None:
    """Install the example of a file format."""
    example = Path(__file__).parents[2] / "examples/plugins/dmls-feather/dmls_feather.py"
    install_format("feather = format_of_a_plugin:FeatherFormat", example.read_text())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of its own for each test."""
    return tmp_path / "root"


@pytest.fixture
def accept(root: Path) -> Callable[..., object]:
    """Register a job as admission would."""
    from dmls_core.models import load_spec
    from dmls_core.store import Registry, open_store

    store = open_store(str(root))

    def _accept(team: str, name: str, *, spec: bytes = SPEC, content: bytes = b"a,b,y\n1,2,x\n") -> object:
        info = store.put(f"incoming/{team}/{name}/data.csv", content)
        return Registry(store).accept(load_spec(spec), team, name, [info], datetime.now(UTC))

    return _accept


@pytest.fixture
def bundle(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., object]:
    """Make a bundle over the test's store, with files of its own."""
    from dmls_core.airflow.bundle.bundle import DmlsBundle

    def _bundle(version: str | None = None, folder: str = "files") -> DmlsBundle:
        made = DmlsBundle(name="dmls", version=version, **ENTRY["kwargs"] | {"root": str(root)})
        made.base_dir = tmp_path / folder
        made.versions_dir = tmp_path / folder / "versions"
        return made

    return _bundle
