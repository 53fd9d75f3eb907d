"""Which module fits which family on which device."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from dmls_core.errors import EngineUnavailableError
from dmls_core.models.engines.base import Engine, Reader

ENGINES: dict[tuple[str, str], tuple[str, str]] = {
    ("cpu", "random-forest"): ("cpu.forests", "ForestEngine"),
    ("cpu", "extra-trees"): ("cpu.forests", "ForestEngine"),
    ("cpu", "xgboost"): ("cpu.xgboost", "XGBoostEngine"),
    ("cpu", "lightgbm"): ("cpu.lightgbm", "LightGBMEngine"),
    ("gpu", "random-forest"): ("gpu.cuml_forests", "CumlForestEngine"),
    ("gpu", "xgboost"): ("gpu.xgboost", "CudaXGBoostEngine"),
}
"""(engine, family) -> (module below this package, class)."""

PACKAGES: dict[tuple[str, str], tuple[str, ...]] = {
    ("cpu", "random-forest"): ("sklearn", "treelite"),
    ("cpu", "extra-trees"): ("sklearn", "treelite"),
    ("cpu", "xgboost"): ("xgboost", "treelite"),
    ("cpu", "lightgbm"): ("lightgbm", "treelite"),
    ("gpu", "random-forest"): ("cuml", "cupy", "treelite"),
    ("gpu", "xgboost"): ("xgboost", "cupy", "treelite"),
}
"""(engine, family) -> what must be importable."""


def missing_packages(engine: str, family: str) -> list[str]:
    """Return the packages that the engine lacks here, without importing any."""
    return [name for name in PACKAGES[engine, family] if find_spec(name) is None]


def load_reader(engine: str) -> Reader | None:
    """Return what reads data files on the engine's device, where the engine has such a thing."""
    if engine != "gpu" or find_spec("cudf") is None:
        return None
    reader: Reader = import_module("dmls_core.models.engines.gpu.reading").CudfReader()
    return reader


def load_engine(engine: str, family: str) -> Engine:
    """Import and return the engine that fits ``family`` on ``engine``.

    Raises:
        EngineUnavailableError: no such engine exists, or its packages are not installed.
    """
    if (engine, family) not in ENGINES:
        raise EngineUnavailableError(f"no {engine} engine fits the models of the family {family}")
    if missing := missing_packages(engine, family):
        raise EngineUnavailableError(
            f"the {engine} engine for {family} needs packages that are not installed here: "
            + ", ".join(missing)
        )
    module, name = ENGINES[engine, family]
    loaded: Engine = getattr(import_module(f"dmls_core.models.engines.{module}"), name)()
    return loaded
