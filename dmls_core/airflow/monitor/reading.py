"""What ``Reader`` runs: asked by lines of JSON on stdin, it reads users' files and answers on stdout.

First it says that it is ready. It may ask back before it answers.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dmls_core.errors import DataError, DmlsError
from dmls_core.monitoring.labels import Met, meet, read_labels
from dmls_core.monitoring.new_data import check_files
from dmls_core.serving import checkpoint

log = logging.getLogger(__name__)

VERSIONS = 10
"""Versions that one look at labels judges: the newest that have labelled answers."""

SPENT = 4
"""An answer that took more than this part of the memory is the last one: not all of it comes back."""


class Answerer:
    """Answers one question after the other."""

    def __init__(self) -> None:
        """Keep stdout for answers: whatever else is printed goes to stderr."""
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, message: Mapping[str, Any]) -> None:
        """Write a line."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was found, or what is wrong.

        Raises:
            MemoryError: the process is of no use any more.
        """
        try:
            return {"found": getattr(self, question["do"])(**question["with"])}
        except DataError as error:
            return {"issues": [issue.as_json() for issue in error.issues]}
        except DmlsError as error:
            return {"failed": str(error)}
        except MemoryError:
            raise
        except Exception as error:
            log.exception("%s cannot be answered", question["do"])
            return {"failed": repr(error)}

    def drift(self, model: str, files: list[str], threshold: float) -> dict[str, Any]:
        """Compare files with the baseline of a model; return a ``Drift`` as a dictionary."""
        return asdict(
            check_files(
                Path(model),
                list(map(Path, files)),
                threshold,
                lambda path, rows: checkpoint.predict(checkpoint.load(path), rows),
            )
        )

    def labels(self, file: str, out: str, target: str, numbers: bool, data_format: str | None) -> None:
        """Read a file of labels and write them to ``out``, in a form that ends no reader."""
        read_labels(Path(file), target, numbers=numbers, data_format=data_format).write_parquet(out)

    def decay(self, files: list[str]) -> dict[str, Any]:
        """Find the answers that labels belong to; compare the versions that gave them with their training.

        Asks for the files of the log, one by one, and for the ``result.json`` of each version.

        Args:
            files: what ``labels`` wrote, the oldest first.
        """
        import polars as pl

        from dmls_core.evaluate.decay import Trained, judge

        met = meet([pl.read_parquet(file, glob=False) for file in files], self._logged())
        decays = []
        for version, _ in met.versions[:VERSIONS]:
            result = self._want({"version": version})
            if result is not None:
                trained = Trained.of(result)
                decays.append((version, judge(trained, *met.pairs(version, trained.labels)).as_json()))
        return {**_counts(met), "decays": decays}

    def _logged(self) -> Iterator[Path]:
        while (path := self._want({"logged": True})) is not None:
            yield Path(path)

    def _want(self, what: Mapping[str, Any]) -> Any:
        self.say({"wants": what})
        return json.loads(sys.stdin.readline())


def _counts(met: Met) -> dict[str, int]:
    return {
        "labels": met.labels,
        "rows": met.frame.height,
        "several": met.several,
        "ambiguous": met.ambiguous,
    }


def main() -> None:
    """Answer until nobody asks any more, or until much memory was used."""
    answerer = Answerer()
    answerer.say({"ready": True})
    most = resource.getrlimit(resource.RLIMIT_DATA)[0] // SPENT
    for line in iter(sys.stdin.readline, ""):
        answer = answerer.answer(json.loads(line))
        last = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 > most > 0
        answerer.say(answer | {"last": last})
        if last:
            return


if __name__ == "__main__":
    main()
