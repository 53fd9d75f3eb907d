"""How often is the guessed target of a public table right, and how often is the user asked?

The tables are those that scikit-learn and Plotly ship, and the CSV files of ``--folder``, whose
``targets.csv`` has a line ``file,target`` for each. Every table is read as the form reads it, once with its
columns in their order and once shuffled, since most tables have the target last. ``right`` and ``wrong`` are
certain guesses: ``wrong`` must be 0. For the others the user is asked; of those, ``first`` have the target
at the top of the likely ones, and ``offered`` elsewhere among them. ``leaks`` counts tables with a column
that is said to give the target away: those are worth a look.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference import infer_file_schema
from tests.bench.report import Row, run

PLOTLY = {
    "gapminder": "lifeExp",
    "tips": "tip",
    "carshare": "car_hours",
    "election": "winner",
    "iris": "species",
    "wind": "frequency",
}
COUNTS = ("right", "wrong", "first", "offered", "elsewhere", "unread")


def public_tables() -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Yield the tables that installed packages ship, with their targets."""
    import plotly.data
    from sklearn import datasets

    for name in ("iris", "wine", "breast_cancer", "diabetes"):
        yield f"sklearn {name}", getattr(datasets, f"load_{name}")(as_frame=True).frame, "target"
    for name, target in PLOTLY.items():
        yield f"plotly {name}", getattr(plotly.data, name)(), target


def folder_tables(folder: Path) -> Iterator[tuple[str, pd.DataFrame, str]]:
    """Yield the tables of a folder, with the targets that its ``targets.csv`` names."""
    for file, target in pd.read_csv(folder / "targets.csv").itertuples(index=False):
        yield file, pd.read_csv(folder / file), target


def judge(path: Path, target: str) -> tuple[str, list[str]]:
    """Return how the guess is, and the columns that are said to give the target away."""
    try:
        found = infer_file_schema(path)
    except DataError:
        return "unread", []
    leaks = [
        one["column"]
        for one in found["relations"]
        if one["other"] == target or (one["both"] and one["column"] == target)
    ]
    if found["certain"]:
        return ("right" if found["target"] == target else "wrong"), leaks
    if found["target"] == target:
        return "first", leaks
    return ("offered" if target in found["likely"] else "elsewhere"), leaks


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Judge every table in both orders."""
    tables = list(public_tables())
    if arguments.folder:
        tables += folder_tables(Path(arguments.folder))
    rows = []
    for order in ("as shipped", "shuffled"):
        counts, leaking = Counter[str](), 0
        for name, frame, target in tables:
            columns = list(frame.columns)
            if order == "shuffled":
                random.Random(name).shuffle(columns)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "table.csv"
                frame[columns].to_csv(path, index=False)
                verdict, leaks = judge(path, target)
            counts[verdict] += 1
            leaking += bool(leaks)
            if verdict == "wrong" or leaks or arguments.each:
                print(f"{order}: {name}: {target}: {verdict}", *leaks)
        rows.append(
            {
                "columns": order,
                "tables": len(tables),
                **{key: counts[key] for key in COUNTS},
                "leaks": leaking,
            }
        )
    return rows


if __name__ == "__main__":
    run(
        __doc__,
        measure,
        ("--folder", "", "folder of CSV files and targets.csv"),
        ("--each", 0, "1 to print the verdict on every table"),
    )
