"""The pages say what is there."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from dmls_core.errors import SpecError
from dmls_core.models import load_spec
from dmls_core.models.load import UNAVAILABLE

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SCRIPTS = sorted(ROOT.glob("docs/*_reference.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_generated_pages_match_the_code(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(script), "--check"])
    assert not result_of(script)


def result_of(script: Path) -> object:
    """Run a script, and return what it gives to ``sys.exit``."""
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as ended:
        return ended.code
    return None


USES = {
    "partition": '[data]\npartition = "day"',
    "more than one GPU": "[resources]\ngpus = 2",
}


@pytest.mark.parametrize("setting", UNAVAILABLE, ids=lambda setting: setting.name)
def test_what_the_reference_calls_not_available_is_refused_as_such(setting):
    spec = 'model = "xgboost-regressor"\n[columns]\ntarget = "y"\n' + USES[setting.name]
    with pytest.raises(SpecError, match=f"{setting.name} is not available yet"):
        load_spec(spec.encode())
    assert f"Not available yet: {setting.name}." in (ROOT / "docs/reference/spec.md").read_text()


def test_the_releases_of_triton_that_are_named_were_run():
    ran = re.findall(
        r"^\| (\d\d\.\d\d), ", (ROOT / "docs/reference/triton-releases.md").read_text(), re.MULTILINE
    )
    texts = [path.read_text() for path in [*PAGES, ROOT / "docker-compose.yaml"]]
    named = {release for text in texts for release in re.findall(r"tritonserver:(\d\d\.\d\d)-py3", text)}
    assert named
    assert named <= set(ran)


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
