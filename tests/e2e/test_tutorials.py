"""The commands of the README and of each tutorial, run in order in a fresh shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.demo_platform import NO_ENGINE, SETTINGS, Demo
from tests.services.platform_client import PlatformClient

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TUTORIALS = {page.stem: page for page in sorted((ROOT / "docs/tutorials").glob("*.md"))}

PROOFS = {
    "README": ["178 predictions by shop.wine version 1"],
    "data-scientist": ["tutorial/wine", "prediction,probability_0"],
    "analyst": ["prediction,probability_setosa", "2 predictions by version", '"name":"label"', "virginica"],
    "platform-engineer": ["tutorial/iris", "1 of 3", "version 1"],
}
"""Page -> what its commands print when they work."""


def commands(page: Path) -> str:
    """Return the ``bash`` blocks of a page, and the files that its ``toml`` blocks name in a first comment.

    ``shell`` blocks (installation) are only shown.
    """
    blocks = re.findall(
        r"^```(bash|toml)\n(?:# (\S+)\n)?(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return "\n".join(
        text if language == "bash" else f"cat > {file} <<'TOML'\n{text}TOML"
        for language, file, text in blocks
        if language == "bash" or file
    )


@pytest.mark.parametrize("page", [README, TUTORIALS["analyst"]], ids=lambda page: page.stem)
def test_its_commands_work_as_written(demo: Demo, platform: PlatformClient, tmp_path: Path, page: Path):
    run_commands(demo, tmp_path, page)


@pytest.mark.nightly("they train and serve a model as the README does")
@pytest.mark.parametrize(
    "page", [TUTORIALS[name] for name in TUTORIALS if name != "analyst"], ids=lambda page: page.stem
)
def test_longer_tutorials_work_as_written(demo: Demo, platform: PlatformClient, tmp_path: Path, page: Path):
    run_commands(demo, tmp_path, page)


def run_commands(demo: Demo, folder: Path, page: Path) -> None:
    """Run a page's commands in a folder, and check what they print."""
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", commands(page)],
        cwd=folder,
        env={
            # What `source .venv/bin/activate` sets, and what a login shell has.
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
            "DMLS_HOME": str(demo.home),
            "DOCKER_HOST": NO_ENGINE,
            **SETTINGS.get(demo.home, {}),
        },
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert [proof for proof in PROOFS[page.stem] if proof not in done.stdout + done.stderr] == []
