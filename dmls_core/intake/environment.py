"""What a rejection depends on besides the submitted files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from dmls_core import extensions
from dmls_core.settings import DataLimits, IntakeLimits, SpecLimits


def hash_environment(limits: IntakeLimits, memory: str | None, gpus: int | None) -> str:
    """Return a hash of the installed packages and of the limits, by which a submission is checked.

    ``memory`` is the memory limit of a trainer, ``gpus`` the number of GPUs that the runner offers.
    """
    groups = limits, SpecLimits.from_environment(), DataLimits.from_environment()
    facts = [*map(asdict, extensions.installed()), *map(asdict, groups), memory, gpus]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
