"""What ``sniff_apart`` runs: asked by JSON on stdin, it answers with JSON on stdout."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from dmls_core.errors import DataError
from dmls_core.intake.sniff import parquet_tail, read_sample, sniff


def main() -> None:
    """Look at a Parquet file, or at the end of a larger one, within a limit of memory."""
    asked: dict[str, Any] = json.load(sys.stdin)
    file, size = asked["file"], asked["size"]
    resource.setrlimit(resource.RLIMIT_DATA, (asked["memory"], asked["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    content = Path(asked["path"]).read_bytes()
    answer: dict[str, Any]
    try:
        whole = len(content) >= size
        sample = read_sample(file, content, complete=True) if whole else parquet_tail(file, content, size)
        answer = {"found": sniff(file, sample).as_json()}
    except DataError as error:
        answer = {"issues": [issue.as_json() for issue in error.issues]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
