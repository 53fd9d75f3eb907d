"""The report of a run: one HTML file that needs nothing from the network."""

from __future__ import annotations

from dmls_core.evaluate.report.page import render_report

__all__ = ["render_report"]
