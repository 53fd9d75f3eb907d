"""Tables that installed packages ship, and files with the faults that real files have, made of them."""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import plotly.data
import polars as pl
import xlsxwriter

from dmls_core.data.formats.compression import load_zstd

ROWS = 600
"""Rows of a table at most."""

Cells = list[list[str]]
"""A table as text: the header, then the rows."""


def tables() -> dict[str, pd.DataFrame]:
    """Return the tables by name; the target is their last column."""
    from sklearn import datasets

    found = {}
    for name in ("iris", "wine", "breast_cancer", "diabetes", "linnerud"):
        loaded = getattr(datasets, f"load_{name}")(as_frame=True)
        frame = loaded.frame.copy()
        names = getattr(loaded, "target_names", None)
        if name in ("iris", "wine", "breast_cancer"):
            frame["target"] = [str(names[code]) for code in frame["target"]]
        found[name] = frame
    for name, target in (
        ("gapminder", "lifeExp"),
        ("tips", "tip"),
        ("carshare", "car_hours"),
        ("election", "winner"),
    ):
        frame = getattr(plotly.data, name)()
        found[name] = frame[[*(column for column in frame if column != target), target]].head(ROWS)
    for name, frame in found.items():
        found[name] = frame = frame.copy()
        rows = np.arange(len(frame))
        frame.insert(0, "region", np.array(["Nord", "Süd", "Ost", "West"])[rows % 4])
        frame.insert(1, "member", rows % 3 == 0)
        frame.insert(2, "turnover", np.round(1000 + 37.25 * rows + rows % 7, 2))
        frame.insert(3, "since", pd.Timestamp("2024-01-01") + pd.to_timedelta(rows * 31, unit="h"))
    return found


def cells(frame: pd.DataFrame) -> Cells:
    """Return a table as text, without the time of ``since``."""
    plain = frame.assign(since=frame["since"].dt.strftime("%Y-%m-%d"))
    return [
        list(map(str, plain.columns)),
        *([str(value) for value in row] for row in plain.itertuples(index=False)),
    ]


def text(table: Cells, delimiter: str = ",", end: str = "\n") -> str:
    """Write a table with a delimiter; cells with it are quoted."""

    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in (delimiter, '"', "\n")) else cell

    return "".join(delimiter.join(map(quoted, row)) + end for row in table)


def without(table: Cells, *names: str) -> Cells:
    """Return a table without columns."""
    kept = [at for at, name in enumerate(table[0]) if name not in names]
    return [[row[at] for at in kept] for row in table]


def changed(
    table: Cells, name: str, change: Callable[[str], str], rows: Iterator[int] | range | None = None
) -> Cells:
    """Return a table whose column ``name`` is changed in some rows, from 1, or in all."""
    at, some = table[0].index(name), None if rows is None else set(rows)
    return [
        row
        if number == 0 or (some is not None and number not in some)
        else [*row[:at], change(row[at]), *row[at + 1 :]]
        for number, row in enumerate(table)
    ]


Made = tuple[str, bytes]
"""The name of a file and its content."""

MUTATIONS: dict[str, Callable[[pd.DataFrame, random.Random], Made]] = {}


def mutation(
    make: Callable[[pd.DataFrame, random.Random], Made],
) -> Callable[[pd.DataFrame, random.Random], Made]:
    """Register a mutation by its name."""
    MUTATIONS[make.__name__] = make
    return make


def _plain(frame: pd.DataFrame) -> Cells:
    return without(cells(frame), "since")


def _some(table: Cells, random: random.Random, share: float) -> Any:
    rows = len(table) - 1
    return iter(random.sample(range(1, rows + 1), max(1, int(share * rows))))


def _in_csv(name: str, make: Callable[[Cells, random.Random], Cells]) -> None:
    def one(frame: pd.DataFrame, random: random.Random) -> Made:
        return "data.csv", text(make(_plain(frame), random)).encode()

    MUTATIONS[name] = one


for _name, _make in {
    "clean": lambda t, _: t,
    "word in a number": lambda t, r: changed(t, "turnover", lambda _: "unknown", _some(t, r, 0.001)),
    "below the limit of detection": lambda t, r: changed(t, "turnover", lambda c: f"<{c}", _some(t, r, 0.05)),
    "currency": lambda t, _: changed(t, "turnover", lambda c: f"${c}"),
    "currency behind": lambda t, _: changed(t, "turnover", lambda c: f"{c} EUR"),
    "percent": lambda t, _: changed(t, "turnover", lambda c: f"{c}%"),
    "thousands": lambda t, _: changed(t, "turnover", lambda c: f"{float(c):,.2f}"),
    "accounting negative": lambda t, r: changed(t, "turnover", lambda c: f"({c})", _some(t, r, 0.1)),
    "infinite": lambda t, r: changed(t, "turnover", lambda _: "inf", _some(t, r, 0.01)),
    "sentinel -999": lambda t, r: changed(t, "turnover", lambda _: "-999", _some(t, r, 0.1)),
    "missing by a dash": lambda t, r: changed(t, "turnover", lambda _: "-", _some(t, r, 0.1)),
    "missing by a question mark": lambda t, r: changed(t, "turnover", lambda _: "?", _some(t, r, 0.1)),
    "missing": lambda t, r: changed(t, "turnover", lambda _: "", _some(t, r, 0.3)),
    "empty column": lambda t, _: changed(t, "turnover", lambda _: ""),
    "missing target": lambda t, r: changed(t, t[0][-1], lambda _: "", _some(t, r, 0.1)),
    "rare class": lambda t, r: changed(t, t[0][-1], lambda _: "77", _some(t, r, 0.001)),
    "one class": lambda t, _: changed(t, t[0][-1], lambda _: "77"),
    "dates in slashes": lambda t, r: changed(
        t, "region", lambda _: f"{r.randint(1, 28)}/{r.randint(1, 12)}/2024"
    ),
    "times": lambda t, r: changed(t, "region", lambda _: f"{r.randint(10, 20)}:{r.randint(10, 59)}"),
    "ids": lambda t, r: changed(t, "region", lambda _: f"{r.getrandbits(64):016x}"),
    "free text": lambda t, r: changed(
        t, "region", lambda _: " ".join(r.choices("a bc def ghij".split(), k=9))
    ),
    "large integers": lambda t, r: changed(t, "turnover", lambda _: str(10**15 + r.randint(0, 999))),
    "leading zeros": lambda t, r: changed(t, "region", lambda _: f"{r.randint(0, 999):05d}"),
    "yes and no": lambda t, _: changed(t, "member", lambda c: "yes" if c == "True" else "no"),
    "line break in a cell": lambda t, r: changed(t, "region", lambda c: f"{c}\nland", _some(t, r, 0.1)),
    "total at the end": lambda t, _: [*t, ["Total", *[""] * (len(t[0]) - 1)]],
    "note at the end": lambda t, _: [*t, ["Source: the office of statistics"]],
    "short record": lambda t, _: [*t[:9], t[9][:-2], *t[10:]],
    "long record": lambda t, _: [*t[:9], [*t[9], "more"], *t[10:]],
    "column twice": lambda t, _: [[*row, row[0]] for row in t],
    "index without a name": lambda t, _: [["" if n == 0 else str(n - 1), *row] for n, row in enumerate(t)],
    "columns without names": lambda t, _: [[*row, ""] for row in t],
    "title rows": lambda t, _: [["Report of the year"], [], *t],
    "no header": lambda t, _: t[1:],
    "two headers": lambda t, _: [t[0], ["unit"] * len(t[0]), *t[1:]],
    "blank lines": lambda t, _: [*t[:5], [], *t[5:], [], []],
    "open quote": lambda t, _: changed(t, "region", lambda c: f'{c} "', range(7, 8)),
    "beyond float32": lambda t, r: changed(t, "turnover", lambda _: "1e39", _some(t, r, 0.01)),
    "constant": lambda t, _: changed(t, "turnover", lambda _: "1"),
    "classes in two spellings": lambda t, r: changed(t, t[0][-1], str.upper, _some(t, r, 0.3)),
    "target with a word": lambda t, r: changed(t, t[0][-1], lambda _: "unknown", _some(t, r, 0.01)),
    "target of dates": lambda t, r: changed(t, t[0][-1], lambda _: f"2024-01-{r.randint(10, 28)}"),
    "few rows": lambda t, _: t[:4],
}.items():
    _in_csv(_name, _make)


@mutation
def dates(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(cells(frame)).encode()


@mutation
def dates_with_points(frame: pd.DataFrame, random: random.Random) -> Made:
    table = changed(cells(frame), "since", lambda c: f"{c[8:]}.{c[5:7]}.{c[:4]}")
    return "data.csv", text(table).encode()


@mutation
def semicolons(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame), ";").encode()


@mutation
def tabs(frame: pd.DataFrame, random: random.Random) -> Made:
    return random.choice(["data.tsv", "data.csv"]), text(_plain(frame), "\t").encode()


@mutation
def bars(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame), "|").encode()


def _comma(table: Cells) -> Cells:
    return [
        table[0],
        *(
            [c.replace(".", ",") if c.replace(".", "", 1).lstrip("-").isdigit() else c for c in row]
            for row in table[1:]
        ),
    ]


@mutation
def decimal_commas(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_comma(_plain(frame)), ";").encode()


@mutation
def german_excel(frame: pd.DataFrame, random: random.Random) -> Made:
    table = changed(
        _plain(frame), "turnover", lambda c: f"{float(c):,.2f}".translate(str.maketrans(",.", ".,"))
    )
    return "data.csv", text(_comma(table), ";", "\r\n").encode("cp1252")


@mutation
def windows_1252(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame)).encode("cp1252")


@mutation
def utf_16(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame), random.choice([",", "\t"])).encode("utf-16")


@mutation
def byte_order_mark(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame), end="\r\n").encode("utf-8-sig")


@mutation
def old_mac_lines(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame), end="\r").encode()


@mutation
def nul_bytes(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv", text(_plain(frame)).encode() + b"\0\0\0"


@mutation
def gzipped(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv.gz", gzip.compress(text(_plain(frame)).encode(), mtime=0)


@mutation
def gzip_cut(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = gzipped(frame, random)
    return name, content[: len(content) // 2]


@mutation
def zipped(frame: pd.DataFrame, random: random.Random) -> Made:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.csv", text(_plain(frame), ";"))
    return "data.zip", out.getvalue()


@mutation
def json_lines(frame: pd.DataFrame, random: random.Random) -> Made:
    records = frame.drop(columns="since").to_dict("records")
    return "data.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode()


@mutation
def json_lines_broken(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = json_lines(frame, random)
    lines = content.splitlines(keepends=True)
    return name, b"".join([*lines[:8], lines[8][:-4] + b"\n", *lines[9:]])


def _parquet(frame: pl.DataFrame) -> Made:
    out = io.BytesIO()
    frame.write_parquet(out)
    return "data.parquet", out.getvalue()


@mutation
def parquet(frame: pd.DataFrame, random: random.Random) -> Made:
    return _parquet(pl.DataFrame(frame.drop(columns="since").to_dict("list")))


@mutation
def parquet_dates(frame: pd.DataFrame, random: random.Random) -> Made:
    kept = pl.DataFrame(frame.drop(columns="since").to_dict("list"))
    since = pl.Series("since", [value.to_pydatetime() for value in frame["since"]])
    return _parquet(kept.insert_column(0, since))


@mutation
def parquet_nested(frame: pd.DataFrame, random: random.Random) -> Made:
    kept = pl.DataFrame(frame.drop(columns="since").to_dict("list"))
    return _parquet(kept.insert_column(0, pl.Series("tags", [[1, 2]] * len(kept))))


@mutation
def parquet_damaged(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = parquet(frame, random)
    at = random.randrange(100, len(content) - 100)
    return name, content[:at] + bytes(64) + content[at + 64 :]


@mutation
def parquet_cut(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = parquet(frame, random)
    return name, content[: len(content) // 2]


def _workbook(
    frame: pd.DataFrame, change: Callable[[list[list[Any]]], list[list[Any]]], notes: bool = False
) -> Made:
    """Return a workbook with the changed rows, and dates as dates; ``notes`` are in a sheet before."""
    table = [list(map(str, frame.columns)), *map(list, frame.itertuples(index=False))]
    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"nan_inf_to_errors": True}) as book:
        form = book.add_format({"num_format": "dd.mm.yyyy"})
        if notes:
            book.add_worksheet("Notes").write(0, 0, "Data of 2024")
        sheet = book.add_worksheet("Data")
        for at, row in enumerate(change(table)):
            for column, value in enumerate(row):
                if isinstance(value, pd.Timestamp):
                    sheet.write_datetime(at, column, value.to_pydatetime(), form)
                elif value is not None:
                    sheet.write(at, column, value.item() if isinstance(value, np.generic) else value)
    return "data.xlsx", out.getvalue()


for _name, _table in {
    "workbook": lambda t: t,
    "workbook with a title": lambda t: [["Report"], [], *t],
    "workbook below empty rows": lambda t: [[], [], *t],
    "workbook without a header": lambda t: t[1:],
    "workbook with a text": lambda t: [
        *t[:7],
        [*t[7][:2], "unknown", *t[7][3:]],
        *t[8:],
    ],
    "workbook with texts for numbers": lambda t: [
        t[0],
        *([*row[:2], f"{row[2]:.2f}".replace(".", ","), *row[3:]] for row in t[1:]),
    ],
    "workbook with a total": lambda t: [*t, [], ["Total", None, sum(row[2] for row in t[1:])]],
}.items():
    MUTATIONS[_name] = lambda frame, _, table=_table: _workbook(frame, table)


@mutation
def workbook_with_notes(frame: pd.DataFrame, random: random.Random) -> Made:
    return _workbook(frame, lambda table: table, notes=True)


@mutation
def workbook_cut(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = _workbook(frame, lambda table: table)
    return name, content[: len(content) // 2]


@mutation
def zstd(frame: pd.DataFrame, random: random.Random) -> Made:
    return "data.csv.zst", load_zstd().compress(text(_plain(frame)).encode())


@mutation
def zstd_cut(frame: pd.DataFrame, random: random.Random) -> Made:
    name, content = zstd(frame, random)
    return name, content[: len(content) // 2]
