"""Damaged CSV and Parquet files: is each refused as a user's error, in time and within memory?

Bytes of small valid files are flipped, zeroed, cut, doubled, moved and inserted. Each file is checked as
``dmls validate`` and admission check it, and its columns are inferred as on the page; what admission calls
valid is read as a trainer reads it, and one in ten of these is planned, which takes longer. All happens in
sandbox workers with 5 seconds of CPU time and 1 GB, which kill what takes more. ``refused`` counts errors
in the file; ``killed``, those of them that the sandbox reported because the process ended; ``read``, files
that a trainer reads; ``late``, files that only a trainer or the plan refuses; ``crashed``, all other errors,
of which there should be none.
"""

from __future__ import annotations

import argparse
import io
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl

from dmls_core import sandbox
from dmls_core.cli.spec_commands import check_files
from dmls_core.data.table.reader import read_table
from dmls_core.errors import DataError, UserError
from dmls_core.intake.schema_inference import infer_file_schema
from dmls_core.models import load_spec
from dmls_core.sandbox import Limits, SandboxError, Worker
from dmls_core.training.plan import plan_file
from tests.bench.report import Row, run

CPU_SECONDS = 5
SECONDS = 60.0
MEMORY = 1000 * 1000 * 1000
ROWS = 60

SPEC = 'model = "random-forest-classifier"\n[columns]\ntarget = "kind"\n'


def frame(seed: int) -> pl.DataFrame:
    """Return a table with numbers, texts, dates and missing cells."""
    chosen = random.Random(seed)
    return pl.DataFrame(
        {
            "length": [round(chosen.uniform(1, 9), 2) for _ in range(ROWS)],
            "count": [chosen.choice([None, *range(100)]) for _ in range(ROWS)],
            "place": [chosen.choice(["Nord", "Süd, Ost", 'a "b"', None]) for _ in range(ROWS)],
            "member": [chosen.random() < 0.5 for _ in range(ROWS)],
            "kind": [chosen.choice(["small", "large"]) for _ in range(ROWS)],
        },
        schema_overrides={"count": pl.Int64},
    )


def written(write: Callable[..., Any], **options: Any) -> bytes:
    out = io.BytesIO()
    write(out, **options)
    return out.getvalue()


def seeds() -> list[tuple[str, bytes]]:
    """Return names and contents of valid files."""
    table = frame(1)
    return [
        ("data.csv", written(table.write_csv)),
        ("data.csv", written(table.write_csv, line_terminator="\r\n", quote_style="always")),
        *(
            ("data.parquet", written(table.write_parquet, compression=compression, row_group_size=size))
            for compression in ("uncompressed", "snappy", "zstd", "gzip", "lz4")
            for size in (ROWS, 7)
        ),
        ("data.parquet", written(table.with_columns(pl.col("place").cast(pl.Categorical)).write_parquet)),
    ]


def damaged(content: bytes, chosen: random.Random) -> bytes:
    """Return a content with one to eight changes."""
    data = bytearray(content)
    for _ in range(chosen.choice([1, 1, 1, 2, 3, 8])):
        # Half of the changes are in the last 600 bytes, where Parquet has its footer.
        low = max(0, len(data) - 600) if chosen.random() < 0.5 else 0
        at = chosen.randrange(low, len(data) + 1)
        size = chosen.choice([1, 1, 2, 4, 16, 64])
        kind = chosen.randrange(8)
        if kind <= 2 and at < len(data):
            data[at] ^= 1 << chosen.randrange(8)
        elif kind == 3:
            data[at : at + size] = bytes(size)
        elif kind == 4:
            data[at : at + size] = b"\xff" * size
        elif kind == 5:
            data[at:at] = chosen.randbytes(size)
        elif kind == 6:
            del data[at : at + size]
        else:
            other = chosen.randrange(len(data) + 1)
            data[at : at + size] = data[other : other + size]
        if not data:
            break
    return bytes(data if chosen.random() < 0.9 else data[: chosen.randrange(len(data) + 1)])


def read(spec: str, path: str) -> int:
    """Read a file as a trainer does, in the sandbox; return the number of rows."""
    made = load_spec(spec.encode())
    return read_table([Path(path)], made.columns, made.task).n_rows


def verdict(spec_file: Path, path: Path, trainer: Worker, *, planned: bool) -> str:
    """Check a file, and read it if it is valid; return the column of the table that counts it."""
    from tests.bench import damaged_data  # by this name, the sandbox can import it

    with suppress(UserError):
        infer_file_schema(path)
    try:
        check_files(spec_file, [path])
    except UserError as error:
        return "killed" if isinstance(error, SandboxError) or "the process" in str(error) else "refused"
    try:
        trainer.call(damaged_data.read, spec_file.read_text(), str(path), file=path.name)
        if planned:
            trainer.call(plan_file, spec_file.read_text(), str(path), 1.0, "4g", file=path.name)
    except DataError:
        return "late"
    return "read"


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Check the files of each format."""
    limits, rows = Limits(memory=MEMORY, seconds=SECONDS, cpu_seconds=CPU_SECONDS), []
    with tempfile.TemporaryDirectory() as name, Worker(limits) as checker, Worker(limits) as trainer:

        def call(function: Callable[..., Any], *args: object, limits: object = None, **options: str) -> Any:
            del limits
            return checker.call(function, *args, **options)

        folder = Path(name)
        spec_file = folder / "spec.toml"
        spec_file.write_text(SPEC)
        with mock.patch.object(sandbox, "run", call):
            for format_ in ("csv", "parquet"):
                found: Counter[str] = Counter()
                slowest, chosen = 0.0, random.Random(arguments.seed)
                files = [seed for seed in seeds() if seed[0].endswith(format_)]
                for number in range(-len(files), arguments.files):
                    name, content = files[number % len(files)]
                    path = folder / name
                    path.write_bytes(content if number < 0 else damaged(content, chosen))
                    if number < 0:
                        assert verdict(spec_file, path, trainer, planned=number == -1) == "read", (
                            "the file is valid"
                        )
                        continue
                    started = time.perf_counter()
                    try:
                        found[verdict(spec_file, path, trainer, planned=number % 10 == 9)] += 1
                    except BaseException as error:
                        if isinstance(error, KeyboardInterrupt):
                            raise
                        found["crashed"] += 1
                        kept = Path(tempfile.gettempdir()) / f"crashed-{number}-{name}"
                        kept.write_bytes(path.read_bytes())
                        print(f"{kept}: {type(error).__name__}: {error}")
                    slowest = max(slowest, time.perf_counter() - started)
                columns = ("read", "refused", "killed", "late", "crashed")
                counts = {column: found[column] for column in columns}
                rows.append({"format": format_, "files": arguments.files, **counts, "slowest s": slowest})
    return rows


if __name__ == "__main__":
    run(__doc__, measure, ("--files", 1000, "files of each format"), ("--seed", 1, "of the changes"))
