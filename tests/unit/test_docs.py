"""The pages say what is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import load_spec

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize(
    "script",
    ["architecture", "examples", "metrics", "settings", "spec"],
)
def test_generated_pages_match_the_code(script):
    done = subprocess.run([sys.executable, ROOT / "docs" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", ["cli_reference.py", "rest_api_reference.py"])
def test_the_api_and_command_line_references_are_up_to_date(script):
    done = subprocess.run([sys.executable, ROOT / "docs" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LATER = {
    "partition": '[data]\npartition = "day"',
    "gpus above 1": "[resources]\ngpus = 2",
}


@pytest.mark.parametrize("what", LATER)
def test_what_the_reference_calls_later_is_refused_as_such(what):
    spec = 'model = "xgboost-regressor"\nn_trials = 3\n' + LATER[what]
    with pytest.raises(SpecError, match="not available yet"):
        load_spec((spec + '\n[columns]\ntarget = "y"\n').encode())
    assert (
        f"Later: {'this whole table' if what.startswith('[') else ''}"
        in (ROOT / "docs/reference/spec.md").read_text()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_are_headings(page):
    for file, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        text = (page.parent / file if file else page).read_text()
        headings = {
            re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert anchor in headings, anchor


def test_commands_and_targets_on_the_pages_exist():
    text = "\n".join(page.read_text() for page in PAGES)
    helped = subprocess.run(
        [sys.executable, "-m", "dmls_core.cli", "--help"], capture_output=True, text=True
    ).stdout
    commands = set(re.findall(r"^│ ([a-z]+)  ", helped, re.MULTILINE))
    assert commands
    assert set(re.findall(r"(?:^|[`/ ])dmls ([a-z]+)\b(?=[^\n]*)", code(text))) - commands == set()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)\b", code(text))) - targets == set()


def code(text: str) -> str:
    """Return what stands in code spans and blocks."""
    blocks = re.findall(r"```[^\n]*\n(.*?)```", text, re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join(line.partition(" #")[0] for part in (*blocks, *spans) for line in part.splitlines())


def test_specs_on_the_pages_are_valid():
    found = [
        block
        for page in PAGES
        for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
        if "model" in tomllib.loads(block)
    ]
    assert len(found) >= 2
    for block in found:
        assert load_spec(block.encode()).n_trials >= 5
