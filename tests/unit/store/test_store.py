from __future__ import annotations

from pathlib import Path

import pytest

from dmls_core import extensions
from dmls_core.errors import PlatformError, StoreError
from dmls_core.extensions import names
from dmls_core.store import open_store, store_class
from dmls_core.store.local import LocalStore


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/"])
def test_a_path_or_a_file_url_is_a_folder(tmp_path: Path, form: str) -> None:
    assert open_store(form.format(tmp_path)).url == str(tmp_path)


def test_shipped_stores_are_registered() -> None:
    assert {"file", "s3"} <= set(names("dmls.stores"))
    assert store_class("file:///folder") is LocalStore


@pytest.mark.parametrize(
    "url", ["", "http://host/bucket", "s3://", "s3:///prefix", "s3://key:secret@bucket/p"]
)
def test_other_urls_are_errors(url: str) -> None:
    with pytest.raises(PlatformError, match="not the URL of a store"):
        open_store(url)


def test_a_prefix_must_be_a_key() -> None:
    with pytest.raises(StoreError, match="cannot be a key"):
        open_store("s3://bucket/a/../b")


@pytest.mark.parametrize("url", ["files://x", "files+memory://x"])
def test_the_part_before_the_plus_sign_finds_a_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "names", lambda _: ("files", "s3"))
    monkeypatch.setattr(extensions, "load", lambda _, name: LocalStore if name == "files" else None)
    assert store_class(url) is LocalStore


def test_the_error_lists_the_installed_schemes() -> None:
    with pytest.raises(PlatformError, match=r"installed schemes: file, .*s3"):
        store_class("gcs://bucket")
