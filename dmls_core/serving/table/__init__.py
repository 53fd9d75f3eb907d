"""The table endpoint ``<team>.<job>.table``: the user's own columns in, labels and probabilities out."""

from __future__ import annotations

from dmls_core.serving.table.config import SUFFIX, table_config, table_files, table_name

__all__ = ["SUFFIX", "table_config", "table_files", "table_name"]
