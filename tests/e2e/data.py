"""Data sets for end-to-end tests: what scikit-learn ships, and what a seed makes."""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
from pathlib import Path

from dmls_core.data.formats.compression import load_zstd

IRIS = """model = "random-forest-classifier"
n_trials = 5

[columns]
features = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
target = "species"

[n_estimators]
min = 50
max = 500

[criterion]
values = ["gini", "entropy", "log_loss"]
"""

SMALL_IRIS = IRIS.replace("max = 500", "max = 60").replace("n_trials = 5", "n_trials = 2")


def to_csv(heads: list[str], rows: list[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([heads, *rows])
    return text.getvalue()


def iris() -> str:
    from sklearn.datasets import load_iris

    data = load_iris()
    heads = ["sepal_length", "sepal_width", "petal_length", "petal_width", "species"]
    rows = [[*map(float, x), str(data.target_names[y])] for x, y in zip(data.data, data.target, strict=True)]
    return to_csv(heads, rows)


def wine() -> tuple[str, str]:
    """Return spec and CSV of scikit-learn's wine."""
    from sklearn.datasets import load_wine

    data = load_wine()
    heads = [name.replace("/", "_") for name in data.feature_names]
    rows = [[*map(float, x), f"class {y}"] for x, y in zip(data.data, data.target, strict=True)]
    spec = f"""model = "extra-trees-classifier"
n_trials = 3
[columns]
features = {heads}
target = "cultivar"
[n_estimators]
min = 20
max = 60
[deploy]
mode = "auto"
""".replace("'", '"')
    return spec, to_csv([*heads, "cultivar"], rows)


def write_compressed_tables(folder: Path) -> None:
    """Write a sorted table of several MiB: compressed in several ways, and cut."""
    rows = 300_000
    lines = [f"{row},{row * 10},{'first' if row < rows / 2 else 'second'}\n" for row in range(rows)]
    text = "row,size,half\n" + "".join(lines)
    start, end = (
        gzip.compress(half.encode(), 1) for half in (text[: len(text) // 2], text[len(text) // 2 :])
    )
    (folder / "a.csv.gz").write_bytes(packed := gzip.compress(text.encode(), 1))
    (folder / "two.csv.gz").write_bytes(start + end)
    (folder / "cut.csv.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "a.csv.zst").write_bytes(load_zstd().compress(text.encode()))
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._a.csv", "x")
        archive.writestr("a.csv", text)
