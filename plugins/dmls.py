"""The Airflow plugin of DMLS, for installations that use a plugins folder instead of entry points."""

from dmls_core.web.plugin import DmlsPlugin

__all__ = ["DmlsPlugin"]
