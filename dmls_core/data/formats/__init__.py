"""Formats of data files: detect, sample, read and convert them."""
