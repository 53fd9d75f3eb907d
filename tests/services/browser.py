"""A real browser for tests of pages: Debian's Chromium, driven by Playwright.

Where it is missing, root on a Debian or Ubuntu machine has it installed; elsewhere the tests are skipped and
say why. Playwright's own download is never used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALL_SECONDS = 300
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return where a Chromium is, if there is one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def install_chromium() -> str:
    """Return where Chromium is, installing it where it is missing; skip the test where that fails."""
    if path := find_chromium():
        return path
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        pytest.skip("there is no Chromium, and only root on Debian or Ubuntu can have it installed")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update"],
        ["apt-get", "install", "-y", "--no-install-recommends", "chromium"],
    ):
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"Chromium cannot be installed: {command[1]} took over {INSTALL_SECONDS} seconds")
        if done.returncode:
            pytest.skip(f"Chromium cannot be installed: {done.stderr.strip()[-300:]}")
    path = find_chromium()
    assert path is not None, "apt-get installed no Chromium"
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without a window.

    It ends with its module, as Playwright keeps an event loop running in the thread of the tests: until
    then, ``asyncio.run`` of other tests would fail.
    """
    from playwright.sync_api import sync_playwright

    path = install_chromium()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
