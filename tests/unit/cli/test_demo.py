"""What the demo brings along."""

from __future__ import annotations

import csv
from pathlib import Path

import dmls_core
from dmls_core.cli import demo
from dmls_core.cli.platform_start import DOCKERFILE, SOURCES, source_revision
from dmls_core.cli.spec_commands import check_files

ROOT = Path(dmls_core.__file__).parents[1]


def test_the_demo_drops_the_example():
    assert demo.SPEC.read_bytes() == (ROOT / "examples/iris/spec.toml").read_bytes()


def test_its_data_fits_its_spec(tmp_path):
    table = tmp_path / "iris.csv"
    rows = demo.write_csv(table)
    assert len(rows) == 150
    assert rows[0] == ["5.1", "3.5", "1.4", "0.2", "setosa"]
    with table.open() as file:
        assert list(csv.reader(file)) == [list(demo.COLUMNS), *rows]
    assert check_files(demo.SPEC, [table])[0].columns.target == "species"


def test_an_image_is_as_old_as_its_sources(tmp_path):
    (tmp_path / "images/trainer").mkdir(parents=True)
    (tmp_path / DOCKERFILE).write_text("FROM x")
    (tmp_path / "dmls_core").mkdir()
    (tmp_path / "dmls_core/a.py").write_text("a = 1")
    before = source_revision(tmp_path)
    (tmp_path / "README.md").write_text("new words")
    assert source_revision(tmp_path) == before
    (tmp_path / "dmls_core/a.py").write_text("a = 2")
    assert source_revision(tmp_path) != before


def test_the_sources_of_the_image_are_where_they_are_looked_for():
    assert [pattern for pattern in SOURCES if not any(ROOT.glob(pattern))] == []
