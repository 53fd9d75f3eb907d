from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core.errors import SubmissionError
from dmls_core.intake import admit, submit
from dmls_core.store import Store, open_store
from tests.unit.intake.uploads import CSV, SPEC


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "my.toml").write_bytes(SPEC)
    (tmp_path / "iris.csv").write_bytes(CSV)
    return tmp_path / "my.toml", tmp_path / "iris.csv"


def test_data_first_and_the_spec_last(
    store: Store, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real = store.upload
    monkeypatch.setattr(store, "upload", lambda key, path: order.append(key) or real(key, path))
    written = submit(store, files[0], [files[1]], "growth", "iris")
    assert order == ["incoming/growth/iris/iris.csv", "incoming/growth/iris/spec.toml"]
    assert [info.key for info in written] == order
    assert admit(store, "growth", "iris").state == "accepted"


def test_what_cannot_be_submitted(store: Store, files: tuple[Path, Path], tmp_path: Path) -> None:
    spec, csv = files
    other = tmp_path / "other" / "iris.csv"
    other.parent.mkdir()
    other.write_bytes(CSV)
    odd = [tmp_path / name for name in ("_status.csv", ".hidden.csv", "table.doc")]
    for path in odd:
        path.write_bytes(CSV)
    for data, team, name, words in [
        ([csv], "Growth", "iris", "cannot name a team"),
        ([csv], "growth", "../x", "cannot name a job"),
        ([csv, other], "growth", "iris", "same name"),
        ([tmp_path / "none.csv"], "growth", "iris", "does not exist"),
        ([odd[0]], "growth", "iris", "cannot have this name"),
        ([odd[1]], "growth", "iris", "cannot have this name"),
        ([odd[2]], "growth", "iris", "must end in one of .csv, .parquet"),
    ]:
        with pytest.raises(SubmissionError, match=words):
            submit(store, spec, data, team, name)
    with pytest.raises(SubmissionError, match="does not exist"):
        submit(store, tmp_path / "none.toml", [csv], "growth", "iris")
    assert list(store.list("")) == []
