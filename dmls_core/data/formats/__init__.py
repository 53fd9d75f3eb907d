"""Formats of data files, one module each, and what they share: encodings, compression, samples."""

from dmls_core.data.formats.base import FileSample, Format

__all__ = ["FileSample", "Format"]
