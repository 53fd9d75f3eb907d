"""Validate a run's data with Great Expectations.

Great Expectations takes seconds to import, so it runs in a child process while the search goes on. Only that
child imports ``suite`` and ``data_docs``.
"""

from __future__ import annotations

from dmls_core.data.validation.process import Outcome, Validation, ValidationProcess

__all__ = ["Outcome", "Validation", "ValidationProcess"]
