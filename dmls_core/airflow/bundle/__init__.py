"""The versioned DAG bundle: the registry of accepted jobs as a fixed number of DAG files."""

from dmls_core.airflow.bundle.bundle import DmlsBundle

__all__ = ["DmlsBundle"]
