"""How a file is written is detected as people write files."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path

import pytest

from dmls_core.data.formats.compression import unpack_head
from dmls_core.data.formats.conversion import convert
from dmls_core.data.formats.detection import detect
from dmls_core.data.formats.encodings import detect_encoding
from dmls_core.errors import DataError
from dmls_core.intake.schema_inference import infer_schema, read_sample
from dmls_core.spec.data_table import Data

CITIES = {
    "windows-1252": "Köln München Besançon Málaga Malmö Århus",
    "windows-1250": "Łódź Kraków Gdańsk Poznań Wrocław Świętochłowice",
    "windows-1251": "Москва Казань Омск Тула",
    "koi8-r": "Москва Казань Омск Тула",
    "windows-1253": "Αθήνα Θεσσαλονίκη Πάτρα",
    "windows-1254": "İstanbul Şişli Eskişehir Diyarbakır",  # noqa: RUF001
    "cp850": "Köln München Zürich Düsseldorf Straße",
    "cp932": "東京 大阪 京都 札幌 ひらがな カタカナ",
    "euc-jp": "東京 大阪 京都 札幌 ひらがな カタカナ",
    "gb18030": "北京 上海 广州 深圳 重庆",
    "big5": "臺北 高雄 臺中 新竹",
    "cp949": "서울 부산 대구 인천",
    "utf-16": "Köln 東京",
    "utf-8": "Köln 東京",
}


def cities(encoding: str) -> str:
    names = CITIES[encoding].split()
    return "a,city\n" + "".join(f"{n}.5,{names[n % len(names)]}\n" for n in range(60))


@pytest.mark.parametrize("encoding", CITIES)
def test_the_text_is_read_as_it_was_written(tmp_path: Path, encoding: str) -> None:
    path, text = tmp_path / "d.csv", cities(encoding)
    path.write_bytes(text.encode(encoding))
    found = detect("d.csv", path.read_bytes())
    assert convert(path, Data.model_validate(found), tmp_path / "out").read_text() == text


@pytest.mark.parametrize("text", ["5 €", "20 °C", "µm", "±", "Köln", "£5", "Graz € 5"])
def test_a_symbol_or_a_single_word_is_western(text: str) -> None:
    assert detect_encoding(f"a,b\n1,{text}\n2,x\n".encode("cp1252")) == "windows-1252"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("windows-1252", "Zubehör Röcke Händler München Köln Düsseldorf Mäntel"),
        ("windows-1252", "jamón Málaga pingüino niño Córdoba España León"),
        ("windows-1250", "Poznań Wrocław Białystok Łódź Kraków Gdańsk Rzeszów"),
        ("cp850", "Gebühr Mäntel"),
    ],
)
def test_a_few_short_words_have_no_symbols_inside(encoding: str, words: str) -> None:
    text = "a,b\n" + "".join(f"1,{word}\n" for word in words.split())
    assert detect_encoding(text.encode(encoding)) == encoding


def test_utf_16_without_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(cities("utf-16").encode("utf-16-le"))
    assert detect("d.csv", path.read_bytes()) == {"encoding": "utf-16"}
    assert convert(path, Data(encoding="utf-16"), tmp_path / "out").read_text() == cities("utf-16")


EUROPEAN = {"delimiter": ";", "decimal": ",", "thousands": "."}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a;y\n1.234.567;u\n2.345;v\n", EUROPEAN),
        ("a;y\n1.234;u\n2.345;v\n12.345;u\n17;v\n", EUROPEAN),
        ("a;y\n1,234;u\n2,345;v\n12,345;u\n17;v\n", {"delimiter": ";", "thousands": ","}),
        # Not thousands: a number below 1, one with fewer decimals, and one of four digits.
        ("a;y\n1.234;u\n2.345;v\n0.345;u\n17;v\n", {"delimiter": ";"}),
        ("a;y\n1.234;u\n2.34;v\n12.345;u\n17;v\n", {"delimiter": ";"}),
        ("a;y\n1.234;u\n2.345;v\n12.345;u\n1234;v\n", {"delimiter": ";"}),
        ("a;y\n1\u2019234;u\n2\u2019345.5;v\n", {"delimiter": ";", "thousands": "'"}),
        # A decimal comma in each cell splits all rows alike, too, into more cells.
        ("a;b;y\n" + "1,5;2,5;0,5\n" * 40, {"delimiter": ";", "decimal": ","}),
        ("1,5;2,5\n" * 40, {"delimiter": ";", "decimal": ",", "header": False}),
        ("a,b,y\n" + "1;2,5|6,0\n" * 40, {}),
    ],
    ids=str,
)
def test_marks_and_delimiters(text: str, keys: dict[str, object]) -> None:
    assert detect("d.csv", text.encode()) == keys


def test_what_may_be_thousands_is_noted() -> None:
    text = "count,share,y\n" + "".join(f"{n}.{100 + n},0.{100 + n},{'uv'[n % 2]}\n" for n in range(10, 40))
    (note,) = (
        n
        for n in infer_schema("d.csv", read_sample("d.csv", text.encode(), complete=True)).notes
        if "three" in n
    )
    assert "count (10.110)" in note
    assert "share" not in note


@pytest.mark.parametrize(
    ("cells", "notation", "numbers"),
    [
        (["45,06", "1.234,50", "7"], {"decimal": ",", "thousands": "."}, ["45.06", "1234.50", "7"]),
        (["52.88%", "-3 %", "0.5%"], {"unit": "%"}, ["52.88", "-3", "0.5"]),
        (["$5", "-$1.5", "$ -7", "9", "-"], {"unit": "$"}, ["5", "-1.5", "-7", "9", "-"]),
        (["5,50 €", "7,25 €", "n/a"], {"decimal": ",", "unit": "€"}, ["5.50", "7.25", "n/a"]),
        (["EUR 5", "EUR 7.5"], {"unit": "EUR"}, ["5", "7.5"]),
        (["70 kg", "81.5kg"], {"unit": "kg"}, ["70", "81.5"]),
        (["$5", "7 €"], None, ["$5", "7 €"]),
        (["12A", "13A"], None, ["12A", "13A"]),
        (["45,06", "two"], None, ["45,06", "two"]),
    ],
    ids=str,
)
def test_columns_write_numbers_each_in_its_own_way(
    cells: list[str], notation: dict[str, str] | None, numbers: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "d.csv"
    path.write_text("zip,a\n" + "".join(f'27217.{n},"{cell}"\n' for n, cell in enumerate(cells)))
    keys = detect("d.csv", path.read_bytes())
    assert keys == ({"numbers": {"a": notation}} if notation else {})
    copy = convert(path, Data.model_validate(keys), tmp_path / "out")
    assert [row["a"] for row in csv.DictReader(copy.open())] == numbers


def test_a_hint_on_a_decimal_mark_is_true_of_the_column(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    for cell, thousands in (("27217.0", False), ("27.217", True)):
        path.write_text(f"a;b\n1,5;{cell}\n")
        with pytest.raises(DataError) as caught:
            convert(path, Data(delimiter=";", decimal=","), tmp_path / "out")
        (issue,) = caught.value.issues
        assert 'numbers."b".decimal = "."' in issue.hint
        assert ("thousands" in issue.hint) == thousands


def test_most_columns_decide_on_the_decimal_mark_of_the_file() -> None:
    text = "a;b;zip;y\n" + "".join(f"{n},5;{n},25;2721{n}.0;u\n" for n in range(9))
    assert detect("d.csv", text.encode()) == {
        "delimiter": ";",
        "decimal": ",",
        "numbers": {"zip": {"decimal": "."}},
    }


def test_a_title_above_an_index_without_a_name() -> None:
    text = "Report of sales\n,a,b,y\n" + "".join(f"{n},{n}.5,x{n % 3},u\n" for n in range(9))
    assert detect("d.csv", text.encode()) == {"skip_rows": 1}


def refusal(text: str) -> str:
    with pytest.raises(DataError) as caught:
        read_sample("d.csv", text.encode(), complete=True)
    return str(caught.value)


def test_rows_that_are_longer_than_the_header() -> None:
    assert "R writes row names" in refusal("x,y\n1,3,u\n2,4,v\n3,5,u\n")
    assert "each row ends with a separator" in refusal("x,y\n1,u,\n2,v,\n")
    assert "is a comma missing" in refusal("x,y\n1,u\n2,v,w\n")


def test_names_that_are_none() -> None:
    assert "to_csv(index=False)" in refusal(",x,y\n0,1,u\n1,2,v\n")
    assert "remove the separator at the end" in refusal("x,y,\n1,u,\n2,v,\n")
    assert "behind a blank" in refusal('"x", "y"\n"1", "u"\n"2", "v"\n')
    assert "HTML" in refusal("<table><tr><td>1</td></tr></table>")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (lambda n: "x" if n % 9 == 1 else f"{n}.5", "numbers, but also 'x'"),
        (lambda n: "EUR" if n == 0 else f"{n}.5", "numbers, but also 'EUR'"),
        (lambda n: f"{'$€'[n % 2]}{n}.5", "numbers with units, such as '$0.5'"),
        (lambda n: f'"[{n}; 2]"', "JSON lists or objects: write their values into columns of their own"),
        (lambda n: f"word {n * 7919}", "free text"),
    ],
)
def test_why_a_column_is_left_out(cells, reason: str) -> None:
    text = "a,x,y\n" + "".join(f"{cells(n)},{n}.25,{'uv'[n % 2]}\n" for n in range(60))
    schema = infer_schema("d.csv", read_sample("d.csv", text.encode(), complete=True))
    assert schema.notes == (f"Left out of the training: a ({reason}).",)


def archive(*names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            packed.writestr(name, "" if name.endswith("/") else "x,y\n1,u\n2,v\n")
    return out.getvalue()


def test_an_archive_has_one_file_which_may_be_in_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "d.zip"
    path.write_bytes(archive("data/", "data/d.csv", "__MACOSX/data/d.csv"))
    assert unpack_head(path.read_bytes()) == b"x,y\n1,u\n2,v\n"
    assert convert(path, Data(), tmp_path / "out").read_text() == "x,y\n1,u\n2,v\n"
    with pytest.raises(DataError, match="must have one file"):
        read_sample("d.zip", archive("a.csv", "b.csv"), complete=True)


def test_texts_of_json_lines_may_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = (
        {"price": "1.234,50 €", "size": 2e-9, "y": "u"},
        {"price": "45,06 €", "size": 1.5, "y": "v"},
    )
    path.write_text("\n".join(map(json.dumps, rows)))
    keys = detect(path.name, path.read_bytes()[:-9])  # the head of a file may end anywhere
    assert keys == {"format": "jsonl", "decimal": ",", "thousands": ".", "numbers": {"price": {"unit": "€"}}}
    plain = convert(path, Data.model_validate(keys), tmp_path / "plain")
    assert plain.read_text() == "price,size,y\n1234.50,2e-9,u\n45.06,1.5,v\n"
