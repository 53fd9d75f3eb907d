"""The hash by which a run knows the data that it was trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path


def content_hash(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of one file, or that of the hashes of several, in their order, one a line."""
    digests = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()
