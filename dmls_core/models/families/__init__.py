"""The catalogue's data, one module per family of models."""

from __future__ import annotations
