"""The DAGs that are not made from specs: the files in ``dags/``."""

from __future__ import annotations

from pathlib import Path

import dmls_core


def static_dag_files() -> list[Path]:
    """Return the DAG files that ship with the package (in a checkout: the folder ``dags/``)."""
    package = Path(dmls_core.__file__).parent
    for folder in (package / "airflow" / "dags", package.parent / "dags"):
        if folder.is_dir():
            return sorted(folder.glob("*.py"))
    raise FileNotFoundError(f"no DAG files beside {package}")
