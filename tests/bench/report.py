"""What every benchmark does with its figures: print a table and, with ``--json FILE``, write them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def run(
    description: str | None,
    measure: Callable[[argparse.Namespace], list[Row] | dict[str, list[Row]]],
    *options: tuple,
) -> None:
    """Parse the command line, measure, and report the rows.

    Args:
        description: the benchmark's docstring.
        measure: returns rows that share their keys, or several tables of such rows by their names.
        options: ``(flag, default, help)`` of further arguments, typed as their default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    for flag, default, text in options:
        parser.add_argument(flag, type=type(default), default=default, help=f"{text} (default: {default})")
    arguments = parser.parse_args()
    figures = measure(arguments)
    if isinstance(figures, dict):
        for name, rows in figures.items():
            print(name)
            print_table(rows)
            print()
    else:
        print_table(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def print_table(rows: Sequence[Row]) -> None:
    """Print rows as an aligned table."""
    heads = list(rows[0])
    cells = [heads, *([_text(row[head]) for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def _text(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
