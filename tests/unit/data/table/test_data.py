"""What importing costs, and the hash of the data."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from dmls_core.data.formats.data_files import content_hash


def test_importing_the_package_is_light():
    code = (
        "import sys, dmls_core.data, dmls_core.data.validation, dmls_core.data.encoder\n"
        "heavy = {'polars', 'pandas', 'sklearn', 'scipy', 'great_expectations'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_content_hash(tmp_path):
    (tmp_path / "1").write_bytes(b"one")
    (tmp_path / "2").write_bytes(b"two")
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    assert content_hash([tmp_path / "1"]) == one
    both = content_hash([tmp_path / "1", tmp_path / "2"])
    assert both == hashlib.sha256(f"{one}\n{two}\n".encode()).hexdigest()
    assert both != content_hash([tmp_path / "2", tmp_path / "1"])
