"""Validate a run's data with Great Expectations.

Importing it takes seconds, so it runs in a child process during the search. Only that child imports ``suite``
and ``data_docs``.
"""

from __future__ import annotations

from dmls_core.data.validation.process import Outcome, Validation, ValidationProcess

__all__ = ["Outcome", "Validation", "ValidationProcess"]
