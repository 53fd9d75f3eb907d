"""The report of a run: one HTML file that needs nothing from the network."""

from __future__ import annotations

from dmls_core.evaluate.report.page import render_report
from dmls_core.evaluate.report.search_section import search_insight

__all__ = ["render_report", "search_insight"]
