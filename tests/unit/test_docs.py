"""The pages say what is there."""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import tomllib
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

import pytest

from dmls_core.airflow.notifiers import Event
from dmls_core.data.formats.names import data_endings
from dmls_core.errors import SpecError
from dmls_core.models import load_spec
from dmls_core.models.load import UNAVAILABLE
from dmls_core.spec.tables import TABLES
from tests.support import shell
from tests.support.messages import missing_parts, parts_of

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


def first_column(page: str, heading: str) -> set[str]:
    """Return the names in the first column of the table below a line."""
    text = (ROOT / page).read_text()
    table = text[text.index(heading) :].partition("\n| --- ")[2].partition("\n\n")[0]
    return {name for row in table.splitlines()[1:] for name in re.findall("`([^`]+)`", row.split(" | ")[0])}


def listed(page: str, pattern: str) -> set[str]:
    """Return the names in the part of a page that a group of the pattern matches."""
    match = re.search(pattern, (ROOT / page).read_text(), re.DOTALL)
    assert match
    return set(re.findall("`([^`]+)`", match[1]))


def test_every_decision_is_listed():
    index = (ROOT / "docs/decisions/index.md").read_text()
    names = {path.name for path in ROOT.glob("docs/decisions/0*.md")}
    assert set(re.findall(r"\]\((0[^)]+)\)", index)) == names


def test_the_events_of_notifiers_are_listed():
    assert listed("docs/extending/notifiers.md", r"`event` \((.*?)\)") == set(get_args(Event))
    assert first_column("docs/how-to/deploy.md", "| event | when |") == set(get_args(Event))


def test_the_endings_of_data_files_are_listed():
    endings = {ending for ending in data_endings() if ending.count(".") == 1} - {".zip"}
    assert listed("docs/reference/data-formats.md", r"extension \((.*?)\)") == endings


def test_the_strategies_of_a_search_are_listed():
    strategies = TABLES["search"].model_json_schema()["properties"]["strategy"]["enum"]
    assert first_column("docs/explanation/search.md", "selects the sampler and the pruner") == set(strategies)


def test_the_variables_of_the_compose_stack_are_listed():
    page = (ROOT / "docs/how-to/operate.md").read_text()
    secrets = set(
        re.findall(r"[A-Z][A-Z_0-9]+", page[page.index("for name in ") : page.index("docker-compose up")])
    )
    required = {name for name, default in shell.compose_variables().items() if not default}
    assert required <= secrets
    optional = shell.compose_variables().keys() - required
    assert first_column("docs/how-to/operate.md", "Optional variables in `.env`:") == optional


DATE = re.compile(r"\b\d{1,2} (?:November|December) 2026|\b2026-\d\d-\d\d")


def measured(table: str) -> bool:
    """Return whether most cells of a table are numbers, some of them fractions."""
    cells = [cell.strip() for row in table.splitlines()[2:] for cell in row.strip("|").split("|")[1:]]
    numbers = [cell for cell in cells if re.match(r"[-+*]*\d", cell)]
    return (
        len(numbers) * 2 > len([cell for cell in cells if cell]) and sum("." in cell for cell in numbers) > 1
    )


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name in ("explanation", "how-to", "reference", "docs")],
    ids=lambda page: page.stem,
)
def test_tables_of_figures_name_their_script_and_date(page):
    for section in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE):
        if any(map(measured, re.findall(r"(?:^\|[^\n]*\n)+", section, re.MULTILINE))):
            heading = section.partition("\n")[0]
            assert re.search(r"tests/bench/\w+\.py", section), heading
            assert DATE.search(section), heading


TABLES_OF_MEMBERS = [
    ("engines", "Subclass `dmls_core.models.engines.Engine`:", "dmls_core.models.engines.Engine"),
    ("engines", "`fit` returns a `dmls_core", "dmls_core.models.engines.Fitted"),
    ("runners", "`dmls_core.airflow.runners.TrainerOperator`", "dmls_core.airflow.runners.TrainerOperator"),
    ("runners", "`dmls_core.airflow.runners.Runner`:", "dmls_core.airflow.runners.Runner"),
    ("runners", "`start` gets a `Trainer`:", "dmls_core.airflow.runners.Trainer"),
    ("stores", "Subclass `dmls_core.store.Store`", "dmls_core.store.Store"),
    ("stores", "### Optional methods", "dmls_core.store.Store"),
]


@pytest.mark.parametrize(("page", "heading", "path"), TABLES_OF_MEMBERS, ids=str)
def test_members_that_a_guide_lists_are_those_of_the_class(page, heading, path):
    cls = resolve_name(path)
    names = set(vars(cls).get("__dataclass_fields__", ()))
    listed = first_column(f"docs/extending/{page}.md", heading)
    for entry in listed:
        name, call, arguments = entry.partition("(")
        assert name in names or hasattr(cls, name) or name in cls.__annotations__, entry
        if call:
            parameters = [one for one in inspect.signature(getattr(cls, name)).parameters if one != "self"]
            assert arguments.rstrip(")").split(", ") == (parameters or [""]), entry
    assert names <= listed


@pytest.mark.parametrize("page", ["engines", "runners", "stores"])
def test_a_guide_names_every_abstract_method(page):
    guide = (ROOT / f"docs/extending/{page}.md").read_text()
    for path in {path for name, _, path in TABLES_OF_MEMBERS if name == page}:
        for name in getattr(resolve_name(path), "__abstractmethods__", ()):
            assert f"`{name}(" in guide, name


def test_the_versions_that_the_pages_name_are_the_lowest():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (airflow,) = re.findall(
        r"apache-airflow>=([\d.]+)", " ".join(project["optional-dependencies"]["airflow"])
    )
    pattern = r"Airflow ([\d.]+) or newer|apache/airflow:([\d.]+)|constraints-([\d.]+)\.txt"
    text = "\n".join(page.read_text() for page in PAGES)
    assert {version for groups in re.findall(pattern, text) for version in groups if version} == {airflow}
    python = project["requires-python"].removeprefix(">=")
    assert set(re.findall(r"Python (3\.\d+) (?:or|and) newer", text)) == {python}


OF_TRITON = "Stub process 'dmls-shared_0_0' is not healthy"


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code():
    rows = re.findall(r"^\| (.*?) \|", (ROOT / "docs/how-to/troubleshooting.md").read_text(), re.MULTILINE)
    messages = {message for row in rows for message in re.findall("`([^`]+)`", row)} - {OF_TRITON}
    assert len({part for message in messages for part in parts_of(message)}) > 30
    assert {part for message in messages for part in missing_parts(message)} == set()
