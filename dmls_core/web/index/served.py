"""Which version of each model Triton serves, in one call."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from dmls_core.settings import TRITON_KEY_HEADER

SECONDS = 2.0


def served_versions(address: str, key: str) -> dict[str, int]:
    """Return the newest ready version of each model by its name.

    Args:
        address: ``host:port`` of Triton's HTTP endpoint.
        key: what it asks for before it tells.

    Raises:
        OSError: it does not answer in time.
        ValueError: it answers something else.
    """
    request = urllib.request.Request(
        f"http://{address}/v2/repository/index", data=b"{}", headers={TRITON_KEY_HEADER: key}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        entries: list[dict[str, Any]] = json.load(answer)
    found: dict[str, int] = {}
    for entry in entries:
        if entry.get("state") == "READY" and str(entry.get("version", "")).isdigit():
            name, version = entry["name"], int(entry["version"])
            found[name] = max(version, found.get(name, 0))
    return found
