"""A workbook in an upload: its spec is inferred, and what its sheet needs is explained."""

from __future__ import annotations

import datetime as dt
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmls_core.data.formats.compression import load_zstd
from dmls_core.errors import DataError, ValidationIssue
from dmls_core.intake.column_check import Findings, check_columns
from dmls_core.intake.schema_inference import infer_file_schema, read_sample
from dmls_core.intake.schema_inference.sample import WHOLE
from dmls_core.intake.submissions import check_data_name
from dmls_core.models import load_spec
from dmls_core.settings import IntakeLimits
from dmls_core.spec.toml_io import toml_text
from dmls_core.store import open_store
from tests.unit.data.formats.test_excel import workbook

SPEC = 'model = "random-forest-classifier"\nn_trials = 2\n[columns]\ntarget = "y"\ndates = ["sold"]\n'
HEADER = ["width", "sold", "y"]
ROWS = [[n + 0.5, dt.date(2026, 1, 1) + dt.timedelta(days=n), "uv"[n % 2]] for n in range(40)]


def findings(path: Path, data: str = "") -> Findings:
    store = open_store(str(path.parent))
    info = store.head(path.name)
    assert info
    spec = load_spec(f"{SPEC}[data]\n{data}".encode())
    return check_columns(store, [info], "excel", spec, IntakeLimits())


def check(path: Path, data: str = "") -> list[ValidationIssue]:
    return list(findings(path, data).issues)


@pytest.mark.parametrize(
    ("sheets", "keys"),
    [
        ({"Data": [HEADER, *ROWS]}, {}),
        ({"Data": [["Sales"], [], HEADER, *ROWS]}, {"skip_rows": 2}),
        ({"Notes": [["read me"]], "Data": [[], HEADER, *ROWS]}, {"sheet": "Data"}),
    ],
    ids=["plain", "title", "notes"],
)
def test_what_is_inferred_is_valid(tmp_path: Path, sheets: dict[str, Any], keys: dict[str, Any]) -> None:
    path = workbook(tmp_path / "d.xlsx", sheets)
    found = infer_file_schema(path)
    document = found["document"]
    assert (document["columns"]["dates"], document.get("data", {})) == (["sold"], keys)
    assert (found["target"], found["rows"], found["seen"]) == ("y", 40, 40)
    assert check(path, toml_text(keys)) == []


def test_the_sheet_can_be_chosen(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Old": [["a", "b"], [1, 2], [3, 4]], "Data": [HEADER, *ROWS]})
    content = path.read_bytes()
    assert read_sample("d.xlsx", content, complete=True).names == ("a", "b")
    sample = read_sample("d.xlsx", content, complete=True, keys={"sheet": "Data"})
    assert (list(sample.names), sample.sheets) == (HEADER, ("Old", "Data"))
    assert sample.data == {"sheet": "Data"}


def test_the_sheets_that_are_not_read_are_named(tmp_path: Path) -> None:
    sheets = {"Jan": [HEADER, *ROWS], "Note": [["text"]], "Feb": [HEADER, *ROWS[:30]]}
    path = workbook(tmp_path / "d.xlsx", sheets)
    (note,) = (note for note in findings(path).notes if "sheet" in note)
    assert "only the sheet 'Jan' (40 rows) is read, not 'Feb' (30 rows): choose" in note
    assert note in infer_file_schema(path)["notes"]
    assert not [note for note in findings(path, 'sheet = "Feb"').notes if "sheet" in note]


def test_texts_of_a_workbook_have_the_notes_of_a_csv(tmp_path: Path) -> None:
    rows = [[*row[:2], ("None", "Mild", "Severe")[at % 3]] for at, row in enumerate(ROWS)]
    path = workbook(tmp_path / "d.xlsx", {"Data": [HEADER, *rows]})
    (note,) = (note for note in findings(path).notes if note.startswith("Read as missing values"))
    assert note == (
        "Read as missing values: y ('None' in 14 rows). If 'None' is a value there, set [data] not_missing = "
        '["None"].'
    )
    assert note in infer_file_schema(path)["notes"]


def test_a_workbook_without_a_header(tmp_path: Path) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": ROWS})
    assert infer_file_schema(path)["document"]["data"] == {"header": False}


@pytest.mark.parametrize(
    ("sheets", "line", "words", "hint"),
    [
        ({"Data": [["Sales"], [], HEADER, *ROWS]}, 1, "the header is in line 3", "skip_rows = 2"),
        ({"Data": ROWS}, 1, "the file has no header", "header = false"),
        (
            {"Old": [["a", "b"], [1, 2]], "Data": [HEADER, *ROWS]},
            1,
            "'y' is not in the data",
            "'Old', 'Data'",
        ),
        ({"Data": [HEADER, *ROWS, ["n.a. yet", None, "u"]]}, 42, "is not a number", "correct or empty"),
    ],
    ids=["title", "headless", "other sheet", "cell"],
)
def test_a_sheet_that_is_not_as_the_spec_says_is_explained(
    tmp_path: Path, sheets: dict[str, Any], line: int, words: str, hint: str
) -> None:
    first = check(workbook(tmp_path / "d.xlsx", sheets))[0]
    assert (first.file, first.line) == ("d.xlsx", line)
    assert words in first.message
    assert hint in first.hint


def first_entry(content: bytearray) -> tuple[int, int]:
    """Return where the data of the first entry begins, and where its record in the central directory does."""
    name, extra = struct.unpack_from("<HH", content, 26)
    return 30 + name + extra, content.index(b"PK\x01\x02")


def damage_deflate(content: bytearray) -> None:
    content[first_entry(content)[0]] = 0xFF


def damage_offset(content: bytearray) -> None:
    struct.pack_into("<I", content, first_entry(content)[1] + 42, 0xFFFFFF00)


def damage_directory(content: bytearray) -> None:
    struct.pack_into("<I", content, content.rindex(b"PK\x05\x06") + 16, 0x7FFFFFFF)


def damage_method(content: bytearray) -> None:
    struct.pack_into("<H", content, first_entry(content)[1] + 10, 98)
    struct.pack_into("<H", content, 8, 98)


def damage_flag(content: bytearray) -> None:
    struct.pack_into("<H", content, first_entry(content)[1] + 8, 1)
    struct.pack_into("<H", content, 6, 1)


@pytest.mark.parametrize(
    "damage", [damage_deflate, damage_offset, damage_directory, damage_method, damage_flag]
)
def test_a_damaged_workbook_is_one_clear_message(tmp_path: Path, damage: Callable[[bytearray], None]) -> None:
    path = workbook(tmp_path / "d.xlsx", {"Data": [HEADER, *ROWS]})
    content = bytearray(path.read_bytes())
    damage(content)
    path.write_bytes(content)

    (issue,) = check(path)

    assert (issue.file, "cannot be read" in issue.message) == ("d.xlsx", True)
    assert "damaged" in issue.hint
    assert issue.found
    with pytest.raises(DataError, match="cannot be read"):
        infer_file_schema(path)


def test_a_large_workbook_is_refused_by_the_page(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="too large to be read whole"):
        read_sample("d.xlsx", bytes(WHOLE), complete=False)


def test_a_compressed_file_that_is_cut_is_no_empty_file() -> None:
    content = load_zstd().compress("".join(f"{n * 7919 % 1000},u\n" for n in range(600)).encode())
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_sample("d.csv.zst", content[: len(content) // 2], complete=True)


def test_a_workbook_in_an_archive_and_another_spreadsheet_get_a_remedy(tmp_path: Path) -> None:
    book = workbook(tmp_path / "d.xlsx", {"Data": [HEADER, *ROWS]})
    packed = tmp_path / "d.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(book, "d.xlsx")
    other = tmp_path / "d.ods"
    other.write_bytes(book.read_bytes())
    for path, remedy in ((packed, "upload the workbook itself"), (other, "save the spreadsheet as .xlsx")):
        with pytest.raises(DataError) as caught:
            infer_file_schema(path)
        assert remedy in caught.value.issues[0].hint
    assert "save the spreadsheet as .xlsx" in check_data_name("d.ods")[0].hint
