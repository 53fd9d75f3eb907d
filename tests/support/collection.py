"""Collect the tests in less CPU time: the workers of pytest-xdist all do it."""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    assertstate_key,
    get_cache_dir,
    try_makedirs,
)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Look for no garbage meanwhile, nor afterwards in what stays until the end (modules, tests)."""
    gc.disable()
    try:
        rewrite_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def rewrite_share(config: pytest.Config) -> None:
    """Rewrite the asserts of this worker's share of the tests; the worker reads what others wrote."""
    if not (worker := getattr(config, "workerinput", None)):
        return
    files = sorted({file for folder in config.args for file in Path(folder).rglob("test_*.py")})
    files.sort(key=lambda file: file.stat().st_size)
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        folder = get_cache_dir(file)
        bytecode = folder / (file.stem + PYC_TAIL)
        if try_makedirs(folder) and _read_pyc(file, bytecode) is None:
            source, code = _rewrite_test(file, config)
            _write_pyc(config.stash[assertstate_key], code, source, bytecode)
