"""Files to score: what is checked before they are written, and how far they are."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.encoder import Encoder
from dmls_core.errors import NotFoundError, StoreError, UserError
from dmls_core.serving.predict.scoring_record import ScoringRecord, write_record
from dmls_core.store import Store, layout, open_store
from dmls_core.web.services import scored_files
from dmls_core.web.services.scored_files import (
    check_file,
    delete_file,
    list_scored_files,
    open_predictions,
    read_scored_file,
    score_again,
    submit_file,
)

JOB = ("lab", "iris")
ENCODER = Encoder.from_json(
    {
        "schema": 1,
        "features": [{"name": name, "kind": "number", "fill": 0.0} for name in ("length", "width")],
        "target": {"name": "species", "kind": "label", "labels": ["a", "b"]},
    }
)
ROWS = b"id,length,width\n1,2,3\n2,,4\n"


@pytest.fixture
def notation() -> dict[str, str]:
    """Keys of the job's ``[data]``."""
    return {}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notation: dict[str, str]) -> Store:
    found = open_store(str(tmp_path / "root"))
    for name in ("open_store", "open_store_for_uploads"):
        monkeypatch.setattr(scored_files, name, lambda: found)
    monkeypatch.setattr(scored_files, "open_repository", lambda _: None)
    monkeypatch.setattr(scored_files, "airflow_settings", lambda: None)
    monkeypatch.setattr(scored_files, "read_served_encoder", lambda *_: (3, ENCODER))
    monkeypatch.setattr(scored_files, "read_notation", lambda *_: notation)
    monkeypatch.setattr(scored_files.audit_log, "record_event", lambda *_: None)
    return found


def parquet(**columns: list[float]) -> bytes:
    target = io.BytesIO()
    pl.DataFrame(columns).write_parquet(target)
    return target.getvalue()


def check(file: str, content: bytes) -> scored_files.FileCheck:
    return check_file(*JOB, file, content, len(content))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("file", "content", "seen"),
    [
        ("may.csv", ROWS, 2),
        ("2026/may.csv.gz", gzip.compress(ROWS), 2),
        ("may.jsonl", b'{"id": 1, "length": 2, "width": 3}\n', 1),
        ("may.parquet", parquet(id=[1], length=[2.5], width=[3]), 0),
    ],
    ids=["csv", "gzip", "json lines", "parquet"],
)
def test_a_file_with_the_columns_of_the_model_can_be_scored(file: str, content: bytes, seen: int):
    found = check(file, content)
    assert (found.columns, found.others, found.seen) == (["length", "width"], ["id"], seen)


@pytest.mark.usefixtures("store")
def test_the_beginning_of_a_large_file_is_enough():
    head = ROWS + b"3,5,6\n4,7"
    assert check_file(*JOB, "may.csv", head, 1 << 28).seen == 3
    assert check_file(*JOB, "may.parquet", parquet(length=[1], width=[2])[-900:], 1 << 28).seen == 0


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("may.csv", b"length\n1\n", "no column 'width'"),
        ("may.csv", b"length,width,prediction\n1,2,3\n", "the prediction adds it"),
        ("may.csv", b"length,width\n1,cat\n", "column 'width', row 1: 'cat' is not a number"),
        ("may.csv", b"length;width\n1;2\n3;4\n5;6\n", "separated by semicolons, not commas"),
        ("may.parquet", parquet(length=[1]), "no column 'width'"),
        ("may.parquet", b"length,width\n1,2\n", "Parquet"),
        ("may.ods", b"", "name it .csv"),
        (".hidden.csv", ROWS, "name it .csv"),
        ("../../churn/may.csv", ROWS, "name it .csv"),
        ("orders.toml", b'connection = "warehouse"', "does not open databases"),
    ],
    ids=range(10),
)
def test_others_are_refused_with_the_reason(file: str, content: bytes, message: str):
    with pytest.raises(UserError, match=message):
        check(file, content)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(("row", "named"), [(50, "'width', row 50: 'cat'"), (5_001, "'width': 'cat'")])
def test_a_row_has_its_number_in_the_file_or_none(row: int, named: str):
    lines = ["1,2"] * 6_000
    lines[row - 1 : row + 8] = ["1,cat"] * 9
    with pytest.raises(UserError, match=f"column {named} is not a number"):
        check("may.csv", "\n".join(["length,width", *lines]).encode())


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("notation", [{"delimiter": ";", "decimal": ","}])
def test_the_text_is_read_as_the_job_says():
    assert check("may.csv", b"length;width\n1,5;2\n").seen == 1
    with pytest.raises(UserError, match="separated by commas, not semicolons|no column"):
        check("may.csv", ROWS)


def test_a_submitted_file_waits_until_it_is_scored(store: Store, tmp_path: Path):
    upload = tmp_path / "upload"
    upload.write_bytes(ROWS)
    found = submit_file(*JOB, "may.csv", upload, "ann")
    assert (found.state, found.size, store.get("scoring/lab/iris/may.csv")) == ("waiting", len(ROWS), ROWS)
    with pytest.raises(NotFoundError, match="has no predictions: it is waiting"):
        open_predictions(*JOB, "may.csv")

    record = ScoringRecord("scoring", "may.csv", found.uploaded, "etag", 3, progress=0.5)
    write_record(store, *JOB, record)
    assert (read_scored_file(*JOB, "may.csv").progress, read_scored_file(*JOB, "may.csv").rows) == (0.5, None)

    # A record names a result; the name of the file decides what is opened.
    record = ScoringRecord("scored", "may.csv", found.uploaded, "etag", 3, "registry/secret.json", 2, 1.0)
    write_record(store, *JOB, record)
    store.put("scored/lab/iris/may.csv", b"predictions")
    (listed,) = list_scored_files(*JOB).files
    assert (listed.state, listed.rows, listed.version) == ("scored", 2, 3)
    name, chunks = open_predictions(*JOB, "may.csv")
    assert (name, b"".join(chunks)) == ("may-predicted.csv", b"predictions")


def test_a_file_that_was_written_again_waits(store: Store):
    info = store.put("scoring/lab/iris/may.csv", ROWS)
    write_record(store, *JOB, ScoringRecord("scored", "may.csv", "2026-01-01T00:00:00+00:00", "e", 3))
    assert read_scored_file(*JOB, "may.csv").state == "waiting"
    problem = {"message": "column 'width', row 9: 'x' is not a number", "hint": "correct it"}
    failed = ScoringRecord("failed", "may.csv", info.modified.isoformat(), "e", 3, errors=[problem])
    write_record(store, *JOB, failed)
    assert read_scored_file(*JOB, "may.csv").problems == [problem]


def test_a_file_is_scored_again_and_deleted_with_its_predictions(store: Store, tmp_path: Path):
    local = tmp_path / "rows.csv"
    local.write_bytes(ROWS)
    submit_file(*JOB, "rows.csv", local, "ada")
    before = read_scored_file(*JOB, "rows.csv")
    result = layout.scored_file(*JOB, "rows.csv")
    store.put(result, b"predictions")
    write_record(store, *JOB, ScoringRecord("scored", "rows.csv", before.uploaded, "x", 3, result))
    assert read_scored_file(*JOB, "rows.csv").state == "scored"

    again = score_again(*JOB, "rows.csv", "ada")

    assert (again.state, again.size) == ("waiting", len(ROWS))
    assert again.uploaded > before.uploaded
    delete_file(*JOB, "rows.csv", "ada")
    assert [info.key for prefix in ("scoring/", "scored/") for info in store.list(prefix)] == []
    for gone in (score_again, delete_file):
        with pytest.raises(NotFoundError, match="no file rows.csv"):
            gone(*JOB, "rows.csv", "ada")


def test_only_files_to_score_are_listed_and_the_latest_first(store: Store, monkeypatch: pytest.MonkeyPatch):
    for name in ("old.csv", "2026/new.csv", "_tmp/part.csv", ".hidden"):
        store.put(f"scoring/lab/iris/{name}", ROWS)
    store.put("scoring/lab/other/may.csv", ROWS)
    (Path(store.url) / "scoring/lab/iris/bad\x07.csv").write_bytes(ROWS)
    found = list_scored_files(*JOB)
    assert (sorted(file.file for file in found.files), found.total) == (["2026/new.csv", "old.csv"], 2)
    monkeypatch.setattr(scored_files, "MAX_LISTED", 1)
    assert [len(list_scored_files(*JOB).files), list_scored_files(*JOB).total] == [1, 2]
    with pytest.raises((UserError, StoreError)):
        read_scored_file(*JOB, "../other/may.csv")
    assert layout.parse_scoring("scoring/lab/iris/../other/may.csv") is None
