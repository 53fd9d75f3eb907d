"""Read, encode, split and validate data.

A name is imported when it is first used, because most modules import polars or NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
    from dmls_core.data.encoding import encode_in_place, encode_table, fit_encoder
    from dmls_core.data.sources import content_hash
    from dmls_core.data.table import Table, TableColumn, split_holdout
    from dmls_core.data.table_reader import read_table
    from dmls_core.data.validation import Validation, ValidationProcess

__all__ = [
    "CategoryFeature",
    "Encoder",
    "NumberFeature",
    "Table",
    "TableColumn",
    "Target",
    "Validation",
    "ValidationProcess",
    "content_hash",
    "encode_in_place",
    "encode_table",
    "fit_encoder",
    "read_table",
    "split_holdout",
]

_MODULES = {
    "CategoryFeature": "encoder",
    "Encoder": "encoder",
    "NumberFeature": "encoder",
    "Table": "table",
    "TableColumn": "table",
    "Target": "encoder",
    "Validation": "validation",
    "ValidationProcess": "validation",
    "content_hash": "sources",
    "encode_in_place": "encoding",
    "encode_table": "encoding",
    "fit_encoder": "encoding",
    "read_table": "table_reader",
    "split_holdout": "table",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
