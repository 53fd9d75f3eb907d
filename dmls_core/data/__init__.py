"""Read, encode, split and validate data. Names are imported when first used: most need polars or NumPy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmls_core.data.encoder import CategoryFeature, Encoder, NumberFeature, Target
    from dmls_core.data.fitting import encode_in_place, encode_table, fit_encoder
    from dmls_core.data.hashing import content_hash
    from dmls_core.data.reader import read_table
    from dmls_core.data.split import split_holdout
    from dmls_core.data.table import Table, TableColumn
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
    "content_hash": "hashing",
    "encode_in_place": "fitting",
    "encode_table": "fitting",
    "fit_encoder": "fitting",
    "read_table": "reader",
    "split_holdout": "split",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
