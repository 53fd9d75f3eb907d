"""No input, however hostile, gives anything but a spec or a clear error, and none takes long."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dmls_core.errors import SpecError, ValidationIssue
from dmls_core.models import load_spec
from dmls_core.settings import SpecLimits
from dmls_core.spec import parse_spec

Issues = Callable[[bytes], list[ValidationIssue]]
KIB = 1024
HEAD = b'model = "random-forest-classifier"\n[columns]\ntarget = "y"\n'

HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "10 MB of opening brackets": b"[" * 10_000_000,
    "10 MB of everything": bytes(range(256)) * 40_000,
    "nested arrays": b"a = " + b"[" * 200 * KIB,
    "nested arrays, closed": b"a = " + b"[" * 100 * KIB + b"]" * 100 * KIB,
    "nested inline tables": b"a = " + b"{a = " * 40 * KIB,
    "headers without end": b"[" * 250 * KIB,
    "dotted key": b"a" + b".a" * 120 * KIB + b" = 1",
    "dotted key with blanks": b"a" + b" . a" * 60 * KIB + b" = 1",
    "dotted key of strings": b'"a"' + b'."a"' * 60 * KIB + b" = 1",
    "dotted header": b"[a" + b".a" * 120 * KIB + b"]",
    "two dotted keys": b"a" + b".a" * 60 * KIB + b" = 1\na" + b".a" * 60 * KIB + b".b = 1",
    "decimal integer": b"a = " + b"9" * 250 * KIB,
    "integer with underscores": b"a = " + b"9_" * 120 * KIB + b"9",
    "hexadecimal integer": b"a = 0x" + b"f" * 250 * KIB,
    "integer of 250 digits": HEAD + b"[n_estimators]\nvalue = " + b"9" * 250,
    "integer of 65 bits": HEAD + b"[n_estimators]\nmin = -9223372036854775809\nmax = 9223372036854775808",
    "float of many digits": b"a = 0." + b"1" * 250 * KIB,
    "float beyond all": HEAD + b"[ccp_alpha]\nvalue = 1e999",
    "not a number": HEAD + b"[ccp_alpha]\nmin = nan\nmax = inf",
    "many keys": b"\n".join(b"a%d = 1" % number for number in range(25 * KIB)),
    "many unknown tables": HEAD + b"\n".join(b"[n_estimator%d]" % number for number in range(11 * KIB)),
    "many wrong keys": HEAD + b"[max_depth]\n" + b"\n".join(b"mim%d = 1" % n for n in range(11 * KIB)),
    "many headers": b"\n".join(b"[a.b.c.d.e%d]" % number for number in range(18 * KIB)),
    "arrays of tables": b"[[a]]\n" * 40 * KIB,
    "long list": b"a = [" + b"1," * 120 * KIB + b"]",
    "list of lists": b"a = [" + b"[]," * 80 * KIB + b"]",
    "many features that are wrong": HEAD + b"features = [" + b"1," * 11_000 + b"]",
    "many features that are appears twice": HEAD + b'features = ["y",' + b'"x",' * 11_000 + b"]",
    "many categories that are no feature": HEAD
    + b"features = ["
    + b",".join(b'"feature_%d"' % number for number in range(5_000))
    + b"]\ncategorical = ["
    + b",".join(b'"featuer_%d"' % number for number in range(5_000))
    + b"]",
    "many values": HEAD + b"[n_estimators]\nvalues = [" + b",".join(b"%d" % n for n in range(15_000)) + b"]",
    "many tags": HEAD + b"[tags]\n" + b"\n".join(b'a%d = "b"' % number for number in range(15_000)),
    "many expectations": HEAD
    + b"\n".join(b"[expectations.columns.c%d]\nmax = 'a'" % n for n in range(5_000)),
    "nothing but newlines": b"\n" * 250 * KIB,
    "nothing but comments": b"#\n" * 125 * KIB,
    "nothing but quotes": b'"' * 250 * KIB,
    "nothing but apostrophes": b"'" * 250 * KIB,
    "nothing but backslashes": b'a = "' + b"\\" * 250 * KIB,
    "escapes": b'a = "' + b"\\n" * 120 * KIB + b'"',
    "escapes without end": b'a = """' + b'\\"""' * 60 * KIB,
    "strings that open and open": b'"""a' * 60 * KIB,
    "string without end": b'a = "' + b"x" * 250 * KIB,
    "long string": HEAD[:-4] + b'"' + b"x" * 250 * KIB + b'"',
    "long quoted key": b'"' + b"k" * 250 * KIB + b'" = 1',
    "long word for a model": b'model = "' + b"random-forest-" * 16 * KIB + b'"',
    "NUL": HEAD + b"a = '\x00'",
    "NUL by escape": HEAD + b'[tags]\na = "\\u0000"',
    "escape character by escape": HEAD + b'[tags]\na = "\\u001b[31m"',
    "surrogate": HEAD + b'[tags]\na = "\\ud800"',
    "beyond Unicode": HEAD + b'[tags]\na = "\\UFFFFFFFF"',
    "UTF-16": 'model = "x"'.encode("utf-16"),
    "UTF-16 without mark": 'model = "x"'.encode("utf-16-le"),
    "UTF-32": 'model = "x"'.encode("utf-32"),
    "Latin-1": HEAD + "[tags]\nort = 'Köln'".encode("latin-1"),
    "overlong UTF-8": HEAD + b"[tags]\na = '\xc0\x80'",
    "gzip": b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + bytes(range(256)),
    "the same key twice": HEAD + b"[max_depth]\nmin = 1\nmin = 2\nmax = 3",
    "the same table twice": HEAD + b"[max_depth]\nvalue = 1\n[max_depth]\nvalue = 2",
    "a table that is a value": HEAD + b"[columns.target]\na = 1",
    "a date": HEAD + b"[max_depth]\nvalue = 1979-05-27T07:32:00Z",
    "no date": b"a = 2024-02-30",
    "lone carriage return": b"a = 1\rb = 2",
    "a step that counts for ever": HEAD + b"[ccp_alpha]\nmin = 0.0\nmax = 1.0\nstep = 1e-300",
    "a grid that fills the memory": HEAD
    + b'[search]\nstrategy = "grid"\n'
    + b"".join(
        b"[%s]\nmin = 2\nmax = 9999\nstep = 1\n" % name for name in (b"n_estimators", b"max_leaf_nodes")
    ),
    "a pattern that recurses": HEAD
    + b"[expectations.columns.a]\npattern = '"
    + b"(" * 400
    + b")" * 400
    + b"'",
    "a pattern that repeats": HEAD
    + b"[expectations.columns.a]\npattern = '(((a{9999}){9999}){9999}){99999999999}'",
    "a time zone that is a path": HEAD + b"[schedule]\ncron='@daily'\ntimezone = '../../../../etc/passwd'",
    "a time zone that is a folder": HEAD + b"[schedule]\ncron='@daily'\ntimezone = 'America'",
    "a cron of stars": HEAD + b"[schedule]\ncron='" + b"*," * 90 + b"*'",
    "JSON": b'{"model": "random-forest-classifier"}',
    "YAML": b"model: random-forest-classifier\ncolumns:\n  - a\n",
    "a CSV": b"sepal_length,species\n5.1,setosa\n",
}


@pytest.mark.timeout(60)  # A quarter of a second is the most; work that grows with the square takes minutes.
@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile_input_gives_a_clear_error(source: bytes) -> None:
    with pytest.raises(SpecError) as raised:
        load_spec(source)
    issues = raised.value.issues
    assert 0 < len(issues) <= SpecLimits().issues + 1
    for issue in issues:
        assert issue.file == "spec.toml"
        assert len(str(issue)) < 1_500
        text = f"{issue}{issue.found}{issue.expected}"
        assert text.isprintable(), text
    assert all(issue.line and issue.column for issue in issues[: SpecLimits().issues])


@pytest.mark.parametrize(
    ("source", "line", "column", "words"),
    [
        (b"a = 1\nb = \nc = 3", 2, 5, ["not TOML", "Invalid value"]),
        (b"a = 1\n\nb = 'x", 3, 7, ["close the string"]),
        (b"[a]\n[b]\n[a]\nx = 1", 3, 3, ["twice", "one heading"]),
        (b"a = 1\nb = 2\na = 3\n", 3, 6, ["set twice"]),
        (b"a = 1\nb = 'K\xf6ln'", 2, 7, ["not UTF-8", "save the file as UTF-8"]),
        ("ü = 1\nb = 'ü".encode() + b"\xe9'", 2, 7, ["not UTF-8"]),
        (b"a = 1\nb = 'x\x00y'", 2, 7, ["NUL"]),
        (b"a = [\n [\n [[[[[[[[[", 3, 8, ["nested too deep"]),
        (b"a = 1\nb = " + b"1" * 300, 2, 5, ["too long"]),
    ],
)
def test_syntax_errors_have_a_position(
    issues_of: Issues, source: bytes, line: int, column: int, words: list[str]
) -> None:
    (issue,) = issues_of(source)
    assert (issue.line, issue.column) == (line, column)
    for word in words:
        assert word in str(issue)


def test_the_byte_that_is_not_utf8_is_named(issues_of: Issues) -> None:
    (issue,) = issues_of(b"a = 'K\xf6ln'")
    assert issue.found == "byte 0xf6 at offset 6"
    assert issue.expected == "UTF-8"


def test_impossible_values_are_reported_with_their_key(issues_of: Issues) -> None:
    issues = issues_of(HEAD + b'[a]\nx = nan\ny = [1, inf]\nz = 9223372036854775808\nw = "\\u0007"')
    assert [(issue.line, issue.key) for issue in issues] == [
        (5, "a.x"),
        (6, "a.y[1]"),
        (7, "a.z"),
        (8, "a.w"),
    ]


def test_the_largest_integer_is_a_valid_document(issues_of: Issues) -> None:
    (issue,) = issues_of(HEAD + b"[max_depth]\nvalue = 9223372036854775807")
    assert "out of bounds" in issue.message


def test_documents_beyond_a_limit_are_rejected() -> None:
    source = HEAD + b"[max_depth]\nvalues = [1, 2, 3]"
    load_spec(source, limits=SpecLimits(bytes=len(source), depth=2, items=8, values=3))
    for limits in (
        SpecLimits(bytes=len(source) - 1),
        SpecLimits(items=7),
        SpecLimits(values=2),
        SpecLimits(text=8),
        SpecLimits(depth=1),
    ):
        with pytest.raises(SpecError):
            load_spec(source, limits=limits)


def test_issues_beyond_the_limit_are_counted() -> None:
    source = b"\n".join(b"key%d = 1" % number for number in range(10))
    with pytest.raises(SpecError) as raised:
        parse_spec(source, {}, limits=SpecLimits(issues=3))
    messages = [issue.message for issue in raised.value.issues]
    assert len(messages) == 4
    assert messages[-1] == "and 9 more issues"
