"""Each tutorial's commands, run in order in a fresh shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.demo_platform import NO_ENGINE, Demo
from tests.services.platform_client import PlatformClient

TUTORIALS = sorted((Path(__file__).parents[2] / "docs/tutorials").glob("*.md"))

PROOFS = {
    "data-scientist": ["tutorial/wine", "prediction,probability_0"],
    "analyst": ["setosa", "virginica", '"name":"label"', "probability_setosa"],
    "platform-engineer": ["tutorial/iris", "trial 1/3", "version 1"],
}
"""Tutorial -> what its commands print when they work."""


def commands(page: Path) -> str:
    """Return the ``bash`` blocks of a page; ``shell`` blocks (installation) are only shown."""
    return "\n".join(re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_its_commands_work_as_written(demo: Demo, platform: PlatformClient, tmp_path: Path, page: Path):
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", commands(page)],
        cwd=tmp_path,
        env={
            # What `source .venv/bin/activate` sets, and what a login shell has.
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
            "DMLS_HOME": str(demo.home),
            "DOCKER_HOST": NO_ENGINE,
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert [proof for proof in PROOFS[page.stem] if proof not in done.stdout + done.stderr] == []
