import uuid

import pytest
from dmls_fsspec_store import FsspecStore

from dmls_core.errors import PlatformError, StoreError
from dmls_core.store import open_store
from dmls_core.testing import StoreSuite


class TestFile(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return FsspecStore.from_url(f"fsspec+file://{tmp_path}/store")


class TestMemory(StoreSuite):
    @pytest.fixture
    def store(self):
        return FsspecStore.from_url(f"fsspec+memory://{uuid.uuid4().hex}")


def test_dmls_finds_the_store_by_its_scheme(tmp_path):
    store = open_store(f"fsspec+file://{tmp_path}/store")
    assert isinstance(store, FsspecStore)
    assert store.local
    assert open_store(store.url).url == store.url


def test_an_unknown_protocol_is_an_error():
    with pytest.raises(StoreError, match="nothing"):
        open_store("fsspec+nothing://folder")


def test_the_protocol_is_required():
    with pytest.raises(PlatformError, match=r"give fsspec\+PROTOCOL"):
        open_store("fsspec://folder")
