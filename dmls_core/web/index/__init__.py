"""All jobs in memory, refreshed in the background: a table of them asks no service."""

from __future__ import annotations

from dmls_core.web.index.job_index import JobIndex, View, job_index
from dmls_core.web.index.query import Page, Query, search
from dmls_core.web.index.row import JobRow

__all__ = ["JobIndex", "JobRow", "Page", "Query", "View", "job_index", "search"]
