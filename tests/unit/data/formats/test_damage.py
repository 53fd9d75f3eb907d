"""Whatever a reader raises is one message about the file, unless the machine failed."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from dmls_core.data.formats.damage import hidden_panics, readable
from dmls_core.errors import DataError, PlatformError, ValidationIssue

PATH = Path("/elsewhere/d.xlsx")


class PanicException(BaseException):
    """As PyO3 makes one for each library in Rust."""


@pytest.mark.parametrize(
    "error",
    [
        *(zlib.error("invalid block type"), struct.error(), OSError(errno.EINVAL, "Invalid argument")),
        *(NotImplementedError("compression type 98"), AttributeError("'NoneType' object"), AssertionError()),
        *(KeyError("xl/workbook.xml"), RecursionError(), OverflowError("date value out of range")),
        *(pl.exceptions.PanicException("unwrap on None"), PanicException("of another library\nat ...")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_exception_names_the_file(error: BaseException) -> None:
    with pytest.raises(DataError) as caught, readable(PATH):
        raise error
    (issue,) = caught.value.issues
    assert (issue.file, issue.message) == ("d.xlsx", "the file cannot be read")
    assert issue.found == (str(error).split("\n")[0] or type(error).__name__)


def test_commands_leave_out_what_a_panic_prints(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.parquet"
    pl.DataFrame({"a": range(3000), "b": ["x", "y", "z"] * 1000}).write_parquet(path)
    whole = path.read_bytes()

    def read(bit: int) -> str:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with suppress(DataError), readable(path):
            os.write(2, b"a warning\n")
            pl.read_parquet(path)
        return capfd.readouterr().err

    footer = 8 * (len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"))
    panics = next(bit for bit in range(footer, 8 * len(whole)) if "panicked" in read(bit))
    with hidden_panics():
        assert read(panics) == ""
        assert read(8 * len(whole) - 1) == "a warning\n", "an error without a panic"


@pytest.mark.parametrize(
    "error",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("No space left on device (os error 28)")],
)
def test_a_full_disk_is_no_damage(error: OSError) -> None:
    with pytest.raises(PlatformError, match=r"cannot read d\.xlsx: No space left on device"), readable(PATH):
        raise error


def test_what_is_no_damage_passes() -> None:
    for error in (MemoryError(), PlatformError("no service"), KeyboardInterrupt()):
        with pytest.raises(type(error)), readable(PATH):
            raise error
    with pytest.raises(DataError, match=r"^d\.xlsx:3: is no number$"), readable(PATH):
        raise DataError(ValidationIssue("is no number", file="copy", line=3))
