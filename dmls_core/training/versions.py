"""The versions of what a run was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

BUILDS = {
    "xgboost": ("xgboost", "xgboost-cpu"),
    "cuml": ("cuml-cu13", "cuml-cu12", "cuml"),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
}
"""Distributions that carry the library of that name."""


def versions(libraries: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, of DMLS and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for library in ("dmls", *libraries):
        for distribution in BUILDS.get(library, (library,)):
            try:
                found[library] = version(distribution)
                break
            except PackageNotFoundError:
                continue
    return found
